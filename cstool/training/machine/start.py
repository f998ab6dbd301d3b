"""The starting point of a run or of a model that answers, and its loading into MemoryX; with the vendor's log lines."""

import logging
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError
from cstool.foundation.progress import Progress
from cstool.foundation.words import bytes_text, counted
from cstool.model.params import ALL_STATES, Params, written_states
from cstool.model.params.sections.tuning import has_adapters
from cstool.training.machine.committed import Committed, Survey, survey
from cstool.training.machine.memoryx import MemoryX
from cstool.training.machine.ranks.link import ALONE, Link
from cstool.training.machine.state import Position, adopt_state, load_state
from cstool.training.store import (
    FILE_NAME,
    SHARD,
    CheckpointReader,
    CommittedShards,
    CommittedStore,
    SavedState,
    ShardSource,
    check_choices,
    committed_step,
    find_checkpoint,
    list_checkpoints,
    newest_checkpoints,
    open_checkpoint,
    open_with_base,
    shard_name,
    unbound_note,
    untied_by,
)
from cstool.training.store import Progress as BytesProgress
from cstool.training.store.checked_state import LOADER

log = logging.getLogger("cstool")
VERIFYING = "Verifying MemoryX"
_WEIGHTS = frozenset({"model"})


@dataclass(frozen=True)
class Start:
    """The starting point of a run."""

    checkpoint: Path | None
    """None for a commit of MemoryX, or for random weights"""
    committed: Committed | None
    """the commit of MemoryX that it is"""
    states: frozenset[str]
    """the parts of it to load"""
    looks: bool
    """whether it was looked for in model_dir"""
    found: Survey = Survey((), (), ())
    """state of MemoryX found on disk"""

    @property
    def resumes(self) -> bool:
        """Whether the same command would go on from the latest state in model_dir."""
        return self.looks and self.states == ALL_STATES

    @property
    def path(self) -> Path | None:
        """The file; None for random weights."""
        return self.checkpoint or (self.committed.path if self.committed else None)


def choose_start(
    params: Params, checkpoint: Path | None, states: frozenset[str] | None, *, trains: bool, link: Link = ALONE
) -> Start:
    """Find the starting point of a run.

    Args:
        checkpoint: a file, `DIR:STEP` or `DIR:latest`; None for the one in the params, or the latest state in model_dir
            if there is one
        states: the parts to load; None: for a given checkpoint as the params say, and all parts of one that
            the run goes on from: an interruption changes nothing
        link: to other ranks, which may have shards of MemoryX

    Raises:
        CheckpointError: there is nothing to evaluate, or the folder cannot be read
        DamagedCheckpointError: the commit record of its MemoryX is damaged
        StoreError: shards of MemoryX that are newer than all else are not all there
    """
    given = params.checkpoint_path if trains else params.eval_checkpoint_path
    if checkpoint is None and given is not None:
        checkpoint = given.now
    if checkpoint is not None:
        checkpoint = find_checkpoint(checkpoint)
    looks = checkpoint is None and params.checkpoint.autoload_last_checkpoint
    states = states or (ALL_STATES if looks else params.load_checkpoint_states)
    if (
        trains
        and checkpoint is not None
        and "model" in states
        and states != _WEIGHTS
        and _has_weights_alone(checkpoint)
    ):
        log.info(f"{checkpoint} has weights alone, no state of an optimizer.")
        states = _WEIGHTS
    if checkpoint is not None and "model" in states and params.tuning.adapters and _is_base(checkpoint):
        log.info(f"{checkpoint} has no adapters: they begin beside its weights.")
        states = _WEIGHTS
    if not trains:
        _require_model(states)
    committed = None
    with way_on_from_damage(params.model_dir / FILE_NAME, params.checkpoint.checkpoint_name):
        single = committed_step(params.model_dir / FILE_NAME)
    found = survey(params.model_dir, single, link)
    if looks:
        checkpoint, committed = _look_for_latest(params.model_dir, params.checkpoint.checkpoint_name, found)
        if checkpoint is None and committed is None and not trains:
            raise CheckpointError(
                f"{params.model_dir}: has no checkpoint to evaluate",
                "--model_dir or --checkpoint_path says where one is",
            )
    return Start(checkpoint, committed, states, looks, found)


