"""Weights that a run never changes stream from their checkpoint: a file of MemoryX has no copy of them."""

from contextlib import suppress
from pathlib import Path

from cstool.foundation.errors import CheckpointError
from cstool.model.params.sections.tuning import has_adapters, is_magnitude
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.start import Start
from cstool.training.store import adapters_of, open_base, open_checkpoint
from cstool.training.store.base_file import BaseFile


def is_beside_base(path: Path) -> bool:
    """Whether a saved state has low-rank adapters alone, without magnitudes (DoRA), beside the weights of a base."""
    with suppress(CheckpointError), open_checkpoint(path) as state:  # errors are reported when it is loaded
        adapters = adapters_of(state)
        is_beside = adapters is not None and adapters.get("base") is not None
        return is_beside and not any(map(is_magnitude, state.tensor_names()))
    return False


def open_lent(kept: KeptModel, start: Start) -> BaseFile | None:
    """Open the checkpoint whose weights stream from where they lie; None where all are copied.

    Of a run that trains adapters these are all frozen weights, or none; of an evaluation all dense ones that are
    alike, not adapted by the checkpoint and not kept in bfloat16.

    Raises:
        CheckpointError: the checkpoint cannot be read, or the base of its adapters is not there, or another one
    """
    weights, trains = kept.graph.weights.values(), kept.optimizer is not None
    adapts = has_adapters(kept.graph.weights)
    if start.path is None or "model" not in start.states or (trains and not adapts):
        return None
    reader = open_base(start.path)
    if reader is None:
        return None
    with reader:
        if reader.path != start.path and not adapts:
            # The adapters are folded into the weights.
            return None
        copied = kept.sparsity.groups.keys() | (frozenset() if trains else kept.narrow.weights)
        wanted = {f"model.{each.name}": each.shape for each in weights if each.frozen or not trains}
        keys = set(reader.keys())
        lent = [
            name
            for name, shape in wanted.items()
            if name.removeprefix("model.") not in copied
            and name in keys
            and (reader.shape(name), reader.dtype(name)) == (shape, "float32")
        ]
        if not lent or (trains and len(lent) < len(wanted)):
            return None
        return BaseFile(reader, lent)
