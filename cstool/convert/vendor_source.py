"""A checkpoint of the vendor's, read as cstool's arrays. Its names and layouts are ours."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cstool.convert.source import CHUNK_BYTES, HINT, Array, Source, check_weights, row_ranges
from cstool.convert.vendor_reader import VendorReader
from cstool.foundation.errors import CheckpointError
from cstool.model.graphs.decoder import alibi_slopes
from cstool.model.ir import Graph
from cstool.model.params import DecoderParams, ModelParams

_STATES = ("exp_avg", "exp_avg_sq")
"""arrays that Adam and AdamW keep of each weight, under the same names there"""
_BUFFERS = re.compile(r".*(pe_helper\..*|\.inv_freq)|vit_model\.embedding_layer\.position_embeddings")
"""tensors of the model that follow from the params"""
_SLOPES = "embedding_layer.position_embed_helper.slopes"
"""slopes of ALiBi, (heads, 1): a tensor that follows from the params, too, unless it was changed"""
_SLOPES_TOLERANCE = 2.0**-8
"""relative: the precision of bfloat16, in which they may be stored"""
_OLDER_NAMES = {"embedding_layer.position_embeddings.weight": "embedding_layer.position_embeddings.embed.weight"}
_STATE = re.compile(r"optimizer\.state\.(\d+)\.(\w+)")
_MEMBER = re.compile(r"optimizer\.param_groups\.(\d+)\.params\.\d+")
_SHOWN = 3
_MOST_TOGETHER_BYTES = 4 * CHUNK_BYTES
"""most that is read at a time to decompress each chunk of the file once [bytes]"""


class VendorSource(Source):
    """A checkpoint of the vendor's, of a model; `values` are stated beside the weights. See `Source`.

    Raises:
        CheckpointError: it is damaged, or of another model
    """

    def __init__(self, path: Path, model: ModelParams, graph: Graph, values: Mapping[str, Any]) -> None:
        self.path = path
        self.notes = []
        self.links = {f"model.{alias}": f"model.{weight}" for alias, weight in graph.aliases.items()}
        self._reader: VendorReader = VendorReader(path)
        with self._or_closed():
            self._keys = self._find_weights(model, graph)
            stored = ((array, self._shape(key)) for array, key in self._keys.items())
            self.shapes = {array: shape for array, shape in stored if shape is not None}
            check_weights(self, graph)
            states = self._find_states(graph)
            self.shapes = {
                array: weight.shape
                for name, weight in graph.weights.items()
                for array in (f"model.{name}", *(f"optimizer.{name}.{state}" for state in _STATES if states))
            }
            self._keys |= states
            self.values = {**self._position(bool(states)), **values}
            if objects := self._reader.objects():
                shown = ", ".join(objects[:_SHOWN]) + (", ..." if len(objects) > _SHOWN else "")
                self.notes.append(f"left out since it is Python code, which is never run: {shown}")

    def rows(self, array: str, multiple: int = 1) -> Iterator[Array]:
        """See `Source.rows`."""
        key, shape = self._keys[array], self.shapes[array]
        together = min(self._reader.chunk_rows(key), shape[0])
        if multiple == 1 and together * 4 * math.prod(shape[1:]) <= _MOST_TOGETHER_BYTES:
            multiple = together
        for start, stop in row_ranges(shape, multiple):
            yield self._reader.rows(key, start, stop).reshape(stop - start, *shape[1:])

    def _find_weights(self, model: ModelParams, graph: Graph) -> dict[str, str]:
        """Return the key under which each weight is stored, by our names of them."""
        found: dict[str, str] = {}
        keys = self._reader.keys()
        for key in keys:
            if not key.startswith("model."):
                continue
            name = key.removeprefix("model.").removeprefix("model.")
            name = _OLDER_NAMES.get(name, name)
            name = graph.aliases.get(name, name)
            target = self._reader.target(key)
            if name in graph.weights:
                found.setdefault(f"model.{name}", target)
            elif name == _SLOPES and isinstance(model, DecoderParams) and model.position_embedding_type == "alibi":
                self._check_slopes(target, model.num_heads)
            elif not _BUFFERS.fullmatch(name) and self._reader.shape(target) is not None:
                raise CheckpointError(f"{self.path}: has the weight {name}, which this model lacks", HINT)
        return found

    def _shape(self, key: str) -> tuple[int, ...] | None:
        """Return the shape of a tensor; None where it is none. The kernel of a convolution is a matrix here."""
        shape = self._reader.shape(key)
        return shape if shape is None or len(shape) != 4 else (shape[0], math.prod(shape[1:]))

    def _check_slopes(self, key: str, heads: int) -> None:
        """Check that stored slopes equal the model's slopes here, before they are divided by a factor."""
        shape, expected = self._reader.shape(key), np.array(alibi_slopes(heads, 1.0))
        slopes = None if shape is None else self._reader.rows(key, 0, shape[0]).reshape(-1)
        if slopes is None or slopes.shape != expected.shape or not np.allclose(slopes, expected, _SLOPES_TOLERANCE, 0):
            raise CheckpointError(
                f"{self.path}: {_SLOPES} must be what ALiBi has for {heads} heads, it is not",
                "slopes that were trained or changed cannot be had",
            )

    def _find_states(self, graph: Graph) -> dict[str, str]:
        """Return the keys of the optimizer state by our names of it; none, and a note, where it does not fit.

        The vendor numbers the weights: first decaying ones in the order of the model, then the others. Without
        names, all else is compared: the groups, their sizes, and the shape of every array.
        """
        keys = self._reader.keys()
        present = {match[0] for key in keys if (match := _STATE.fullmatch(key))}
        if not present:
            return {}
        ordered = [array.removeprefix("model.") for array in self._keys]
        numbered = [name for decays in (True, False) for name in ordered if graph.weights[name].decays is decays]
        if not self._reader.order():
            return self._leave_out("the file does not say the order of the weights")
        sizes = Counter(int(match[1]) for key in keys if (match := _MEMBER.fullmatch(key)))
        decaying = sum(graph.weights[name].decays for name in ordered)
        if sizes != Counter({0: decaying, 1: len(ordered) - decaying}):
            return self._leave_out("its groups of weights are not those that decay and those that do not")
        found: dict[str, str] = {}
        for number, name in enumerate(numbered):
            for state in _STATES:
                key = f"optimizer.state.{number}.{state}"
                target = self._reader.target(key)
                if key not in present or self._shape(target) != graph.weights[name].shape:
                    return self._leave_out(f"it has no {key} of the shape of {name}")
                found[f"optimizer.{name}.{state}"] = target
        return found

    def _leave_out(self, why: str) -> dict[str, str]:
        self.notes.append(f"the optimizer state is left out: {why}")
        return {}

    def _position(self, has_states: bool) -> dict[str, Any]:
        """Return the step of the run. Its place in the data is not taken over: they begin afresh."""
        step = self._reader.number("global_step")
        if type(step) is not int or step < 0:
            self.notes.append("the step of the run is left out: the file does not have it as a number")
            return {}
        begun = {"dataloader": {"batches_streamed": 0, "batch_size": 0}} if has_states else {}
        return {"global_step": step, **begun}
