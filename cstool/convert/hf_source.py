"""A model with Hugging Face's names in safetensors files, read as cstool's arrays."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from cstool.convert.gguf_reader import GgufReader
from cstool.convert.hf_family import Family, HfModel, HfPart
from cstool.convert.hf_keys import text
from cstool.convert.hf_names import BUFFERS, HEAD, WORDS, places_of, tensor_shapes, ties_of
from cstool.convert.safetensors_reader import SafetensorsReader
from cstool.convert.source import HINT, Array, Source, row_ranges, written
from cstool.foundation.errors import CheckpointError
from cstool.model.ir import Graph

_TABLES = {
    WORDS: ("vocab_size",),
    HEAD: ("vocab_size",),
    "embedding_layer.position_embeddings.embed": ("max_position_embeddings", "n_positions"),
    "encoder_embeddings.word_embeddings": ("src_vocab_size", "vocab_size"),
}
"""tensors, by our names, whose rows a key counts: the key of the params, and of config.json where it has another"""


Reader = SafetensorsReader | GgufReader
_IS_OUTPUT = re.compile(r".+\.decoder\.weight").fullmatch
_TIE = ("share_embedding_weights", "tie_word_embeddings")


def config_path(path: Path) -> Path:
    """Path of the config.json of a model, if it has one."""
    return path / "config.json" if path.is_dir() else path.with_name("config.json")


def _newer(tensor: str) -> str:
    """Return the name that a tensor has today: the first BERT called the weights of norms gamma and beta."""
    stem, _, kind = tensor.rpartition(".")
    newer = {"gamma": "weight", "beta": "bias"}.get(kind) if stem.endswith("LayerNorm") else None
    return f"{stem}.{newer}" if newer else tensor


class HfSource(Source):
    """A folder, an index or a file of safetensors with Hugging Face's names, of a model. See `Source`.

    Args:
        reader: of other files that have such tensors; None for safetensors
        described_by: file that says which model it is; None for config.json, if that is there

    Raises:
        CheckpointError: they are damaged, or of another model
    """

    def __init__(
        self,
        path: Path,
        family: Family,
        model: HfModel,
        graph: Graph,
        values: Mapping[str, Any],
        reader: Reader | None = None,
        described_by: str | None = None,
    ) -> None:
        self.path = path
        self.values = values
        self.notes = []
        self.links = {f"model.{alias}": f"model.{weight}" for alias, weight in graph.aliases.items()}
        self.shapes = {f"model.{name}": weight.shape for name, weight in graph.weights.items()}
        self._described_by = described_by or ("config.json" if config_path(path).exists() else None)
        self._places = places_of(family, model, graph)
        self._family = family
        self._reader: Reader = reader or SafetensorsReader(path)
        with self._or_closed():
            self._names = self._find_names()
            self._check(tensor_shapes(family, model, self._places, graph), model)

    def rows(self, array: str, multiple: int = 1) -> Iterator[Array]:
        """See `Source.rows`."""
        place, shape = self._places[array.removeprefix("model.")], self.shapes[array]
        tensor = self._names[place.tensor]
        for start, stop in row_ranges(shape, max(multiple, place.head_width)):
            if place.transposed:
                yield np.ascontiguousarray(self._reader.columns(tensor, place.start + start, place.start + stop).T)
                continue
            runs = place.runs(start, stop)
            parts = [self._reader.rows(tensor, first, first + count, shape[1:]) for first, count in runs]
            yield place.from_there(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _find_names(self) -> dict[str, str]:
        """Return the whole names of the tensors by their names without prefix."""
        names: dict[str, str] = {}
        for name in self._reader.names():
            tensor = _newer(name.removeprefix(self._family.prefix))
            if BUFFERS.fullmatch(tensor):
                continue
            if tensor in names:
                raise CheckpointError(f"{self.path}: must have {tensor} once, got {names[tensor]} and {name}")
            names[tensor] = name
        return names

    def _check(self, shapes: Mapping[str, tuple[int, ...]], model: HfModel) -> None:
        """Compare names, shapes and dtypes with the model."""
        tables = {
            f"{self._family.names[ours]}.weight": keys
            for ours, keys in _TABLES.items()
            if ours in self._family.names and hasattr(model, keys[0])
        }
        hint = f"{self._described_by} describes a model with other tensors" if self._described_by else HINT
        ties, passed = ties_of(self._family), self._family.passed_tensors
        for tensor, shape in shapes.items():
            if tensor not in self._names:
                is_tied = tensor == self._output and f"{self._said(_TIE, True)} takes the table of tokens in its place"
                raise CheckpointError(f"{self.path}: lacks the tensor {tensor} of this model", is_tied or hint)
            found = self._reader.shape(self._names[tensor])
            if found != shape:
                key = tables.get(tensor)
                if key is not None and found[1:] == shape[1:]:
                    hint = f"the table has another length: {self._said(key, found[0])} fits it"
                raise CheckpointError(
                    f"{self.path}: {tensor} must be {written(shape)}, as in this model, got {written(found)}", hint
                )
            self._reader.check_dtype(self._names[tensor])
        left_out: list[str] = []
        for tensor in self._names:
            if tensor in shapes:
                continue
            if tensor in ties:
                self._check_tie(tensor, ties[tensor])
            elif tensor.startswith(passed) and passed:
                left_out.append(tensor)
            else:
                raise CheckpointError(f"{self.path}: has the tensor {tensor}, which this model lacks", hint)
        if left_out:
            self.notes.append(f"left out, since this model has no such part: {', '.join(left_out)}")

    def _check_tie(self, stored: str, words: str) -> None:
        """Check that a tied tensor that is stored all the same equals the tensor that it is tied to."""
        head, table = self._names[stored], self._names[words]
        shape = self._reader.shape(table)
        same = self._reader.shape(head) == shape
        if same:
            self._reader.check_dtype(head)
        read = self._reader.rows
        ranges = row_ranges(shape) if same else iter(())
        if not same or not all(np.array_equal(read(head, *place), read(table, *place)) for place in ranges):
            raise CheckpointError(
                f"{self.path}: {stored} must equal {words}, since the model ties them, it does not",
                f"{self._said(_TIE, False)} keeps both" if stored == self._output else None,
            )

    @property
    def _output(self) -> str | None:
        """Name of the output layer's matrix, where it may be tied to the table of tokens."""
        names, ties = self._family.names, ties_of(self._family)
        own = f"{names[HEAD]}.weight" if HEAD in names else next(filter(_IS_OUTPUT, ties), None)
        return own if own in ties else None

    def _said(self, keys: tuple[str, ...], value: int) -> str:
        """Return a value of the key that describes the model: of the params, or of config.json where there is one."""
        read = [key.theirs for key in self._family.keys if key.theirs in keys]
        key, where = (read[0], self._described_by) if self._described_by and read else (keys[0], "the params")
        return f"{key}: {text(value)} in {where}"


