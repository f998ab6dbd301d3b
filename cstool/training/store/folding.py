"""Adapters folded into the weights beside them: W + scale B A in float64, rounded once, rows apart from each other.

With magnitudes m (DoRA) a row w of the sum becomes m w / |w|; of a table it is a column. Where a tied output layer has
an adapter, or the table that it shares, the two differ once they are folded: then the output layer is a weight of its
own. The output layer of a T5 has a factor on its logits only while it is tied; the factor goes into that weight.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1; Liu et al., "DoRA:
Weight-Decomposed Low-Rank Adaptation", 2024, equation 5.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from cstool.foundation.errors import CheckpointError
from cstool.model.params.sections.model import MODELS
from cstool.model.params.sections.tuning import EMBEDDING_WEIGHTS, LORA_WEIGHTS, MAGNITUDE, is_of_adapter
from cstool.training.store.adapters import adapters_of, open_with_base
from cstool.training.store.checkpoint_copy import write_checkpoint
from cstool.training.store.checkpoint_format import INDICES
from cstool.training.store.checkpoint_opening import open_checkpoint
from cstool.training.store.contiguous import Place
from cstool.training.store.saved_state import Array, Progress, SavedState, even_pieces, no_progress

LORA = "Lora"
"""callback of the params"""
_WEIGHT = ".weight"
_FOLDED_ROWS = 256
"""rows that are folded at a time"""
_TIE = "share_embedding_weights"


@dataclass(frozen=True)
class _Sum:
    """A folded weight.

    Args:
        source: key of the weight that the adapter is beside
        module: first part of the keys of the adapter; None where the weight is without one, and untied alone
        scale: of the product
        is_table: whether it is of a table, of which A lies turned
        has_magnitude: whether rows, or columns of a table, have lengths of their own
        factor: on all of it
    """

    source: str
    module: str | None = None
    scale: float = 0.0
    is_table: bool = False
    has_magnitude: bool = False
    factor: float = 1.0


def _sums_of(state: SavedState, scales: Mapping[str, float]) -> dict[str, _Sum]:
    """The folded weights of a state by key: weights with adapters, and output layers that are tied no longer."""
    names = set(state.tensor_names())
    links = {key: target for key in state.keys() if (target := state.link_of(key)) is not None}  # noqa: SIM118
    found: dict[str, _Sum] = {}
    for module, scale in scales.items():
        key, of = f"model.{module}{_WEIGHT}", f"model.{module}"
        is_table, has_magnitude = of + EMBEDDING_WEIGHTS[0] in names, of + MAGNITUDE in names
        found[key] = _Sum(links.get(key, key), of, scale, is_table, has_magnitude)
    for key, target in links.items():
        # Another table of the same name, as a T5 has, is tied to its adapter as well.
        is_head = key.split(".")[-2] != target.split(".")[-2]
        if key not in found and target in found and found[target].is_table and is_head:
            found[key] = _Sum(target)
    untied = found.keys() & links.keys()
    factor = _factor_of_tied(state.values()) if untied else 1.0
    return {key: replace(each, factor=factor) if key in untied else each for key, each in found.items()}


def untied_by(state: SavedState) -> str | None:
    """Name of the output layer's weight that is tied before the adapters of a state are folded in, and not after."""
    adapters = adapters_of(state)
    sums = {} if adapters is None else _sums_of(state, adapters["scales"])
    return next((key.removeprefix("model.") for key in sums if state.link_of(key) is not None), None)


