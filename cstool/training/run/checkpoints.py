"""Times and places of saving a run, checkpoints that stay, files saved beside them; with the vendor's log lines.

All of it follows from the step and from the state of the folder, so an interrupted run leaves the same as a
straight one.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cstool.foundation.errors import CheckpointError
from cstool.foundation.words import bytes_text
from cstool.model.graphs.adapters import adapter_scales
from cstool.model.params import written_states
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.machine.state import forms, save_state, state_values
from cstool.training.run.report.time_split import CHECKPOINT
from cstool.training.run.session import Saving, Session
from cstool.training.store import (
    ADAPTERS,
    SCALER,
    checkpoint_path,
    copy_states,
    delete_checkpoints,
    free_path,
    newest_checkpoints,
    open_checkpoint,
    read_index,
    register_checkpoint,
)

log = logging.getLogger("cstool")


def values_of(session: Session) -> Callable[[], dict[str, Any]]:
    """State of a run beside its arrays, as of now, once all updates have been applied."""
    params, memoryx, position = session.params, session.appliance.memoryx, session.position
    choices = {"grain_samples": session.cluster.plan.samples, "gemm": session.appliance.gemm.name, **forms(params)}
    if session.appliance.precision != FLOAT32:
        choices["precision"] = session.appliance.precision
    if memoryx.arrays.sparse_shapes():
        choices["sparse_kernels"] = session.chooser.as_dict()
    policy: dict[str, Any] = {"run": session.run_id} if params.keep_checkpoints else {}
    if session.patience is not None:
        policy["early_stopping"] = session.patience.as_dict()
    if params.tuning.adapters:
        base = {} if session.base is None else {"base": session.base}
        policy[ADAPTERS] = {"scales": adapter_scales(session.graph, params.tuning), **base}
    if (scaler := session.appliance.loss_scale.saved) is not None:
        policy[SCALER] = scaler._asdict()

    def values() -> dict[str, Any]:
        of_run: dict[str, Any] = {"model_name": params.model.name, "seed": params.seed, "params": params.resolved()}
        return {**state_values(memoryx, position, choices=choices, **of_run), **policy}

    return values


def commits(session: Session) -> bool:
    """Return whether the steps of a run are committed, so that checkpoints can be made of the commits."""
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
        session.saving = Saving(path, step, memoryx.commits.snapshot(path))
        return 0.0
    memoryx.drain()
    size_bytes = save_state(path, memoryx, values_of(session)())
    seconds = time.perf_counter() - began
    return _saved(session, path, step, size_bytes, seconds, seconds)


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
    # The time of the commit before it is time of training.
    waited = min(time.perf_counter() - began, seconds)
    note = f", {waited:.2f} s of them waited for"
    return _saved(session, saving.path, saving.step, size_bytes, seconds, waited, note)


def _saved(
    session: Session, path: Path, step: int, size_bytes: int, seconds: float, waited: float, note: str = ""
) -> float:
    """Note a complete checkpoint, and act on it; returns the seconds for which training stood still for all of this."""
    folder = session.params.model_dir
    register_checkpoint(folder, step, path, session.run_id if session.params.keep_checkpoints else None)
    log.info(
        f"Saved checkpoint {path} ({bytes_text(size_bytes)} in {seconds:.2f} s, "
        f"{size_bytes / seconds / 1e9:.2f} GB/s{note})"
    )
    session.saved_step = step
    session.checkpoints.append(str(path))
    began = time.perf_counter()
    _save_beside(session, path, step)
    _delete_oldest(session)
    policy_s = time.perf_counter() - began
    session.checkpoint_s += seconds + policy_s
    return session.times.move(waited + policy_s, CHECKPOINT)


def _save_beside(session: Session, checkpoint: Path, step: int, *, unless_there: bool = False) -> None:
    """Save parts of a checkpoint beside it, where one of `SaveCheckpointState` has its turn.

    The checkpoint of an interruption counts for none of them.

    Args:
        checkpoint: just saved, or gone on from
        unless_there: leave out files that exist already, from before the run was killed

    Raises:
        CheckpointError: it cannot be written
    """
    every = session.params.checkpoint.steps
    if not step or every is None or (step % every and step != session.last_step):
        return
    for asked in session.params.saved_states:
        path = checkpoint.with_name(asked.file_name(checkpoint.name))
        if -(-step // every) % asked.k == 0 and not (unless_there and path.exists()):
            path = free_path(path)
            size_bytes = copy_states(checkpoint, path, asked.checkpoint_states)
            log.info(f"Saved {written_states(asked.checkpoint_states)} of it as {path} ({bytes_text(size_bytes)})")


def _delete_oldest(session: Session) -> None:
    """Delete the oldest checkpoints of this run beyond the number to keep; checkpoints of other runs are left alone.

    One that cannot be deleted stays, with a warning: nothing is lost by it.
    """
    keep, folder = session.params.keep_checkpoints, session.params.model_dir
    if keep is None:
        return
    ours = [folder / entry.file for entry in read_index(folder) if entry.run == session.run_id]
    for path in ours[:-keep]:
        try:
            delete_checkpoints([path])
        except CheckpointError as error:
            log.warning(f"KeepNCheckpoints: {error.message}")
            continue
        log.info(f"Deleted checkpoint {path}: the last {keep} of this run stay (KeepNCheckpoints)")
        if str(path) in session.checkpoints:
            session.checkpoints.remove(str(path))


def catch_up(session: Session) -> None:
    """Finish the work of a run that was killed just after its latest checkpoint, from whose step it goes on."""
    params = session.params
    held = newest_checkpoints(params.model_dir, params.checkpoint.checkpoint_name)
    if not held:
        return
    path, step = held[-1].entry.path, held[-1].step
    if all(entry.file != path.name for entry in read_index(params.model_dir)):
        with open_checkpoint(path) as state:
            ours = params.keep_checkpoints and state.values().get("run") == session.run_id
        register_checkpoint(params.model_dir, step, path, session.run_id if ours else None)
    _save_beside(session, path, step, unless_there=True)
    _delete_oldest(session)