class HfPartsSource(Source):
    """Models of Hugging Face's that are one here, each in a folder of its own. See `Source`.

    Raises:
        CheckpointError: one of them is damaged, or of another model; or their copies of one weight here differ
    """

    def __init__(self, path: Path, parts: Sequence[HfPart], values: Mapping[str, Any]) -> None:
        self.path, self.values = path, values
        self.shapes, self.links, self.notes = {}, {}, []
        self._of: dict[str, HfSource] = {}
        with ExitStack() as stack:
            for part in parts:
                source = HfSource(path / part.folder, part.family, part.model, part.graph, values)
                stack.callback(source.close)
                self.shapes |= source.shapes
                self.links |= source.links
                self.notes += [f"{part.folder}: {note}" for note in source.notes]
                for array in source.shapes:
                    other = self._of.setdefault(array, source)
                    if other is not source:
                        self._check_same(array, other, source)
            self._stack = stack.pop_all()

    def rows(self, array: str, multiple: int = 1) -> Iterator[Array]:
        """See `Source.rows`."""
        return self._of[array].rows(array, multiple)

    def close(self) -> None:
        """See `Opened.close`."""
        self._stack.close()

    def _check_same(self, array: str, one: HfSource, other: HfSource) -> None:
        pairs = zip(one.rows(array), other.rows(array), strict=True)
        if not all(np.array_equal(here, there) for here, there in pairs):
            raise CheckpointError(
                f"{other.path}: must have the weights of {one.path}, since the model has one encoder for both, "
                f"{array.removeprefix('model.')} is another",
                "use_biencoder: true in the params keeps both",
            )
