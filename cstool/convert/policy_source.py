"""Of a checkpoint of DPO the policy alone, as a decoder: the reference and the state of the optimizer are left out."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cstool.convert.source import Array, Source
from cstool.model.graphs.preference import POLICY, REFERENCE
from cstool.training.store import CheckpointReader

_STEP = "global_step"


def has_policy(path: Path) -> bool:
    """Whether a checkpoint of cstool's own is of DPO, or raise CheckpointError."""
    with CheckpointReader(path) as reader:
        return any(map(_is_of_policy, reader.tensor_names()))


class PolicySource(Source):
    """The weights of the policy of a source under the names that they have in the decoder alone. See `Source`.

    Args:
        source: with a policy; closed with this one
        metadata: of the decoder, in place of DPO's metadata
    """

    def __init__(self, source: Source, metadata: Mapping[str, Any]) -> None:
        self._reader: Source = source
        self.path = source.path
        self._names = {_in_decoder(name): name for name in source.shapes if _is_of_policy(name)}
        self.shapes = {name: source.shapes[there] for name, there in self._names.items()}
        self.links = {_in_decoder(a): _in_decoder(b) for a, b in source.links.items() if _is_of_policy(a)}
        step = {_STEP: source.values[_STEP]} if _STEP in source.values else {}
        self.values = {**step, "__metadata__": [dict(metadata)]}
        has_state = any(name.startswith("optimizer.") for name in source.shapes)
        left = [
            *(["the reference"] if any(name.startswith(f"model.{REFERENCE}") for name in source.shapes) else []),
            *(["the optimizer state"] if has_state else []),
        ]
        self.notes = [*source.notes, *([f"of DPO the policy is taken, without {' and '.join(left)}"] if left else [])]

    def rows(self, array: str, multiple: int = 1) -> Iterator[Array]:
        """See `Source.rows`."""
        return self._reader.rows(self._names[array], multiple)


def _is_of_policy(name: str) -> bool:
    return name.startswith(f"model.{POLICY}")


def _in_decoder(name: str) -> str:
    return f"model.{name.removeprefix(f'model.{POLICY}')}"
