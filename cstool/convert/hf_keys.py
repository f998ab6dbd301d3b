"""Meaning of the keys of Hugging Face's config.json, in the params and back: the rows of which families are made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from cstool.model.activations import ACTIVATIONS
from cstool.model.params import GATED_NONLINEARITIES, NONLINEARITIES

Found = Mapping[str, Any]
"""the keys of a config that its family knows, defaults filled in"""

HF_ACTIVATIONS = {theirs: name for name, row in ACTIVATIONS.items() for theirs in row.hf_names}
"""names of functions at Hugging Face -> names of the kernels"""
_GATES = {kernel: name for name, kernel in GATED_NONLINEARITIES.items()}
_MOST = 10**9
"""largest whole number in a config"""
_HUGE = 1e300
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", list: "a list"}


class Refused(ValueError):
    """A config that cannot be had: the rule that it breaks, and a hint or None."""

    def __init__(self, rule: str, hint: str | None = None) -> None:
        super().__init__(rule, hint)
        self.rule = rule
        self.hint = hint


@dataclass(frozen=True)
class Key:
    """A key of config.json.

    Args:
        theirs: its name
        default: its value where the file lacks it
        read: from a config to values of the params; may raise Refused
        write: its value for a model; None leaves it out
        kind: of its value; object for any that `read` looks at itself
        least: of a whole number
        other_name: an older or newer name of it
        if_null: its value where it is null, by the keys before it
        nullable: whether null is a value
    """

    theirs: str
    default: Any
    read: Callable[[Found], Mapping[str, Any]]
    write: Callable[[Any], Any] | None
    kind: type = object
    least: int = 1
    other_name: str | None = None
    if_null: Callable[[Found], Any] | None = None
    nullable: bool = False

    def value(self, config: Mapping[str, Any], found: Found) -> Any:
        """Return its value in a config, `found` being the keys before it, or raise Refused."""
        given = self._given(config)
        if given is None and self.if_null is not None:
            given = self.if_null(found)
        if not (given is None and self.nullable) and not self._is_of_kind(given):
            limits = f" from {self.least} to {_MOST}" if self.kind is int else ""
            raise Refused(f"{self.theirs} must be {_KINDS[self.kind]}{limits}, got {text(given)}")
        return given

    def _given(self, config: Mapping[str, Any]) -> Any:
        """Return the value of a config under the key's names, which must agree; the default where it has none."""
        said = {name: config[name] for name in (self.theirs, self.other_name) if name is not None and name in config}
        values = [value for value in said.values() if value is not None]
        if len(values) == 2 and values[0] != values[1]:
            raise Refused(f"{self.other_name} must be as {self.theirs} ({text(values[0])}), got {text(values[1])}")
        return (values[0] if values else None) if said else self.default

    def _is_of_kind(self, value: Any) -> bool:
        if self.kind is int:
            return type(value) is int and self.least <= value <= _MOST
        return is_number(value) if self.kind is float else isinstance(value, self.kind)


def same(
    theirs: str,
    default: Any,
    ours: str | None = None,
    *,
    also: str | None = None,
    kind: type | None = None,
    write: Callable[[Any], Any] | None = None,
    **limits: Any,
) -> Key:
    """A key with the value that a key of the params has, of the same name if no other is given.

    Args:
        also: another name of it there
        kind: of its value; None for that of the default
        write: its value for a model; None for the attribute of the name that it has in the params
        limits: `least`, `if_null` and `nullable` of the key
    """
    name = ours or theirs
    kind, write = kind or type(default), write or attrgetter(name)
    return Key(theirs, default, lambda found: {name: found[theirs]}, write, kind, other_name=also, **limits)


def told(theirs: str, default: Any, write: Callable[[Any], Any], least: int = 1) -> Key:
    """A key that is read together with another one."""
    return Key(theirs, default, lambda _: {}, write, type(default), least)


def only(theirs: str, value: Any, why: str) -> Key:
    """A key of one allowed value, with the reason; never written, since it is their default."""

    def read(found: Found) -> Mapping[str, Any]:
        if found[theirs] != value:
            raise Refused(f"{theirs} must be {text(value)}, got {text(found[theirs])}", why)
        return {}

    return Key(theirs, value, read, None)


def labels(ours: str) -> tuple[Key, Key]:
    """The number of classes, in a key of the params: as many as have names, else `num_labels`."""

    def read(found: Found) -> Mapping[str, Any]:
        given = found["id2label"]
        if given is not None and not (isinstance(given, dict) and given):
            raise Refused("id2label must name the classes by number")
        count = found["num_labels"]
        if given is not None and count not in (None, len(given)):
            raise Refused(f"num_labels must be as many as id2label names ({len(given)}), got {count}")
        return {ours: (2 if count is None else count) if given is None else len(given)}

    def write(model: Any) -> dict[str, str]:
        return {str(number): f"LABEL_{number}" for number in range(getattr(model, ours))}

    return Key("num_labels", None, lambda _: {}, None, int, nullable=True), Key("id2label", None, read, write)


def silent(key: Key) -> Key:
    """A key of the params that is read together with another one."""
    return replace(key, read=lambda _: {})


def all_of(theirs: str, default: Any, *ours: str) -> Key:
    """A key that several of the params follow."""
    return Key(theirs, default, lambda found: dict.fromkeys(ours, found[theirs]), attrgetter(ours[0]), type(default))


def activation(theirs: str, default: str, is_gated: bool = False, ours: str = "nonlinearity") -> Key:
    """The function of the feed-forward part, or of its gate."""

    def read(found: Found) -> Mapping[str, Any]:
        function = HF_ACTIVATIONS.get(found[theirs])
        known = [name for name, of in HF_ACTIVATIONS.items() if not is_gated or of in _GATES]
        if function is None or found[theirs] not in known:
            raise Refused(f"{theirs} must be one of {', '.join(known)}, got {found[theirs]}")
        return {ours: _GATES[function] if is_gated else function}

    def write(model: Any) -> str | None:
        function = (GATED_NONLINEARITIES | NONLINEARITIES)[getattr(model, ours)]
        if HF_ACTIVATIONS.get(default) == function:
            return default
        return next((name for name, of in HF_ACTIVATIONS.items() if of == function), None)

    return Key(theirs, default, read, write, str)


def head_width(found: Found) -> int:
    """D of a config: the stated width of a head, or a head's share of the model's width; may raise Refused."""
    if (given := found.get("head_dim")) is not None:
        return int(given)
    hidden, heads = found["hidden_size"], found["num_attention_heads"]
    if hidden % heads:
        raise Refused(f"hidden_size must be a multiple of num_attention_heads ({heads}), got {hidden}")
    return int(hidden // heads)


def is_number(value: Any) -> bool:
    """Whether a value is a number that a float can have."""
    return type(value) in (int, float) and -_HUGE < value < _HUGE


def text(value: Any) -> str:
    """Return a value as messages have it."""
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "a mapping"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
