"""Frozen dataclasses as JSON values, and back, by their annotations.

A library would need its settings on every dataclass for the needs here: infinities as strings, fields that are
left out, errors that name the field with its whole path.
"""

import dataclasses
import hashlib
import json
import math
import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, Union, get_args, get_origin, get_type_hints

from cstool.model.system import System

LEFT_OUT: Mapping[tuple[type, str], Any] = MappingProxyType(
    {(System, "sources"): MappingProxyType({}), (System, "hosts"): None, (System, "servers"): None}
)
"""fields that are not written -> their values after reading"""
IF_UNUSUAL = "written if unusual"
"""in the metadata of a field: it is written only where it differs from its default"""
_INFINITIES = ("inf", "-inf")


class PlainDataError(ValueError):
    """Plain data do not match the annotations: *dotted path: rule, got what*."""


def plain_data(value: Any) -> dict[str, Any]:
    """Return one of the artifact's dataclasses as plain data, or raise ValueError."""
    plain: dict[str, Any] = to_plain(value, type(value))
    return plain


def plain_digest(plain: Mapping[str, Any]) -> str:
    """Return the sha256 of plain data; the order of keys does not matter."""
    text = json.dumps(plain, sort_keys=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def to_plain(value: Any, hint: Any) -> Any:
    """Return a value as dicts, lists, strings, numbers, booleans and None.

    Args:
        value: of the annotated type
        hint: a dataclass or another annotation that the dataclasses of the artifact use

    Raises:
        ValueError: a number is not one (NaN), or an attribute is of a type that JSON does not know
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return _any_to_plain(value)
    if origin in (Union, types.UnionType):
        return None if value is None else to_plain(value, _not_none(args))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        usual = _usual_values(hint)
        found = {name: (getattr(value, name), of) for name, of in written_fields(hint).items()}
        return {name: to_plain(v, of) for name, (v, of) in found.items() if name not in usual or v != usual[name]}
    if origin is tuple:
        return [to_plain(item, of) for item, of in zip(value, _item_hints(args, len(value)), strict=True)]
    if origin is Mapping:
        return {str(key): to_plain(item, args[1]) for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return value.value
    return _float_to_plain(float(value)) if hint is float else value


def from_plain(plain: Any, hint: Any, where: str = "") -> Any:
    """Return the value that `to_plain` turned into plain data.

    Args:
        hint: as for `to_plain`
        where: dotted path of the value

    Raises:
        PlainDataError: it does not fit the annotation
    """
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return _any_from_plain(plain)
    if origin in (Union, types.UnionType):
        return None if plain is None else from_plain(plain, _not_none(args), where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _dataclass_from_plain(plain, hint, where)
    if origin is tuple:
        items = _of_type(plain, list, "a list", where)
        hints = _item_hints(args, len(items))
        if len(hints) != len(items):
            raise PlainDataError(f"{where}: must be a list of {len(hints)}, got {len(items)}")
        return tuple(from_plain(item, hints[n], f"{where}.{n}") for n, item in enumerate(items))
    if origin is Mapping:
        items = _of_type(plain, dict, "an object", where)
        return MappingProxyType({key: from_plain(item, args[1], f"{where}.{key}") for key, item in items.items()})
    if isinstance(hint, type) and issubclass(hint, Enum):
        known = [member.value for member in hint]
        if plain not in known:
            raise PlainDataError(f"{where}: must be one of {', '.join(known)}, got {plain!r}")
        return hint(plain)
    if hint is float:
        return float(_of_type(_any_from_plain(plain), float, "a number with a point", where))
    return _of_type(plain, hint, {int: "a whole number", str: "a string", bool: "true or false"}[hint], where)


@cache
def written_fields(kind: type) -> dict[str, Any]:
    """Return the annotations of the fields that are written."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if (kind, f.name) not in LEFT_OUT}


@cache
def _usual_values(kind: type) -> dict[str, Any]:
    """Return the fields that are written only where they have another value than this one."""
    return {f.name: f.default for f in dataclasses.fields(kind) if f.metadata.get(IF_UNUSUAL)}


def _dataclass_from_plain(plain: Any, kind: type, where: str) -> Any:
    items = _of_type(plain, dict, "an object", where)
    hints, prefix = written_fields(kind), f"{where}." if where else ""
    usual = _usual_values(kind)
    items = {**{name: to_plain(value, hints[name]) for name, value in usual.items()}, **items}
    if missing := [name for name in hints if name not in items]:
        raise PlainDataError(f"{prefix}{missing[0]}: must be given, got nothing")
    if unknown := [name for name in items if name not in hints]:
        raise PlainDataError(f"{prefix}{unknown[0]}: must be a known field of {kind.__name__}, got another")
    left_out = {name: value for (owner, name), value in LEFT_OUT.items() if owner is kind}
    return kind(**{name: from_plain(items[name], of, f"{prefix}{name}") for name, of in hints.items()}, **left_out)


def _item_hints(args: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    return (args[0],) * count if args[-1] is Ellipsis else args


def _not_none(args: tuple[Any, ...]) -> Any:
    (hint,) = (arg for arg in args if arg is not type(None))
    return hint


def _of_type(plain: Any, kind: type, called: str, where: str) -> Any:
    # True is an int to Python, not to a reader of JSON.
    if not isinstance(plain, kind) or (isinstance(plain, bool) and kind is not bool):
        raise PlainDataError(f"{where}: must be {called}, got {plain!r:.60}")
    return plain


def _float_to_plain(value: float) -> float | str:
    if math.isnan(value):
        raise ValueError("NaN cannot be written")
    return str(value) if math.isinf(value) else value


def _any_to_plain(value: Any) -> Any:
    if isinstance(value, float):
        return _float_to_plain(value)
    if isinstance(value, tuple | list):
        return [_any_to_plain(item) for item in value]
    if (value is None or isinstance(value, bool | int | str)) and value not in _INFINITIES:
        return value
    raise ValueError(f"an attribute must be a number, a string, true, false, none or a tuple of them, got {value!r}")


def _any_from_plain(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(_any_from_plain(item) for item in plain)
    return float(plain) if plain in _INFINITIES else plain