def choose_checkpoints(params: Params, checkpoint: Path | None, states: frozenset[str] | None) -> list[Start]:
    """List the checkpoints to evaluate, all of which are there.

    Args:
        checkpoint: this one alone; None for the checkpoints of the params, or all in model_dir
        states: the parts to load; None: as the params say

    Raises:
        CheckpointError: there is none, or one is not there, or is none, or lacks the weights
    """
    states = states or params.load_checkpoint_states
    _require_model(states)
    folder, template = params.model_dir, params.checkpoint.checkpoint_name
    if checkpoint is not None:
        paths = [find_checkpoint(checkpoint)]
    elif params.eval_all_checkpoint_paths:
        paths = [find_checkpoint(path.now) for path in params.eval_all_checkpoint_paths]
    elif not params.checkpoint.autoload_last_checkpoint:
        raise CheckpointError(
            f"{params.path}: trainer.validate_all.ckpt_paths is missing, and autoload_last_checkpoint is false",
            "one of the two says which checkpoints to evaluate",
        )
    else:
        paths = [entry.path for entry in list_checkpoints(folder, template)]
    if not paths:
        store = folder / FILE_NAME
        copy = f"cstool checkpoint copy {shlex.quote(str(store))} {shlex.quote(str(folder))}/ makes one of its MemoryX"
        raise CheckpointError(
            f"{folder}: has no checkpoints to evaluate",
            copy if store.exists() else "--model_dir or trainer.validate_all.ckpt_paths says where some are",
        )
    for path in paths:
        with CheckpointReader(path):
            pass
    return [Start(path, None, states, looks=False) for path in paths]


def _has_weights_alone(checkpoint: Path) -> bool:
    """Whether a checkpoint has no state of a run, like one converted from another library's model."""
    with suppress(CheckpointError), CheckpointReader(checkpoint) as reader:  # errors are reported when it is loaded
        return LOADER not in reader.values() and not any(
            name.startswith("optimizer.") for name in reader.tensor_names()
        )
    return False


def _is_base(checkpoint: Path) -> bool:
    """Whether a checkpoint has no weights of adapters."""
    with suppress(CheckpointError), CheckpointReader(checkpoint) as reader:
        return not has_adapters(reader.tensor_names())
    return False


def folds_untied(path: Path | None) -> bool:
    """Whether a model has an output layer of its own once the adapters of a saved state are folded in."""
    with suppress(CheckpointError):  # errors are reported when it is loaded
        if path is not None:
            with open_with_base(path, open_checkpoint) as state:
                return untied_by(state) is not None
    return False


def _require_model(states: frozenset[str]) -> None:
    if "model" not in states:
        got = written_states(states)
        raise CheckpointError(f"--load_checkpoint_states: must have model in it for an evaluation, got {got}")


def restore(
    memoryx: MemoryX,
    params: Params,
    start: Start,
    progress: Progress,
    loaded: Callable[[str], object] = lambda weight: None,
) -> tuple[Position, dict[str, Any]]:
    """Load the starting point of a run into MemoryX, or random weights; shows the progress of verifying a file.

    Args:
        loaded: takes the name of each weight that comes from elsewhere, once it is there

    Returns:
        where the run is, and the values of the saved state beside its arrays, none for random weights

    Raises:
        CheckpointError: it cannot be read, or is of another model
        StoreError: likewise, of a MemoryX file
    """
    if start.path is None:
        memoryx.initialize(params.seed)
        log.info("No checkpoint was provided. Using randomly initialized model parameters.")
        return Position(), {}
    restored = _Restoring(memoryx, params, start, progress, loaded)
    found = restored.from_commit(start.committed) if start.committed else restored.from_checkpoint(start.path)
    if "model" in start.states:
        log.info("Model state found in checkpoint and loaded successfully.")
    return found


