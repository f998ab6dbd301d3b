"""A checkpoint of one decoder as one of DPO's policy and reference, and the other way round."""

from collections.abc import Callable, Iterator, Mapping

from cstool.foundation.errors import CheckpointError
from cstool.model.graphs.preference import POLICY, REFERENCE
from cstool.model.ir import Graph
from cstool.model.params import written_states
from cstool.model.params.sections.tuning import has_adapters, is_of_adapter
from cstool.training.store import INDICES, SavedState
from cstool.training.store.contiguous import Place
from cstool.training.store.saved_state import Array, Progress, no_progress


class _Renamed(SavedState):
    """The weights of a saved state under other names, without anything else but its values.

    Args:
        names: key -> key in the state
    """

    def __init__(self, state: SavedState, names: Mapping[str, str]) -> None:
        self.path, self.format_version = state.path, state.format_version
        self.is_bound, self.cstool_version = state.is_bound, state.cstool_version
        self._state, self._names = state, names
        self._values, self._links = state.values(), {}
        self._keys = [*names, *self._values]

    def in_order(self, key: str) -> Callable[[Array, int, int], object]:
        """See `SavedState.in_order`."""
        return self._state.in_order(self._names[key])

    def pieces(self, key: str) -> Iterator[Array]:
        """See `SavedState.pieces`."""
        return self._state.pieces(self._names[key])

    def verify_all(self, progress: Progress = no_progress) -> None:
        """See `SavedState.verify_all`."""
        self._state.verify_all(progress)

    def close(self) -> None:
        """Leave the state open: another object owns it."""

    def _tensor(self, key: str) -> Place:
        shape, dtype = self._state.shape(self._names[key]), self._state.dtype(self._names[key])
        return Place(shape, dtype, 0)

    def _fill(self, key: str, first: int, last: int, out: Array) -> None:
        self._state.read(self._names[key], out, first, last)


def as_this_model(state: SavedState, graph: Graph, *, states: frozenset[str], trains: bool) -> SavedState:
    """Return a saved state under the names of a model: policy and reference begin as a decoder, or that is the policy.

    Any other state is returned as it is.

    Raises:
        CheckpointError: more than weights is wanted of it
    """
    stored = {name for name in state.tensor_names() if name.startswith("model.")}
    if any(name.endswith(INDICES) for name in stored):
        return state
    begins = not has_adapters(stored)
    wanted = [name for name in graph.weights if not (begins and is_of_adapter(name))]
    plain = {name: name.removeprefix(POLICY).removeprefix(REFERENCE) for name in wanted}
    if all(name != short for name, short in plain.items()):
        names, what = {f"model.{name}": f"model.{short}" for name, short in plain.items()}, "one decoder"
    else:
        names, what = {f"model.{name}": f"model.{POLICY}{name}" for name in wanted}, "a policy"
        stored = {name for name in stored if not name.startswith(f"model.{REFERENCE}")}
    if set(names.values()) != stored:
        return state
    if trains and states != {"model"}:
        raise CheckpointError(
            f"{state.path}: is of {what}, of which a run can take the weights alone, "
            f"got {written_states(states)} to load",
            "--load_checkpoint_states model takes these",
        )
    return _Renamed(state, names)
