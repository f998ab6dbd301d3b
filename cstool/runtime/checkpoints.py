"""When and where a run saves itself, and what it starts from; with the vendor's log lines."""

from __future__ import annotations

import logging
import shlex
import time
from pathlib import Path
from typing import Any

from cstool.errors import CheckpointError
from cstool.runtime.session import Session
from cstool.runtime.state import environment, load_state, parse_states, save_state
from cstool.store import (
    CheckpointReader,
    checkpoint_path,
    latest_checkpoint,
    list_checkpoints,
    register_checkpoint,
)

log = logging.getLogger("cstool")


def restore(session: Session, checkpoint: Path | None, states: str | None, strict: bool) -> None:
    """Load a checkpoint, or begin with random weights.

    Args:
        session: MemoryX of its appliance receives the state
        checkpoint: None for that of the params, or the latest in model_dir if there is one
        states: "all", or which parts to load; None for what the params say of a checkpoint that was given, and all of
            one that the run goes on from: an interruption changes nothing
        strict: whether it must hold exactly the weights of the model

    Raises:
        CheckpointError: it cannot be read, or is of another model
    """
    params, memoryx = session.params, session.appliance.memoryx
    given = params.eval_checkpoint_path if memoryx.optimizer is None else params.checkpoint_path
    if checkpoint is None and given is not None:
        checkpoint = given.now
    resumes = checkpoint is None and params.checkpoint.autoload_last_checkpoint
    states = states or (None if resumes else params.load_checkpoint_states) or "all"
    wanted = parse_states(states)
    if memoryx.optimizer is None and "model" not in wanted:
        raise CheckpointError(f"--load_checkpoint_states: must have model in it for an evaluation, got {states}")
    session.resumes = resumes and states == "all"
    if resumes:
        checkpoint = _look_for_latest(params.model_dir, params.checkpoint.checkpoint_name)
    if checkpoint is None:
        if resumes and memoryx.optimizer is None:
            raise CheckpointError(
                f"{params.model_dir}: has no checkpoint to evaluate",
                "--model_dir or --checkpoint_path says where one is",
            )
        memoryx.initialize(params.seed)
        log.info("No checkpoint was provided. Using randomly initialized model parameters.")
        return
    log.info(f"Loading weights from checkpoint {checkpoint}")
    strict = strict and not params.checkpoint.disable_strict_checkpoint_loading
    if not strict or states != "all":
        memoryx.initialize(params.seed)
    try:
        with CheckpointReader(checkpoint) as reader:
            session.position, values = load_state(reader, memoryx, session.graph, states=states, strict=strict)
            if states == "all":
                session.kept_choices = values.get("choices", {})
    except CheckpointError as error:
        if not resumes or _is_whole(checkpoint):
            raise
        raise CheckpointError(error.message, _way_on(checkpoint, params.checkpoint.checkpoint_name)) from error
    if "model" in wanted:
        log.info("Model state found in checkpoint and loaded successfully.")
    if memoryx.optimizer is None:
        return
    if changed := _changes(session, values):
        log.warning(f"Not as it was in the checkpoint: {'; '.join(changed)}. Bits may differ from a straight run.")
    for name, sparse in memoryx.sparse.items():
        if sparse.asked_density not in (None, sparse.density):
            log.warning(
                f"{name} goes on with the {1 - sparse.density:.1%} zeros that it has in the checkpoint: a static mask "
                "does not change, whatever sparsity the params ask for."
            )
            break
    if "optimizer" not in wanted:
        log.info("Only the weights count from here on: the optimizer begins afresh, at step 1.")
    if session.resumes:
        session.saved_step = session.position.step
        log.info(
            f"Resuming from step {session.position.step}. To start fresh, choose another --model_dir, or set "
            "trainer.init.checkpoint.autoload_last_checkpoint to false."
        )


def _changes(session: Session, before: dict[str, Any]) -> list[str]:
    """Return what the bits depend on and is not as it was: versions, the CPU, the seed, the grain."""
    then = {**before.get("choices", {}), "seed": before.get("random", {}).get("seed")}
    now = {**environment(), "grain_samples": session.result.grain_samples, "seed": session.params.seed}
    if session.appliance.memoryx.sparse_shapes():
        then["sparse_kernels"] = _mode(then.get("sparse_kernels"))
        now["sparse_kernels"] = _mode(session.chooser.as_dict())
    return [f"{key} {then[key]} -> {now[key]}" for key in now if then.get(key) not in (None, now[key])]


def _mode(chosen: Any) -> str | None:
    """Return how sparse kernels were chosen: by measurement, or by whom."""
    mode = chosen.get("mode") if isinstance(chosen, dict) else None
    return "auto" if mode == "measure" else mode


def _look_for_latest(folder: Path, template: str) -> Path | None:
    naming = template.replace("{step}", "(step)")
    log.info(
        f'Checkpoint autoloading is enabled. Looking for latest checkpoint in "{folder}" directory with the following '
        f"naming convention: `{naming.replace('.mdl', '(_timestamp)?.mdl')}`."
    )
    latest = latest_checkpoint(folder, template)
    if latest is None:
        log.info(f'No checkpoints were found in "{folder}".')
        return None
    log.info(f'Found latest checkpoint at "{latest.path}".')
    return latest.path


def _way_on(damaged: Path, template: str) -> str:
    """Say what to start from instead of the latest checkpoint of a folder."""
    others = [entry.path for entry in list_checkpoints(damaged.parent, template) if entry.path != damaged]
    whole = next((path for path in reversed(others) if _is_whole(path)), None)
    if whole is None:
        return "no other checkpoint here is whole: choose another --model_dir to start fresh"
    return f"go on from the newest one that is whole: --checkpoint_path {shlex.quote(str(whole))}"


def _is_whole(checkpoint: Path) -> bool:
    try:
        with CheckpointReader(checkpoint) as reader:
            reader.verify_all()
    except CheckpointError:
        return False
    return True


def _sparse_choices(session: Session) -> dict[str, Any]:
    return {"sparse_kernels": session.chooser.as_dict()} if session.appliance.memoryx.sparse_shapes() else {}


def save(session: Session) -> float:
    """Write a checkpoint into model_dir, and return the seconds it took.

    Raises:
        CheckpointError: it cannot be written; the ones before it are as they were
    """
    began = time.perf_counter()
    params, step = session.params, session.position.step
    path = checkpoint_path(params.model_dir, step, params.checkpoint.checkpoint_name)
    log.info(f"Saving checkpoint at step {step}")
    size_bytes = save_state(
        path,
        session.appliance.memoryx,
        session.position,
        model_name=params.model.name,
        seed=params.seed,
        choices={"grain_samples": session.result.grain_samples, "gemm": "numpy", **_sparse_choices(session)},
        params=params.resolved(),
    )
    register_checkpoint(params.model_dir, step, path)
    seconds = time.perf_counter() - began
    log.info(
        f"Saved checkpoint {path} ({size_bytes / 1e6:.1f} MB in {seconds:.2f} s, {size_bytes / seconds / 1e9:.2f} GB/s)"
    )
    session.saved_step = step
    session.result.checkpoints.append(str(path))
    session.result.checkpoint_s += seconds
    return seconds