@dataclass(frozen=True)
class _Restoring:
    memoryx: MemoryX
    params: Params
    start: Start
    progress: Progress
    loaded: Callable[[str], object]

    def _load(self, reader: SavedState) -> tuple[Position, dict[str, Any]]:
        """Read a state into the store of this run, whose weights begin at random where that may lack some."""
        states, strict = self.start.states, not self.params.checkpoint.disable_strict_checkpoint_loading
        if not strict or states != ALL_STATES:
            self.memoryx.initialize(self.params.seed)
        return load_state(reader, self.memoryx, states=states, strict=strict, loaded=self.loaded)

    def from_checkpoint(self, checkpoint: Path) -> tuple[Position, dict[str, Any]]:
        log.info(f"Loading weights from checkpoint {checkpoint}")
        try:
            with open_with_base(checkpoint) as reader:
                if (note := unbound_note(reader)) is not None:
                    log.warning(note)
                return self._load(reader)
        except CheckpointError as error:
            if not self.start.looks or is_whole(checkpoint):
                raise
            raise CheckpointError(error.message, _way_on(checkpoint, self.params.checkpoint.checkpoint_name)) from error

    def from_commit(self, committed: Committed) -> tuple[Position, dict[str, Any]]:
        """Go on in the files of MemoryX where their last commit is, or read that into the stores of this run."""
        file, path = self.memoryx.arrays.file, committed.path
        log.info(f"Loading weights from MemoryX {path}")
        with way_on_from_damage(path, self.params.checkpoint.checkpoint_name, is_ours=self._is_ours(path)):
            if file is not None and file.record is not None:
                file.verify(self._reading())
                self.progress.finish(VERIFYING)
                position = adopt_state(file, self.memoryx)
                self.memoryx.elsewhere.adopt()
                check_choices(path, file.record.values)
                return position, {key: value for key, value in file.record.values.items() if key != SHARD}
            with self._opened(committed) as reader:
                began = time.perf_counter()
                reader.verify_all(self._reading())
                self.progress.finish(VERIFYING)
                if max(committed.nodes, self.memoryx.arrays.shards.nodes) > 1:
                    size_bytes, seconds = sum(map(reader.nbytes, reader.tensor_names())), time.perf_counter() - began
                    log.info(
                        f"Streaming {bytes_text(size_bytes)} from {counted(committed.nodes, 'file')} of MemoryX to "
                        f"{counted(self.memoryx.arrays.shards.nodes, 'node')} takes about {seconds:.1f} s, as "
                        "verifying it did."
                    )
                return self._load(reader)

    def _opened(self, committed: Committed) -> SavedState:
        """Open a commit for reading, wherever its files are."""
        if committed.nodes == 1:
            return open_with_base(committed.path, partial(CommittedStore, is_ours=self._is_ours(committed.path)))
        sources: list[ShardSource] = []
        with ExitStack() as undo:
            for node, rank in enumerate(committed.holders):
                path = committed.folder / shard_name(node, committed.nodes)
                source: ShardSource = (
                    self.memoryx.elsewhere.open_shard(rank, path, committed.step)
                    if rank
                    else CommittedStore(path, at_step=committed.step, is_ours=self._is_ours(path))
                )
                undo.callback(source.close)
                sources.append(source)
            undo.pop_all()
        return CommittedShards(sources)

    def _is_ours(self, path: Path) -> bool:
        file = self.memoryx.arrays.file
        return file is not None and file.path == path

    def _reading(self) -> BytesProgress:
        """Progress of the reading of a MemoryX file."""

        def advance(done_bytes: int, total_bytes: int) -> None:
            if done_bytes and not started:
                self.progress.start(VERIFYING, total_bytes)
                started.append(True)
            self.progress.advance(VERIFYING, done_bytes, f"{done_bytes / 1e9:.1f} of {total_bytes / 1e9:.1f} GB")

        started: list[bool] = []
        return advance


