"""Whether an artifact belongs to a model."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from cstool.foundation.errors import ArtifactError
from cstool.model.ir._artifact import Artifact
from cstool.model.ir._graph import Graph, Segment


def require_model(artifact: Artifact, graph: Graph, where: str = "artifact") -> None:
    """Check that an artifact was compiled from a model.

    Args:
        where: beginning of an error

    Raises:
        ArtifactError: it was compiled from another one; names the first difference
    """
    if artifact.graph != graph:
        raise ArtifactError(
            f"{where}: must be of this model, got one with {_first_difference(artifact.graph, graph)}",
            "compile this model",
        )


def _first_difference(compiled: Graph, own: Graph) -> str:
    if compiled.name != own.name:
        return _instead("model", compiled.name, own.name)
    if compiled.inputs != own.inputs:
        return _named("input", compiled.inputs, own.inputs)
    if len(compiled.segments) != len(own.segments):
        return _instead("segments", len(compiled.segments), len(own.segments))
    for number, (one, other) in enumerate(zip(compiled.segments, own.segments, strict=True)):
        if one != other:
            return f"{_segment(one, other)} in segment {number}"
    return _field(compiled, own, ("losses", "aliases"))


def _segment(compiled: Segment, own: Segment) -> str:
    # How deep a model is, then how wide, say more than how its weights begin.
    if compiled.count != own.count:
        return _instead("repetitions", compiled.count, own.count)
    for name in ("tensors", "weights", "ops"):
        if (one := getattr(compiled, name)) != (other := getattr(own, name)):
            return _named(name.removesuffix("s"), one, other)
    return _field(compiled, own, ("first", "stride"))


def _named(what: str, compiled: Sequence[Any], own: Sequence[Any], plural: str | None = None) -> str:
    """Return the first difference of two sequences of things with names."""
    for one, other in zip(compiled, own, strict=False):
        if one.name != other.name:
            return _instead(what, one.name, other.name)
        if one != other:
            return f"{what} {one.name} with {_field(one, other, tuple(field.name for field in fields(one)))}"
    return _instead(plural or f"{what}s", len(compiled), len(own))


def _field(compiled: Any, own: Any, names: tuple[str, ...]) -> str:
    name = next(name for name in names if getattr(compiled, name) != getattr(own, name))
    one, other = getattr(compiled, name), getattr(own, name)
    if hasattr(one, "keys"):
        key = min(key for key, _ in one.items() ^ other.items())
        what = f"alias {key}" if name == "aliases" else key
        return _instead(what, one.get(key, "none"), other.get(key, "none"))
    if name == "losses":
        return _named("loss", one, other, "losses")
    if hasattr(one, "__dataclass_fields__"):
        return _field(one, other, tuple(field.name for field in fields(one)))
    return _instead(name, one, other)


def _instead(what: str, compiled: object, own: object) -> str:
    return f"{what} {_short(compiled)} instead of {_short(own)}"


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
