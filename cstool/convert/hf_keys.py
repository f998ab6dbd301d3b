"""Meaning of the keys of Hugging Face's config.json, in the params and back: the rows of which families are made."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cstool.model.activations import ACTIVATIONS
from cstool.model.params import GATED_NONLINEARITIES, NONLINEARITIES, DecoderParams
from cstool.model.params.sections.decoder import MAX_LAYERS

Found = Mapping[str, Any]
"""the keys of a config that its family knows, defaults filled in"""

HF_ACTIVATIONS = {theirs: name for name, row in ACTIVATIONS.items() for theirs in row.hf_names}
"""names of functions at Hugging Face -> names of the kernels"""
_GATES = {kernel: name for name, kernel in GATED_NONLINEARITIES.items()}
_KIND_OF_LAYER = {True: "sliding_attention", False: "full_attention"}
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


def same(theirs: str, default: Any, ours: str | None = None, *, also: str | None = None, nullable: bool = False) -> Key:
    """A key with the value that a key of the params has, of the same name if no other is given."""
    name = ours or theirs
    return Key(
        theirs, default, lambda found: {name: found[theirs]}, lambda model: getattr(model, name),
        type(default), other_name=also, nullable=nullable,
    )  # fmt: skip


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


def all_of(theirs: str, default: bool, *ours: str) -> Key:
    """A key that several of the params follow."""
    return Key(
        theirs, default, lambda found: dict.fromkeys(ours, found[theirs]), lambda model: getattr(model, ours[0]), bool
    )


def silent(key: Key) -> Key:
    """A key that is read together with another one."""
    return replace(key, read=lambda _: {})


def filter_size(theirs: str, hidden: str) -> Key:
    """The width of the feed-forward part; null: four times the width of the model."""
    return Key(
        theirs, None, lambda found: {"filter_size": found[theirs]}, lambda model: model.filter_size,
        int, if_null=lambda found: 4 * found[hidden],
    )  # fmt: skip


def activation(theirs: str, default: str, is_gated: bool = False) -> Key:
    """The function of the feed-forward part, or of its gate."""

    def read(found: Found) -> Mapping[str, Any]:
        function = HF_ACTIVATIONS.get(found[theirs])
        known = [name for name, of in HF_ACTIVATIONS.items() if not is_gated or of in _GATES]
        if function is None or found[theirs] not in known:
            raise Refused(f"{theirs} must be one of {', '.join(known)}, got {found[theirs]}")
        return {"nonlinearity": _GATES[function] if is_gated else function}

    def write(model: DecoderParams) -> str | None:
        function = (GATED_NONLINEARITIES | NONLINEARITIES)[model.nonlinearity]
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


def heads_of_keys(default: int | None = None, theirs: str = "num_key_value_heads") -> Key:
    """The number of heads of keys and values; null: as many as of queries."""
    return Key(
        theirs, default, lambda found: kv_groups(found[theirs]), lambda model: model.kv_heads,
        int, if_null=lambda found: found["num_attention_heads"],
    )  # fmt: skip


def kv_groups(heads: int) -> dict[str, Any]:
    """Values of the params for a number of heads of keys and values."""
    return {"attention_module": "multiquery_attention", "extra_attention_params": {"num_kv_groups": heads}}


def _read_head_dim(found: Found) -> Mapping[str, Any]:
    width = found["head_dim"]
    inner = found["num_attention_heads"] * width
    return {"rotary_dim": width, **({} if inner == found["hidden_size"] else {"attention_inner_dim": inner})}


HEAD_DIM = Key("head_dim", None, _read_head_dim, lambda model: model.head_width, int, if_null=head_width)
"""the width of a head, which rotary positions turn"""


def rotary_share(theirs: str, default: float, also: str | None = None) -> Key:
    """The share of a head that rotary positions turn."""

    def write(model: DecoderParams) -> float:
        share = (model.rotary_dim or 0) / model.head_width
        # They round down: the share must not become a hair less than the whole number that it stands for.
        return share if int(model.head_width * share) == model.rotary_dim else math.nextafter(share, 2.0)

    def read(found: Found) -> Mapping[str, Any]:
        share = found[theirs]
        if not 0 < share <= 1:
            raise Refused(f"{theirs} must be greater than 0 and at most 1, got {share:g}")
        return {"rotary_dim": int(head_width(found) * share)}

    return Key(theirs, default, read, write, float, other_name=also)


def _read_window(found: Found) -> Mapping[str, Any]:
    return {"attention_sliding_window_length": found["sliding_window"]}


def window(default: int | None) -> Key:
    """A window of all layers; null for none."""
    return Key(
        "sliding_window", default, _read_window, lambda model: model.attention_sliding_window_length,
        int, nullable=True,
    )  # fmt: skip


def _read_alike(found: Found) -> Mapping[str, Any]:
    kind = _KIND_OF_LAYER[found["sliding_window"] is not None]
    if any(each != kind for each in found["layer_types"] or ()):
        raise Refused(f"layer_types must be {kind} for all layers, as sliding_window says", "its layers are all alike")
    return {}


ALIKE = Key("layer_types", None, _read_alike, None, list, nullable=True)
"""a list of layer types that newer releases write; it follows from the window"""


def windows(slides: Callable[[Found, int], bool]) -> Key:
    """Which layers have the window of `sliding_window`: a list, or as `slides` says of a layer where there is none."""

    def if_null(found: Found) -> list[str]:
        if (layers := found["num_hidden_layers"]) > MAX_LAYERS:
            raise Refused(f"num_hidden_layers must be at most {MAX_LAYERS}, got {layers}")
        return [_KIND_OF_LAYER[slides(found, layer)] for layer in range(layers)]

    def read(found: Found) -> Mapping[str, Any]:
        given, layers = found["layer_types"], range(found["num_hidden_layers"])
        size = found["sliding_window"] if found.get("use_sliding_window", True) else None
        if len(given) != len(layers) or any(kind not in _KIND_OF_LAYER.values() for kind in given):
            of_each = " or ".join(_KIND_OF_LAYER.values())
            raise Refused(f"layer_types must be {of_each} for each of {len(layers)} layers")
        slides = [kind == _KIND_OF_LAYER[True] for kind in given]
        if size is None and any(slides):
            raise Refused(f"layer_types must be {_KIND_OF_LAYER[False]} where there is no window")
        if size is None or not any(slides):
            return {}
        if all(slides):
            return {"attention_sliding_window_length": size}
        if slides not in ([layer % 2 == 0 for layer in layers], [layer % 2 == 1 for layer in layers]):
            raise Refused("layer_types must be the same for all layers, or in turns")
        return {
            "attention_sliding_window_length": size,
            "sliding_window_every_other_decoder_layer": True,
            "sliding_window_every_other_decoder_layer_pattern": "sliding_window_first"
            if slides[0]
            else "full_attention_first",
        }

    def write(model: DecoderParams) -> list[str]:
        return [_KIND_OF_LAYER[model.window(layer) is not None] for layer in range(model.num_hidden_layers)]

    return Key("layer_types", None, read, write, list, if_null=if_null)


def is_number(value: Any) -> bool:
    """Whether a value is a number that a float can have."""
    return type(value) in (int, float) and -_HUGE < value < _HUGE


def text(value: Any) -> str:
    """Return a value as messages have it."""
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "a mapping"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
