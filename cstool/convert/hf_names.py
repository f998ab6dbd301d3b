"""Where the weights of a decoder are in the tensors of a checkpoint of Hugging Face's, as its `Family` says it.

Beside the names, layouts differ. One tensor may hold query, key and value, or the gate too, one after the other or
head by head. GPT-2's matrices are (in, out) there. And where positions turn pairs of a head's elements, ours are
neighbours, 2i and 2i + 1, as the vendor's and GPT-J's; others there are half of the turned width apart, so rows of
query and key change places within their head.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cstool.convert.hf_family import Family, HfModel
from cstool.model.graphs import decoder
from cstool.model.ir import Graph
from cstool.model.params import GATED_NONLINEARITIES, DecoderParams, EncoderDecoderParams

Array = np.ndarray[Any, Any]

HEAD = "lm_head"
"""our name of the output layer"""
CLASSES = decoder.CLASSES
"""and of the output layer of a classifier"""
WORDS = "embedding_layer.word_embeddings"
"""and of the table of tokens"""
BUFFERS = re.compile(
    r"(.+\.)?(attn|attention)\.(bias|masked_bias)|(.+\.)?rotary(_emb(eddings)?)?\.(inv_freq|(cos|sin)_cached)"
    r"|.+\.embeddings\.(position_ids|token_type_ids)"
)
"""tensors, prefix left out, that the library fills in itself and only older ones saved"""
_PARTS = ("proj_q_dense_layer", "proj_k_dense_layer", "proj_v_dense_layer")
_TURNED = (*_PARTS[:2], "q_norm", "k_norm")
"""parts with a row for each element of a head that positions rotate"""
_LAYER = re.compile(r"(?<=layers\.)\d+")
_EXPERT = re.compile(r"(?<=\.experts\.experts\.)\d+")


@dataclass(frozen=True)
class Place:
    """Where a weight is.

    Args:
        tensor: its name, without prefix
        start: first of its rows there; of its columns, where it is transposed
        run: number of its rows that lie together there
        stride: rows from the first of a run to the first of the next
        transposed: whether its rows are columns there
        head_width: D, where the rows of each head are in the other order of pairs; 1 elsewhere
        rotary_width: number of rows of a head in that order
        offset: number that is added to the stored numbers
    """

    tensor: str
    start: int
    run: int
    stride: int
    transposed: bool = False
    head_width: int = 1
    rotary_width: int = 0
    offset: float = 0.0

    def runs(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the place there of rows `start` to `stop` of the weight: first row and number of rows of each run."""
        while start < stop:
            number, within = divmod(start, self.run)
            count = min(self.run - within, stop - start)
            yield self.start + number * self.stride + within, count
            start += count

    def from_there(self, rows: Array) -> Array:
        """Return rows of whole heads as they are here, float32."""
        if self.rotary_width:
            rows = _moved(rows, self.head_width, (2, self.rotary_width // 2))
        return rows + np.float32(self.offset) if self.offset else rows

    def to_there(self, rows: Array) -> Array:
        """Undo `from_there`."""
        if self.rotary_width:
            rows = _moved(rows, self.head_width, (self.rotary_width // 2, 2))
        return rows - np.float32(self.offset) if self.offset else rows


def places_of(family: Family, model: HfModel, graph: Graph) -> dict[str, Place]:
    """Return the place of each weight of a model of a family, in the order of the graph."""
    names = dict(family.names)
    if isinstance(model, DecoderParams) and model.is_parallel and model.norms_per_layer == 2:
        names |= family.norms_if_parallel or {}
    if isinstance(model, EncoderDecoderParams) and model.encoder_nonlinearity in GATED_NONLINEARITIES:
        names |= family.names_if_gated
    return {name: _place(family, names, model, graph, name) for name in graph.weights}


def tensor_shapes(
    family: Family, model: HfModel, places: Mapping[str, Place], graph: Graph
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor there."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, place in places.items():
        shape = graph.weights[name].shape
        rows = shape[0] + shapes.get(place.tensor, (0,))[-1 if place.transposed else 0]
        shapes[place.tensor] = (shape[1], rows) if place.transposed else (rows, *shape[1:])
    shapes.update(family.shapes(model))
    return shapes


def with_prefix(family: Family, tensor: str) -> str:
    """Return the whole name of a tensor."""
    heads = tuple(f"{family.names[head]}." for head in (HEAD, CLASSES) if head in family.names)
    return tensor if heads and tensor.startswith(heads) else f"{family.prefix}{tensor}"


def ties_of(family: Family) -> Mapping[str, str]:
    """Return the tensors of tied weights, which may be stored all the same -> the tensors that they equal."""
    if HEAD not in family.names or WORDS not in family.names:
        return family.ties
    return {f"{family.names[HEAD]}.weight": f"{family.names[WORDS]}.weight"}


def _moved(rows: Array, head_width: int, pairs: tuple[int, int]) -> Array:
    """Return rows of whole heads, the first ones of each as a matrix of so many rows and columns, transposed."""
    heads = rows.reshape(-1, head_width, *rows.shape[1:])
    width = pairs[0] * pairs[1]
    moved = heads.copy()
    turned = heads[:, :width].reshape(-1, *pairs, *rows.shape[1:]).swapaxes(1, 2)
    moved[:, :width] = turned.reshape(-1, width, *rows.shape[1:])
    return moved.reshape(rows.shape)


def _place(family: Family, names: Mapping[str, str], model: HfModel, graph: Graph, name: str) -> Place:
    stem, _, kind = name.rpartition(".")
    number, expert = _LAYER.search(stem), _EXPERT.search(stem)

    def in_layer(known: str) -> str:
        known = known if number is None else known.replace(".N.", f".{number[0]}.")
        return known if expert is None else known.replace(".E.", f".{expert[0]}.")

    ours = _EXPERT.sub("E", _LAYER.sub("N", stem, count=1))
    shape = graph.weights[name].shape
    if (whole := names.get(name)) is not None:
        if name in family.last_first:
            return Place(whole, 1, shape[0] - 1, -1)
        return Place(whole, 0, shape[0], shape[0])
    theirs = names[ours]
    tensor = f"{in_layer(theirs)}.{kind}"
    part = stem.rpartition(".")[2]
    turns = family.halves and part in _TURNED and model.position_embedding_type == "rotary"
    head_width = model.head_width if turns else 1
    rotary_width = (model.rotary_dim or 0) if turns else 0
    # Weights of the same name stand in the order of the table.
    together = [known for known in names if names[known] == theirs]
    if family.by_groups and part in _PARTS:
        per_group = model.num_heads // model.kv_heads
        before = (0, per_group, per_group + 1)[_PARTS.index(part)]
        run = (per_group if part == _PARTS[0] else 1) * model.head_width
        stride = (per_group + 2) * model.head_width
        return Place(tensor, before * model.head_width, run, stride, False, head_width, rotary_width)
    ahead = together[: together.index(ours)]
    start = sum(graph.weights[f"{in_layer(known)}.{kind}"].shape[0] for known in ahead)
    is_norm = ".norm" in stem or stem == "embedding_ln_f"
    transposed = family.is_transposed and number is not None and not is_norm and kind == "weight"
    offset = family.norm_offset if is_norm and kind == "weight" else 0.0
    return Place(tensor, start, shape[0], shape[0], transposed, head_width, rotary_width, offset)