class Folded(SavedState):
    """The weights of a state with its adapters folded in.

    Args:
        state: with the weights of the base; stays open when this is closed
        scales: by module
        values: in place of the state's

    Raises:
        CheckpointError: a weight with an adapter is sparse
    """

    def __init__(self, state: SavedState, scales: Mapping[str, float], values: Mapping[str, Any] | None = None) -> None:
        self.path, self.format_version = state.path, state.format_version
        self.is_bound, self.cstool_version = state.is_bound, state.cstool_version
        self._state = state
        self._sums = _sums_of(state, scales)
        names = state.tensor_names()
        sparse = (each.source for each in self._sums.values() if f"{each.source}{INDICES}" in names)
        if (first := next(sparse, None)) is not None:
            module = first.removeprefix("model.").removesuffix(_WEIGHT)
            raise CheckpointError(
                f"{state.path}: has adapters beside sparse weights, such as {module}, which they cannot be folded into",
                "a run with the same params evaluates them, and trains them on",
            )
        self._lengths: dict[str, Array] = {}
        """of the columns of tables with magnitudes, by key"""
        tensors = [name for name in names if name.startswith("model.") and not is_of_adapter(name)]
        self._values = state.values() if values is None else values
        links = {key: state.link_of(key) for key in state.keys()}  # noqa: SIM118
        tensors += [key for key in self._sums if links.get(key) is not None]
        self._links = {key: target for key, target in links.items() if target is not None and key not in self._sums}
        self._keys = [*tensors, *self._links, *self._values]

    def pieces(self, key: str) -> Iterator[Array]:
        """See `SavedState.pieces`."""
        if key not in self._sums:
            return self._state.pieces(key)
        return even_pieces(part.reshape(-1) for part in self._parts(key, self.in_order(key)))

    def in_order(self, key: str) -> Any:
        """See `SavedState.in_order`."""
        if key not in self._sums:
            return self._state.in_order(key)
        read = self._state.in_order(self._sums[key].source)

        def read_folded(out: Array, start: int, stop: int) -> None:
            read(out, start, stop)
            np.copyto(out, self._folded(key, start, stop, out), casting="same_kind")

        return read_folded

    def verify_all(self, progress: Progress = no_progress) -> None:
        """See `SavedState.verify_all`."""
        self._state.verify_all(progress)

    def close(self) -> None:
        """Leave the state open: another object owns it."""

    def _tensor(self, key: str) -> Place:
        source = self._sums[key].source if key in self._sums else key
        return Place(self._state.shape(source), self._state.dtype(source), 0)

    def _fill(self, key: str, first: int, last: int, out: Array) -> None:
        if key not in self._sums:
            self._state.read(key, out, first, last)
            return
        self._state.read(self._sums[key].source, out, first, last)
        np.copyto(out, self._folded(key, first, last, out), casting="same_kind")

    def _parts(self, key: str, read: Any) -> Iterator[Array]:
        """Yield a weight in ranges of rows, as a function reads them."""
        place = self._tensor(key)
        for start in range(0, place.rows, _FOLDED_ROWS):
            stop = min(start + _FOLDED_ROWS, place.rows)
            part = np.empty((stop - start, *place.shape[1:]), place.dtype)
            read(part, start, stop)
            yield part

    def _folded(self, key: str, first: int, last: int, rows: Array) -> Array:
        """Return some rows folded, float64, without a change of the given ones."""
        found = self._sums[key]
        total = self._sum(found, first, last, rows)
        if found.has_magnitude:
            lengths = self._column_lengths(key) if found.is_table else np.linalg.norm(total, axis=1)
            wanted = self._state.read(f"{found.module}{MAGNITUDE}").astype(np.float64)
            by_row = (wanted if found.is_table else wanted[first:last]) / lengths
            total *= by_row if found.is_table else by_row[:, None]
        return found.factor * total.reshape(rows.shape)

    def _sum(self, found: _Sum, first: int, last: int, rows: Array) -> Array:
        """Add scale B A to some rows. Term by term, so that a row does not depend on the others."""
        total = np.zeros((last - first, rows.size // max(1, len(rows))))
        if found.module is not None:
            ends = EMBEDDING_WEIGHTS[::-1] if found.is_table else LORA_WEIGHTS
            by_column, by_row = (f"{found.module}{end}" for end in ends)
            right = self._state.read(by_column).astype(np.float64)
            right = right.T if found.is_table else right
            left = self._state.read(by_row, None, first, last).astype(np.float64)
            for k in range(len(right)):
                total += left[:, k : k + 1] * right[k]
        return rows.reshape(total.shape) + found.scale * total

    def _column_lengths(self, key: str) -> Array:
        """Lengths of the columns of a table with its adapter."""
        if key not in self._lengths:
            found, first, squares = self._sums[key], 0, 0.0
            for part in self._parts(key, self._state.in_order(found.source)):
                squares = squares + np.square(self._sum(found, first, first + len(part), part)).sum(axis=0)
                first += len(part)
            self._lengths[key] = np.sqrt(squares)
        return self._lengths[key]


def merge_adapters(source: Path, destination: Path, progress: Progress = no_progress) -> int:
    """Write the weights of a checkpoint with its adapters folded in, as a checkpoint without state of a run.

    Returns:
        number of adapters

    Raises:
        CheckpointError: it has none, or cannot be read, or the new one cannot be written
    """
    with open_with_base(source, open_checkpoint) as state:
        adapters = adapters_of(state)
        if adapters is None:
            raise CheckpointError(f"{source}: must have adapters to fold into the weights, it has none")
        metadata: Any = state.values().get("__metadata__")
        values = {"__metadata__": _without_adapters(metadata, untied_by(state) is not None)} if metadata else {}
        write_checkpoint(destination, Folded(state, adapters["scales"], values), progress)
        return len(adapters["scales"])


def _without_adapters(metadata: Any, is_untied: bool) -> Any:
    """Metadata of a checkpoint with params that train all weights, of a model that is perhaps untied."""
    found = copy.deepcopy(metadata)
    with suppress(LookupError, TypeError):
        init = found[-1]["params"]["trainer"]["init"]
        init["callbacks"] = [each for each in init["callbacks"] if LORA not in each] or None
    if is_untied:
        _model_in(found)[_TIE] = False
    return found


def _model_in(metadata: Any) -> dict[str, Any]:
    """The section of the model in metadata, of DPO the policy's; an empty one where there is none."""
    with suppress(LookupError, TypeError):
        model = metadata[-1]["params"]["trainer"]["init"]["model"]
        found = model.get("policy_model", model)
        assert isinstance(found, dict)
        return found
    return {}


def _factor_of_tied(values: Mapping[str, Any]) -> float:
    """Factor on the logits of a tied model that it has no longer once it is untied; 1 where nothing is known of it."""
    section = _model_in(values.get("__metadata__"))
    try:
        tied, untied = (MODELS[section["name"]].model_validate({**section, _TIE: tie}) for tie in (True, False))
    except (LookupError, ValidationError):
        return 1.0
    return float(getattr(tied, "logits_scale", 1.0) / getattr(untied, "logits_scale", 1.0))
