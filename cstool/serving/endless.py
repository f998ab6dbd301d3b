"""Schemas without a text that ends, as an object must have one like itself, and so on: grammars accept them.

In a shortest text no part is inside another part of the same reference. So a reference inside itself has no end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from cstool.serving.refusals import Refused

MOST_PARTS = 20_000
"""parts of a schema that are looked at; a larger one passes"""


def check_ends(schema: Any, param: str) -> None:
    """Check that some text of a JSON schema has an end.

    The keywords `$ref`, `anyOf`, `oneOf`, `allOf`, `required`, `items`, `prefixItems` and `minItems` count. Other
    keywords, and references to elsewhere, are left to the grammar.

    Args:
        schema: of JSON
        param: the field that has it

    Raises:
        Refused: none has
    """
    try:
        has_end = _Schema(schema).ends(schema, frozenset())
    except RecursionError:
        return  # it is too deep for a grammar as well, which says so
    if not has_end:
        rule = "must be a JSON schema that texts can have, got one that refers to itself without an end"
        raise Refused(400, f"{param}: {rule}", param, "invalid_schema")


class _Schema:
    """A schema with the parts that its references mean."""

    def __init__(self, root: Any) -> None:
        self._root, self._seen = root, 0

    def ends(self, part: Any, on_the_way: frozenset[str]) -> bool:
        """Whether some JSON of a part has an end.

        Args:
            on_the_way: references that led to it
        """
        self._seen += 1
        if not isinstance(part, Mapping) or self._seen > MOST_PARTS:
            return True
        parts: list[Any] = [*_listed(part, "allOf")]
        if isinstance(reference := part.get("$ref"), str):
            if reference in on_the_way:
                return False
            if not self.ends(self._meant(reference), on_the_way | {reference}):
                return False
        if part.get("type") == "object" and isinstance(properties := part.get("properties"), Mapping):
            parts += [properties[name] for name in _listed(part, "required") if name in properties]
        least = part.get("minItems", 0)
        if part.get("type") == "array" and isinstance(least, int) and least > 0:
            first = _listed(part, "prefixItems")
            parts += [*first[:least], *([part.get("items")] if least > len(first) else [])]
        for key in ("anyOf", "oneOf"):
            if (ways := _listed(part, key)) and not any(self.ends(way, on_the_way) for way in ways):
                return False
        return all(self.ends(each, on_the_way) for each in parts)

    def _meant(self, reference: str) -> Any:
        """The part that a reference means; None for one that is not in this schema."""
        found = self._root
        if not reference.startswith("#"):
            return None
        for name in reference[1:].split("/")[1:]:
            key = unquote(name).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping):
                found = found.get(key)
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found


def _listed(part: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = part.get(key)
    return value if isinstance(value, list) else []