def _look_for_latest(folder: Path, template: str, found: Survey) -> tuple[Path | None, Committed | None]:
    """Latest checkpoint of a folder by its content, or the newest commit of MemoryX if that is not older."""
    naming = template.replace("{step}", "(step)")
    log.info(
        f'Checkpoint autoloading is enabled. Looking for latest checkpoint in "{folder}" directory with the following '
        f"naming convention: `{naming.replace('.mdl', '(_timestamp)?.mdl')}`."
    )
    held = newest_checkpoints(folder, template)
    for checkpoint in held:
        if checkpoint.is_misnamed:
            named = f"{checkpoint.entry.path} is named for step {checkpoint.entry.step}"
            log.warning(f"{named} and holds step {checkpoint.step}: what it holds counts.")
    latest = held[-1] if held else None
    committed = found.commits[-1] if found.commits else None
    newest = max(-1 if latest is None else latest.step, -1 if committed is None else committed.step)
    for broken in found.broken:
        if broken.step > newest:
            raise broken.error()
    if committed is not None and (latest is None or latest.step <= committed.step):
        shards = "" if committed.nodes == 1 else f", the first of {committed.nodes} shards"
        log.info(f'Found MemoryX at "{committed.path}"{shards}, committed at step {committed.step}.')
        return None, committed
    if latest is None:
        log.info(f'No checkpoints were found in "{folder}".')
        return None, None
    log.info(f'Found latest checkpoint at "{latest.entry.path}".')
    return latest.entry.path, None


@contextmanager
def way_on_from_damage(path: Path, template: str, *, is_ours: bool = False) -> Iterator[None]:
    """Add to the error of a damaged MemoryX file another state to start from: the newest one that is whole.

    Args:
        is_ours: whether this process holds its lock
    """
    try:
        yield
    except DamagedCheckpointError as error:
        raise DamagedCheckpointError(error.message, _way_on_without(path, template, is_ours)) from error


def _way_on_without(path: Path, template: str, is_ours: bool) -> str:
    older = None
    with suppress(CheckpointError), CommittedStore(path, older=True, is_ours=is_ours) as reader:
        reader.verify_all()
        older = reader.record.step
    whole = next((e for e in reversed(list_checkpoints(path.parent, template)) if is_whole(e.path)), None)
    quoted = shlex.quote(str(path))
    delete = f"cstool checkpoint delete {quoted}"
    if older is not None and (whole is None or whole.step < older):
        copy = shlex.quote(str(path.with_name(template.replace("{step}", str(older)))))
        return (
            f"the commit before it, of step {older}, is whole: cstool checkpoint copy --older {quoted} {copy} makes a "
            f"checkpoint of it, and after {delete} the same command goes on from there"
        )
    if whole is not None:
        return f"after {delete}, --checkpoint_path {shlex.quote(str(whole.path))} goes on from the newest that is whole"
    return f"nothing here is whole: after {delete} the same command starts afresh"


def _way_on(damaged: Path, template: str) -> str:
    """Name a state to start from instead of the latest checkpoint of a folder."""
    others = [entry.path for entry in list_checkpoints(damaged.parent, template) if entry.path != damaged]
    whole = next((path for path in reversed(others) if is_whole(path)), None)
    if whole is None:
        return "no other checkpoint here is whole: choose another --model_dir to start fresh"
    return f"go on from the newest one that is whole: --checkpoint_path {shlex.quote(str(whole))}"


def is_whole(checkpoint: Path) -> bool:
    """Return whether a checkpoint is one, and not damaged."""
    with suppress(CheckpointError), CheckpointReader(checkpoint) as reader:
        reader.verify_all()
        return True
    return False
