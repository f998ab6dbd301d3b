"""Changes of a graph before it is compiled and trained: frozen weights, and low-rank adapters beside them.

A frozen weight streams forward, and once more for the delta where a trained weight lies before it; it has no gradient,
no update and no state of an optimizer; and its product's other input is not kept for the backward pass. Before the
first weight that is trained nothing runs backward at all.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from cstool.foundation.errors import ParamsError
from cstool.model.graphs.adapters import split_segments, with_adapters
from cstool.model.ir import Graph, Segment, verify
from cstool.model.params.sections.tuning import FIRST, Tuning

_LAYER = re.compile(r"\blayers\.(\d+)\.")


def tuned(graph: Graph, tuning: Tuning) -> Graph:
    """Return a graph with the frozen weights and adapters that are asked for.

    Raises:
        ParamsError: a choice is of no weight, a layer is none, or nothing is left to train
    """
    if not tuning:
        return graph
    changed = with_adapters(graph, tuning) if tuning.adapters else with_frozen(graph, tuning)
    found = _as_it_runs(_sharing(changed))
    verify(found)
    return found


def with_frozen(graph: Graph, tuning: Tuning) -> Graph:
    """Return a graph with the weights frozen that are chosen.

    Raises:
        ParamsError: a choice is of no weight, or all weights are frozen
    """
    choices, where = tuning.frozen, tuning.where
    embeddings = _embeddings(graph)
    for choice in choices:
        if not any(_is_chosen(choice, name, embeddings) for name in graph.weights):
            names = [name for name in graph.weights if not _LAYER.search(name) or ".layers.0." in name]
            shown = ", ".join(names[:3] + ["..."] + names[-2:] if len(names) > 6 else names)
            raise _error(f"{where}: must be of weights of {graph.name}, got {choice}", f"they are {shown}")
        layers = 1 + max((int(each[1]) for name in graph.weights if (each := _LAYER.search(name))), default=-1)
        if choice.startswith(FIRST) and int(choice.removeprefix(FIRST)) > layers:
            raise _error(f"{where}: must be of at most the {layers:,} layers of {graph.name}, got {choice}")

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
        raise _error(f"{where}: must leave weights of {graph.name} to train, got {','.join(choices)}")
    return found


def _sharing(graph: Graph) -> Graph:
    """Return a graph without the weights that stay equal to others: the reference of DPO is the base of its policy.

    So they are kept once. The reference runs first, so it is the first to use them.
    """
    same = {
        name: weight.begins_as
        for name, weight in graph.weights.items()
        if weight.frozen and weight.begins_as is not None and graph.weights[weight.begins_as].frozen
    }
    if not same:
        return graph
    kept, segments = set(same.values()), []

    def shared_at(segment: Segment) -> Callable[[int], Hashable]:
        return lambda repetition: tuple(segment.name_of(weight.name, repetition) in same for weight in segment.weights)

    for segment in split_segments(graph.segments, shared_at):
        own = {weight.name: weight for weight in segment.weights}
        renamed = {
            name: weight.begins_as
            for name, weight in own.items()
            if weight.begins_as is not None and segment.name_of(name) in same
        }
        named = {**same, **renamed}  # a weight of another segment has no number
        weights = [
            replace(weight, name=renamed.get(name, name), begins_as=None if name in renamed else weight.begins_as)
            for name, weight in own.items()
            if name in renamed or segment.name_of(name) not in kept
        ]
        ops = [replace(op, weights=tuple(named.get(name, name) for name in op.weights)) for op in segment.ops]
        segments.append(replace(segment, weights=tuple(weights), ops=tuple(ops)))
    aliases = {alias: weight for alias, weight in graph.aliases.items() if weight not in same}
    return replace(graph, segments=tuple(segments), aliases=aliases)


def _as_it_runs(graph: Graph) -> Graph:
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


def _error(message: str, hint: str | None = None) -> ParamsError:
    return ParamsError([(message, hint)])
