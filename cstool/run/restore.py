"""How a run takes up the state that it starts from."""

import logging
from typing import Any

from cstool.machine.start import Start, restore
from cstool.machine.state import FORMS_BEFORE, environment, forms
from cstool.params import ALL_STATES, Params
from cstool.run.session import Session
from cstool.store import newest_checkpoints

log = logging.getLogger("cstool")


def take_up(session: Session, start: Start) -> None:
    """Load what a run starts from, or begin with random weights, and go on from where that run was.

    Args:
        session: MemoryX of its appliance receives the state
        start: of `choose_start`

    Raises:
        CheckpointError: it cannot be read, or is of another model
        StoreError: likewise, of a MemoryX file
    """
    params, memoryx, wanted = session.params, session.appliance.memoryx, start.states
    session.resumes = start.resumes
    session.position, values = restore(memoryx, params, start, session.progress)
    if start.path is None:
        return
    file = memoryx.arrays.file
    if start.committed is not None and file is not None and file.record is not None:
        session.committed_step = session.position.step
    if wanted == ALL_STATES:
        session.kept_choices = values.get("choices", {})
        if session.patience is not None:
            session.patience.adopt(values.get("early_stopping"))
    if session.resumes and isinstance(values.get("run"), str):
        session.run_id = values["run"]
    if memoryx.optimizer is None:
        return
    if changed := _changes(session, values):
        log.warning(f"Not as it was in the checkpoint: {'; '.join(changed)}. Bits may differ from a straight run.")
    for name, sparse in memoryx.arrays.sparse.items():
        if sparse.asked_density not in (None, sparse.density):
            log.warning(
                f"{name} goes on with the {1 - sparse.density:.1%} zeros that it has in the checkpoint: a static mask "
                "does not change, whatever sparsity the params ask for."
            )
            break
    if "optimizer" not in wanted:
        log.info("Only the weights count from here on: the optimizer begins afresh, at step 1.")
    if session.resumes:
        session.saved_step = session.position.step if start.committed is None else _saved_step(params)
        log.info(
            f"Resuming from step {session.position.step}. To start fresh, choose another --model_dir, or set "
            "trainer.init.checkpoint.autoload_last_checkpoint to false."
        )


def _saved_step(params: Params) -> int | None:
    held = newest_checkpoints(params.model_dir, params.checkpoint.checkpoint_name)
    return held[-1].step if held else None


def _changes(session: Session, before: dict[str, Any]) -> list[str]:
    """Changes on which bits depend: versions, the CPU, the seed, the grain, forms."""
    then = {**(FORMS_BEFORE if "choices" in before else {}), **before.get("choices", {})}
    then["seed"] = before.get("random", {}).get("seed")
    now = {**environment(), "grain_samples": session.result.grain_samples, "seed": session.params.seed}
    now |= forms(session.params)
    if session.appliance.memoryx.arrays.sparse_shapes():
        then["sparse_kernels"] = _mode(then.get("sparse_kernels"))
        now["sparse_kernels"] = _mode(session.chooser.as_dict())
    return [f"{key} {then[key]} -> {now[key]}" for key in now if then.get(key) not in (None, now[key])]


def _mode(chosen: Any) -> str | None:
    """Choice of sparse kernels: by measurement, or by whom."""
    mode = chosen.get("mode") if isinstance(chosen, dict) else None
    return "auto" if mode == "measure" else mode
