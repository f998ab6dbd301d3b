"""Checkpoints of adapters: without the weights of their base, or with these; laid over their base.

The value `adapters` of a checkpoint has the `scales` by module, and, where the frozen weights are elsewhere, the
`base`: the path of its checkpoint, and a digest of the weights in it.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cstool.foundation.errors import CheckpointError, DamagedCheckpointError
from cstool.model.ir import Graph
from cstool.model.params.sections.tuning import is_of_adapter, is_of_head
from cstool.training.store.checkpoint_format import CheckpointDigest
from cstool.training.store.checkpoint_reader import CheckpointReader
from cstool.training.store.commit_record import read_record
from cstool.training.store.contiguous import Place
from cstool.training.store.file_layout import record_path
from cstool.training.store.saved_state import Array, Progress, SavedState, no_progress

ADAPTERS = "adapters"
"""key of the value"""


def weights_digest(state: CheckpointReader) -> str:
    """Digest of all weights of a checkpoint, by the checksums in the file, 64 hexadecimal digits."""
    digest = CheckpointDigest("")
    for key in sorted(name for name in state.tensor_names() if name.startswith("model.")):
        place = state.place(key)
        digest.add_tensor(key, place.shape, place.dtype, place.crc32)
    return digest.hex()


def base_value(path: Path, graph: Graph) -> dict[str, str] | None:
    """Value of a checkpoint that is the base of a model with adapters; None where it lacks a frozen weight.

    Raises:
        CheckpointError: it cannot be read
    """
    with CheckpointReader(path) as state:
        kept = {*state.tensor_names(), *(key for key in state.keys() if state.link_of(key) is not None)}  # noqa: SIM118
        if any(weight.frozen and f"model.{name}" not in kept for name, weight in graph.weights.items()):
            return None
        return {"path": str(path.absolute()), "digest": weights_digest(state)}


def adapters_of(state: SavedState) -> Mapping[str, Any] | None:
    """What a state says of its adapters; None where it has none.

    Raises:
        DamagedCheckpointError: it makes no sense
    """
    return _checked(state.path, state.values())


def _checked(path: Path, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found = values.get(ADAPTERS)
    if found is None:
        return None
    scales, base = (found.get("scales"), found.get("base")) if isinstance(found, dict) else (None, None)
    is_right = isinstance(scales, dict) and all(isinstance(scale, float) for scale in scales.values())
    if not is_right or not (base is None or (isinstance(base, dict) and base.keys() >= {"path", "digest"})):
        raise DamagedCheckpointError(f"{path}: {ADAPTERS} must be scales by module, and a base, got {found!r:.80}")
    return dict(found)


def open_base(path: Path) -> CheckpointReader | None:
    """Open the checkpoint with the weights that a saved state begins from: its base, or itself if it has no adapters.

    None where adapters have all weights beside them, and for a commit of MemoryX without adapters.

    Raises:
        CheckpointError: it cannot be read, or its base is not there, or another one
    """
    if os.path.lexists(record_path(path)):
        record = read_record(record_path(path))
        found = None if record is None else _checked(path, record.values)
        return None if found is None or found.get("base") is None else _open_base(path, found["base"])
    reader = CheckpointReader(path)
    with reader._or_closed():
        found = adapters_of(reader)
        if found is None:
            return reader
        reader.close()
        return None if found.get("base") is None else _open_base(path, found["base"])


def left_out_by(values: Mapping[str, Any], graph: Graph) -> frozenset[str]:
    """Weights that a checkpoint leaves out: the frozen ones, where its values say that a base has them."""
    has_base = values.get(ADAPTERS, {}).get("base") is not None
    return frozenset(name for name, weight in graph.weights.items() if weight.frozen) if has_base else frozenset()


def open_with_base(path: Path, opened: Callable[[Path], SavedState] = CheckpointReader) -> SavedState:
    """Open a checkpoint, adapters without the weights of their base together with these.

    Args:
        opened: opens the file

    Raises:
        CheckpointError: it cannot be read, or its base is not there, or another one
    """
    state = opened(path)
    with state._or_closed():
        found = adapters_of(state)
        base = None if found is None or not _are_alone(state) else found.get("base")
        return state if base is None else _Laid(state, _open_base(state.path, base))


def _are_alone(state: SavedState) -> bool:
    """Whether a state has no weights but adapters and the head beside them."""
    names = (name.removeprefix("model.") for name in state.tensor_names() if name.startswith("model."))
    return all(is_of_adapter(name) or is_of_head(name) for name in names)


def _open_base(path: Path, base: Mapping[str, str]) -> CheckpointReader:
    """Open the base of adapters: where it was, or else beside them."""
    there = Path(base["path"])
    beside = path.with_name(there.name)
    found = next((each for each in (there, beside) if each.is_file()), None)
    if found is None:
        raise CheckpointError(
            f"{path}: has adapters beside the weights of {there}, which is not there",
            f"{beside} is looked for, too",
        )
    reader = CheckpointReader(found)
    with reader._or_closed():
        if weights_digest(reader) != base["digest"]:
            raise CheckpointError(
                f"{path}: must be beside the weights that its adapters were trained with, {found} has others",
                "the file has changed since, or is another of that name",
            )
    return reader


class _Laid(SavedState):
    """Adapters laid over their base: what they lack is of the base. Both belong to it."""

    def __init__(self, state: SavedState, base: CheckpointReader) -> None:
        self.path, self.format_version = state.path, state.format_version
        self.is_bound, self.cstool_version = state.is_bound, state.cstool_version
        self._state, self._base = state, base
        own = set(state.tensor_names())
        self._of_base = [name for name in base.tensor_names() if name.startswith("model.") and name not in own]
        self._values = state.values()
        links = {key: base.link_of(key) for key in base.keys() if key not in own}  # noqa: SIM118
        self._links = {key: target for key, target in links.items() if target is not None}
        self._keys = [*state.tensor_names(), *self._of_base, *self._links, *self._values]

    @property
    def paths(self) -> tuple[Path, ...]:
        """See `SavedState.paths`."""
        return (*self._state.paths, *self._base.paths)

    def in_order(self, key: str) -> Any:
        """See `SavedState.in_order`."""
        return self._holder(key).in_order(key)

    def pieces(self, key: str) -> Iterator[Array]:
        """See `SavedState.pieces`."""
        return self._holder(key).pieces(key)

    def verify_all(self, progress: Progress = no_progress) -> None:
        """See `SavedState.verify_all`."""
        self._state.verify_all(progress)
        self._base.verify_all(progress)

    def close(self) -> None:
        """See `Opened.close`."""
        self._state.close()
        self._base.close()

    def _holder(self, key: str) -> SavedState:
        return self._base if key in self._links or key in self._of_base else self._state

    def _tensor(self, key: str) -> Place:
        holder = self._holder(key)
        return Place(holder.shape(key), holder.dtype(key), 0)

    def _fill(self, key: str, first: int, last: int, out: Array) -> None:
        self._holder(key).read(key, out, first, last)
