"""When and where a run saves itself; with the vendor's log lines."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cstool.machine.state import forms, save_state, state_values
from cstool.run.checkpoint_policy import delete_oldest, policy_values, save_beside
from cstool.run.session import Saving, Session
from cstool.store import checkpoint_path, register_checkpoint
from cstool.words import bytes_text

log = logging.getLogger("cstool")


def _sparse_choices(session: Session) -> dict[str, Any]:
    return {"sparse_kernels": session.chooser.as_dict()} if session.appliance.memoryx.arrays.sparse_shapes() else {}


def values_of(session: Session) -> Callable[[], dict[str, Any]]:
    """State of a run beside its arrays, as of now, once all updates have been applied."""
    params, memoryx, position = session.params, session.appliance.memoryx, session.position
    choices = {"grain_samples": session.result.grain_samples, "gemm": session.appliance.gemm.name, **forms(params)}
    choices |= _sparse_choices(session)
    policy = policy_values(session)
    return lambda: {
        **state_values(
            memoryx,
            position,
            model_name=params.model.name,
            seed=params.seed,
            choices=choices,
            params=params.resolved(),
        ),
        **policy,
    }


def commits(session: Session) -> bool:
    """Say whether the steps of a run are committed, so that checkpoints can be made of the commits."""
    file = session.appliance.memoryx.arrays.file
    return file is not None and file.slots == 2 and session.params.memoryx.commit_steps > 0


def commit(session: Session) -> None:
    """Let the step that has just been finished be committed, if it is not yet."""
    if session.committed_step != session.position.step:
        session.appliance.memoryx.commit(values_of(session))
        session.committed_step = session.position.step


def save(session: Session) -> float:
    """Write a checkpoint into model_dir, and return the seconds that training stood still for it.

    Of a MemoryX that is committed it is made beside the next step: `finish_save` waits for it.

    Raises:
        CheckpointError: it cannot be written; the ones before it are as they were
    """
    began = time.perf_counter()
    params, step, memoryx = session.params, session.position.step, session.appliance.memoryx
    path = checkpoint_path(params.model_dir, step, params.checkpoint.checkpoint_name)
    log.info(f"Saving checkpoint at step {step}")
    if commits(session):
        commit(session)
        session.saving = Saving(path, step, memoryx.snapshot(path))
        return 0.0
    memoryx.drain()
    size_bytes = save_state(path, memoryx, values_of(session)())
    seconds = time.perf_counter() - began
    return seconds + _saved(session, path, step, size_bytes, seconds, "")


def finish_save(session: Session) -> float:
    """Wait for the checkpoint that is being made beside the training, if there is one; return the seconds waited.

    Raises:
        CheckpointError: it cannot be written; the ones before it are as they were
    """
    saving, session.saving = session.saving, None
    if saving is None:
        return 0.0
    began = time.perf_counter()
    size_bytes, seconds = saving.written.result()
    # What the commit before it took is time of training.
    waited = min(time.perf_counter() - began, seconds)
    return waited + _saved(
        session, saving.path, saving.step, size_bytes, seconds, f", {waited:.2f} s of them waited for"
    )


def _saved(session: Session, path: Path, step: int, size_bytes: int, seconds: float, waited: str) -> float:
    """Note a checkpoint that is whole, do what follows from it, and return the seconds that this took."""
    folder = session.params.model_dir
    register_checkpoint(folder, step, path, session.run_id if session.params.keep_checkpoints else None)
    log.info(
        f"Saved checkpoint {path} ({bytes_text(size_bytes)} in {seconds:.2f} s, "
        f"{size_bytes / seconds / 1e9:.2f} GB/s{waited})"
    )
    session.saved_step = step
    session.result.checkpoints.append(str(path))
    began = time.perf_counter()
    save_beside(session, path, step)
    delete_oldest(session)
    policy_s = time.perf_counter() - began
    session.result.checkpoint_s += seconds + policy_s
    return policy_s
