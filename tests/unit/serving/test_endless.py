"""Schemas without a text that ends."""

from typing import Any

import pytest

from cstool.serving.endless import MOST_PARTS, check_ends
from cstool.serving.refusals import Refused

TREE = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#/$defs/a~1b/0"}}}
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/list"}}, "required": ["next"]}


def of_list(*ways: Any) -> dict[str, Any]:
    return {"$ref": "#/$defs/list", "$defs": {"list": {"anyOf": list(ways)}}}


ENDS: list[Any] = [
    True,
    {},
    {"type": "integer"},
    TREE,
    # Another type than an object needs no property.
    {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"$ref": "#"}}},
    {"type": "array", "items": {"$ref": "#"}},
    {"type": "array", "prefixItems": [{}], "items": {"$ref": "#"}, "minItems": 1},
    of_list({"type": "null"}, NODE),
    of_list(NODE, {"type": "null"}),
    # Twice the same part, one after the other.
    {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "integer"}}},
    # What cannot be followed is the grammar's.
    {"$ref": "https://example.com/a"},
    {"$ref": "#/$defs/none"},
    {"required": "a", "anyOf": 1, "type": "object", "properties": []},
]
ENDLESS: list[Any] = [
    {"$ref": "#"},
    TREE | {"required": ["left"]},
    TREE | {"required": ["right"], "$defs": {"a/b": [{"allOf": [{}, {"$ref": "#"}]}]}},
    of_list(NODE),
    of_list(NODE, {"$ref": "#/$defs/list"}),
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    {"type": "array", "prefixItems": [{}, {"$ref": "#"}], "minItems": 2},
    {"oneOf": [{"$ref": "#/oneOf/1"}, {"$ref": "#/oneOf/0"}]},
]


@pytest.mark.parametrize("schema", ENDS)
def test_a_schema_with_a_text_passes(schema):
    check_ends(schema, "schema")


@pytest.mark.parametrize("schema", ENDLESS)
def test_a_schema_whose_texts_never_end_is_refused(schema):
    expected = "^schema: must be a JSON schema that texts can have, got one that refers to itself without an end$"
    with pytest.raises(Refused, match=expected):
        check_ends(schema, "schema")


def test_a_schema_that_is_deep_or_doubles_passes_soon():
    deep: Any = {"type": "integer"}
    for _ in range(5000):
        deep = {"anyOf": [deep]}
    check_ends(deep, "schema")
    doubled = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(MOST_PARTS.bit_length() + 20)}
    check_ends({"$ref": "#/$defs/d0", "$defs": doubled}, "schema")
