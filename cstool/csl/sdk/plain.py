"""Frozen dataclasses as plain data for JSON, and back, by their annotations."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints


def to_plain(value: Any, without: tuple[str, ...] = ()) -> Any:
    """A dataclass, mapping, tuple, set, or scalar as dicts, lists and scalars.

    Args:
        value: the value
        without: fields of the outermost dataclass that are left out
    """
    if is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value) if f.name not in without}
    if isinstance(value, Mapping):
        return {str(key): to_plain(value[key]) for key in sorted(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [to_plain(each) for each in value]
    return value


def from_plain(kind: Any, plain: Any, **given: Any) -> Any:
    """Turn a result of `to_plain` into a `kind` again.

    Args:
        kind: a dataclass, or an annotation of a field
        plain: the plain value
        given: fields that are not in `plain`

    Raises:
        TypeError, ValueError: it is no plain form of a `kind`
    """
    if isinstance(kind, type) and is_dataclass(kind):
        if not isinstance(plain, dict):
            raise TypeError(f"a dict is expected, got {plain!r}")
        hints = _hints(kind)
        if unknown := plain.keys() - hints.keys():
            raise TypeError(f"unknown fields: {sorted(unknown)}")
        values = {name: from_plain(hints[name], value) for name, value in plain.items()}
        return kind(**values, **given)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return (
            None if plain is None else from_plain(next(each for each in arguments if each is not types.NoneType), plain)
        )
    if origin is tuple:
        each = arguments[:-1] * len(plain) if arguments[-1] is ... else arguments
        if len(each) != len(plain):
            raise ValueError(f"{len(each)} entries are expected, got {len(plain)}")
        return tuple(from_plain(one, value) for one, value in zip(each, plain, strict=True))
    if origin is frozenset:
        return frozenset(from_plain(arguments[0], value) for value in plain)
    if origin is Mapping:
        return {arguments[0](key): from_plain(arguments[1], value) for key, value in plain.items()}
    if not isinstance(plain, kind):
        raise TypeError(f"{kind.__name__} is expected, got {plain!r}")
    return plain


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
