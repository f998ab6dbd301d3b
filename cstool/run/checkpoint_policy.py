"""What becomes of the checkpoints of a run: which stay, and what is saved beside them.

All of it follows from the step and from what the folder says, so a run that was interrupted leaves what a straight one
leaves.
"""

import logging
from pathlib import Path
from typing import Any

from cstool.errors import CheckpointError
from cstool.params import written_states
from cstool.run.session import Session
from cstool.store import (
    copy_states,
    delete_checkpoints,
    free_path,
    newest_checkpoints,
    open_checkpoint,
    read_index,
    register_checkpoint,
)
from cstool.words import bytes_text

log = logging.getLogger("cstool")


def policy_values(session: Session) -> dict[str, Any]:
    """Values of a checkpoint for the sake of later ones, as of now."""
    return {
        **({"run": session.run_id} if session.params.keep_checkpoints else {}),
        **({} if session.patience is None else {"early_stopping": session.patience.as_dict()}),
    }


def save_beside(session: Session, checkpoint: Path, step: int, *, unless_there: bool = False) -> None:
    """Save parts of a checkpoint beside it, where one of `SaveCheckpointState` has its turn.

    The checkpoint of an interruption counts for none of them.

    Args:
        session: the run
        checkpoint: just saved, or gone on from
        step: of it
        unless_there: leave out what is there already, from before the run was killed

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


def delete_oldest(session: Session) -> None:
    """Delete the oldest checkpoints of this run, but for as many as are to stay; those of other runs are left alone.

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
        if str(path) in session.result.checkpoints:
            session.result.checkpoints.remove(str(path))


def catch_up(session: Session) -> None:
    """Do what was left undone where a run was killed just after its latest checkpoint, from whose step it goes on."""
    params = session.params
    held = newest_checkpoints(params.model_dir, params.checkpoint.checkpoint_name)
    if not held:
        return
    path, step = held[-1].entry.path, held[-1].step
    if all(entry.file != path.name for entry in read_index(params.model_dir)):
        with open_checkpoint(path) as state:
            ours = params.keep_checkpoints and state.values().get("run") == session.run_id
        register_checkpoint(params.model_dir, step, path, session.run_id if ours else None)
    save_beside(session, path, step, unless_there=True)
    delete_oldest(session)
