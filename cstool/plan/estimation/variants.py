"""Hypothetical changes of the graph before it is compiled: frozen weights, and low-rank adapters beside them.

The compiler does the rest, as it does for every frozen weight: it streams forward, and once more for the delta where
a trained weight lies before it; it has no gradient, no update and no state of an optimizer; and its product's other
input is not kept for the backward pass. Before the first weight that is trained nothing runs backward at all.

A run trains all weights (but the reference of DPO): these are for estimates alone.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021, section 4.1: beside a frozen W of
(outputs, inputs) the product B A, A of (rank, inputs) and B of (outputs, rank), times a constant. Names of weights are
as in the vendor's release 2.10: `lora_A` and `lora_B` beside the layer's.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from cstool.foundation.errors import EstimateError
from cstool.model.graphs.adapters import Adapters, parse_adapters, split_segments, with_adapters
from cstool.model.ir import Graph, Segment

FIRST = "first:"
"""prefix of a choice of layers by number: the first N layers, and the embeddings before them"""
EXAMPLE = "such as first:16 for embeddings and 16 layers, or '*ffn*,*embedding*' for names of weights"
_LAYER = re.compile(r"\blayers\.(\d+)\.")


@dataclass(frozen=True)
class Variants:
    """Changes to the graph of the params.

    Args:
        frozen: choices of weights that stay as they are, see `parse_frozen`
        adapters: beside layers all of whose weights, and all others, stay as they are; None for none
    """

    frozen: tuple[str, ...] = ()
    adapters: Adapters | None = None

    def __call__(self, graph: Graph) -> Graph:
        """Return the graph with them.

        Raises:
            EstimateError: a choice is of no weight, a layer is none, or nothing is left to train
        """
        if self.adapters is not None:
            return as_it_runs(with_adapters(graph, self.adapters))
        return as_it_runs(with_frozen(graph, self.frozen)) if self.frozen else graph


def parse_frozen(text: str) -> tuple[str, ...]:
    """Return the choices of `--frozen`: patterns of names of weights, `*` for anything, and `first:N`.

    >>> parse_frozen("first:16, *ffn*")
    ('first:16', '*ffn*')

    Raises:
        EstimateError: one is empty, or `first:` is followed by no number of layers
    """
    found = tuple(part.strip() for part in text.split(","))
    for part in found:
        if not part or part.startswith(FIRST) and not _is_count(part.removeprefix(FIRST)):
            raise EstimateError(f"--frozen: must be patterns of weights, or first:N, got {text}", EXAMPLE)
    return found


def make_variants(frozen: str | None, adapters: str | None) -> Variants | None:
    """Return the requested changes; None where there are none.

    Args:
        frozen: see `parse_frozen`
        adapters: see `parse_adapters`

    Raises:
        EstimateError: one is not written as it should be, or both are asked for
    """
    if frozen is None and adapters is None:
        return None
    if frozen is not None and adapters is not None:
        raise EstimateError("--frozen: must be left out beside --adapters, which freeze all weights but their own")
    return Variants(
        () if frozen is None else parse_frozen(frozen), None if adapters is None else parse_adapters(adapters)
    )


def _is_count(text: str) -> bool:
    return text.isdecimal() and int(text) > 0


def with_frozen(graph: Graph, choices: Sequence[str]) -> Graph:
    """Return a graph with the weights frozen that any of the choices is of.

    Args:
        choices: see `parse_frozen`

    Raises:
        EstimateError: a choice is of no weight, or all weights are frozen
    """
    embeddings = _embeddings(graph)
    for choice in choices:
        if not any(_is_chosen(choice, name, embeddings) for name in graph.weights):
            names = [name for name in graph.weights if not _LAYER.search(name) or ".layers.0." in name]
            shown = ", ".join(names[:3] + ["..."] + names[-2:] if len(names) > 6 else names)
            raise EstimateError(f"--frozen: must be of weights of {graph.name}, got {choice}", f"they are {shown}")
        layers = 1 + max((int(each[1]) for name in graph.weights if (each := _LAYER.search(name))), default=-1)
        if choice.startswith(FIRST) and int(choice.removeprefix(FIRST)) > layers:
            raise EstimateError(f"--frozen: must be of at most the {layers:,} layers of {graph.name}, got {choice}")

    def frozen_at(segment: Segment) -> Callable[[int], Hashable]:
        return lambda repetition: tuple(
            weight.frozen or _is_any(choices, segment.name_of(weight.name, repetition), embeddings)
            for weight in segment.weights
        )

    segments = []
    for segment in split_segments(graph.segments, frozen_at):
        weights = (
            replace(weight, frozen=weight.frozen or _is_any(choices, segment.name_of(weight.name), embeddings))
            for weight in segment.weights
        )
        segments.append(replace(segment, weights=tuple(weights)))
    found = replace(graph, segments=tuple(segments))
    if not found.trained_count:
        raise EstimateError(f"--frozen: must leave weights of {graph.name} to train, got {','.join(choices)}")
    return found


def as_it_runs(graph: Graph) -> Graph:
    """Return a graph whose repetitions are alike in the ops that run forward alone: other repetitions are split off.

    The first layer with something to train has no delta to pass on; the next ones have.
    """
    frozen, made = graph.frozen_ops, graph.frozen_tensors

    def role_at(segment: Segment) -> Callable[[int], Hashable]:
        names = [op.name for op in segment.ops]
        reads = list(dict.fromkeys(name for op in segment.ops for name in op.inputs))
        return lambda repetition: (
            tuple(segment.name_of(name, repetition) in frozen for name in names),
            tuple(segment.name_of(name, repetition) in made for name in reads),
        )

    return replace(graph, segments=tuple(split_segments(graph.segments, role_at)))


def _embeddings(graph: Graph) -> frozenset[str]:
    """Names of the weights before the first layer."""
    found: list[str] = []
    for segment in graph.segments:
        if any(_LAYER.search(segment.name_of(weight.name)) for weight in segment.weights):
            break
        found += (weight.name for weight in segment.weights)
    return frozenset(found)


def _is_any(choices: Iterable[str], name: str, embeddings: frozenset[str]) -> bool:
    return any(_is_chosen(choice, name, embeddings) for choice in choices)


def _is_chosen(choice: str, name: str, embeddings: frozenset[str]) -> bool:
    """Say whether a choice is of a weight, its number written out."""
    if not choice.startswith(FIRST):
        return fnmatchcase(name, choice)
    layer = _LAYER.search(name)
    return name in embeddings if layer is None else int(layer[1]) < int(choice.removeprefix(FIRST))
