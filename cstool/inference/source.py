"""The two parts of an encoder-decoder: the one runs once for a source, the other for each new token.

The first part ends with the keys and values that the decoder's layers attend to. They lie in the cache of the second,
a place for each source; sequences that go on from one source read the same place.
"""

from collections.abc import Sequence

import numpy as np

from cstool.inference.memory import KvCache
from cstool.inference.passes import whole_passes
from cstool.inference.walk import Walk, Walks
from cstool.model.graphs import TARGETS
from cstool.model.ir import Graph, Op, Segment
from cstool.training.kernels.cached_attention import News


def parts_of(graph: Graph) -> tuple[Graph, Graph]:
    """Cut the graph of an encoder-decoder in two: the ops that follow from the source alone, and the rest.

    Tensors of the first part that the second reads are its inputs.
    """
    of_target = {TARGETS}
    source: list[Op] = []
    target: list[Op] = []
    for op in graph.ops:
        is_target = not of_target.isdisjoint(op.inputs)
        (target if is_target else source).append(op)
        if is_target:
            of_target.update(op.outputs)
    return _part(graph, source), _part(graph, target)


def _part(graph: Graph, ops: Sequence[Op]) -> Graph:
    """The ops alone, with the tensors and weights that they name."""
    made = {name for op in ops for name in op.outputs}
    read = dict.fromkeys(name for op in ops for name in op.inputs if name not in made)
    weights = dict.fromkeys(name for op in ops for name in op.weights)
    segment = Segment(
        tuple(ops),
        tuple(tensor for name, tensor in graph.tensors.items() if name in made),
        tuple(weight for name, weight in graph.weights.items() if name in weights),
    )
    losses = tuple(loss for loss in graph.losses if loss.name in made)
    return Graph(graph.name, tuple(graph.tensors[name] for name in read), (segment,), losses)


def walk_from(model: Walks, sources: Sequence[Sequence[int]], beams: int, capacity: int) -> Walk:
    """Read sources, and return a walk over the decoder for sequences that go on from them.

    Args:
        model: an encoder-decoder
        sources: tokens of each, at least one
        beams: sequences for each source
        capacity: most tokens of a sequence
    """
    of_source, of_target = parts_of(model.graph)
    lengths = [len(tokens) for tokens in sources]
    walk = model.walk(len(sources) * beams, capacity, of_target, sources=(len(sources), max(lengths)))
    assert isinstance(walk.memory, KvCache)
    walk.memory.source_tokens[:] = lengths
    reading = model.walk(len(sources), max(lengths), of_source)
    reading.keeps = walk.memory.from_sources
    for numbers in whole_passes(lengths):
        ids = np.concatenate([sources[number] for number in numbers]).astype(np.int32)
        inputs = {"input_ids": ids, "attention_mask": np.ones(len(ids), np.int32)}
        reading.read(inputs, News.of(numbers, [lengths[number] for number in numbers]))
    walk.passes = reading.passes
    return walk
