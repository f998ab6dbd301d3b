"""What keys of Hugging Face's config.json mean, in the params and back: the rows that families are made of."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cstool.activations import ACTIVATIONS
from cstool.params import GATED_NONLINEARITIES, NONLINEARITIES, DecoderParams
from cstool.params.sections.decoder import MAX_LAYERS
from cstool.params.sections.decoder_parts import PositionScalingParams

Found = Mapping[str, Any]
"""the keys of a config that its family knows, defaults filled in"""

HF_ACTIVATIONS = {theirs: name for name, row in ACTIVATIONS.items() for theirs in row.hf_names}
"""their names of functions -> those of the kernels"""
_GATES = {kernel: name for name, kernel in GATED_NONLINEARITIES.items()}
_ORIGINAL = "original_max_position_embeddings"
_AMPLITUDES = ("attention_factor", "mscale", "mscale_all_dim")
_SCALINGS = {
    "default": (),
    "linear": (_ORIGINAL,),
    "llama3": (_ORIGINAL, "low_freq_factor", "high_freq_factor"),
    "yarn": (_ORIGINAL, "beta_fast", "beta_slow", "truncate", *_AMPLITUDES),
}
"""kinds of rope_scaling that can be had -> their keys beside the factor"""
_LONGROPE = ("short_factor", "long_factor")
_NO_SCALING = {
    "dynamic": "its positions change with the length of a text, here they do not",
    "longrope": "of these families a Phi-3 has it",
}
_KIND_OF_LAYER = {True: "sliding_attention", False: "full_attention"}
_MOST = 10**9
"""of any whole number in a config"""
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
        default: what it is where the file lacks it
        read: what the params say for a config; may raise Refused
        write: its value for a model; None leaves it out
        kind: of its value; object for any that `read` looks at itself
        least: of a whole number
        other_name: an older or newer name of it
        if_null: what it is where it is null, by the keys before it
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
        given = config.get(self.theirs, config.get(self.other_name or self.theirs, self.default))
        if given is None and self.if_null is not None:
            given = self.if_null(found)
        if not (given is None and self.nullable) and not self._is_of_kind(given):
            limits = f" from {self.least} to {_MOST}" if self.kind is int else ""
            raise Refused(f"{self.theirs} must be {_KINDS[self.kind]}{limits}, got {text(given)}")
        return given

    def _is_of_kind(self, value: Any) -> bool:
        if self.kind is int:
            return type(value) is int and self.least <= value <= _MOST
        return _is_number(value) if self.kind is float else isinstance(value, self.kind)


def same(theirs: str, default: Any, ours: str | None = None, *, also: str | None = None, nullable: bool = False) -> Key:
    """A key with the value that a key of the params has, of the same name if no other is given."""
    name = ours or theirs
    return Key(
        theirs, default, lambda found: {name: found[theirs]}, lambda model: getattr(model, name),
        type(default), other_name=also, nullable=nullable,
    )  # fmt: skip


def only(theirs: str, value: Any, why: str) -> Key:
    """A key that can have one value, which is never written since it is what they take without it; and why."""

    def read(found: Found) -> Mapping[str, Any]:
        if found[theirs] != value:
            raise Refused(f"{theirs} must be {text(value)}, got {text(found[theirs])}", why)
        return {}

    return Key(theirs, value, read, None)


def labels(ours: str) -> tuple[Key, Key]:
    """How many classes there are, in a key of the params: as many as have names, else `num_labels`."""

    def read(found: Found) -> Mapping[str, Any]:
        given = found["id2label"]
        if given is not None and not (isinstance(given, dict) and given):
            raise Refused("id2label must name the classes by number")
        return {ours: found["num_labels"] if given is None else len(given)}

    def write(model: Any) -> dict[str, str]:
        return {str(number): f"LABEL_{number}" for number in range(getattr(model, ours))}

    return Key("num_labels", 2, lambda _: {}, None, int), Key("id2label", None, read, write)


def all_of(theirs: str, default: bool, *ours: str) -> Key:
    """A key that several of the params follow."""
    return Key(
        theirs, default, lambda found: dict.fromkeys(ours, found[theirs]), lambda model: getattr(model, ours[0]), bool
    )


def silent(key: Key) -> Key:
    """A key that is read together with another one."""
    return replace(key, read=lambda _: {})


def filter_size(theirs: str, hidden: str) -> Key:
    """The width of the feed-forward part, four times that of the model where it is null."""
    return Key(
        theirs, None, lambda found: {"filter_size": found[theirs]}, lambda model: model.filter_size,
        int, if_null=lambda found: 4 * found[hidden],
    )  # fmt: skip


def activation(theirs: str, default: str, is_gated: bool = False) -> Key:
    """The function of the feed-forward part, which may be that of its gate."""

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
    """D of a config: what it says, or a head's share of the width, or raise Refused."""
    if (given := found.get("head_dim")) is not None:
        return int(given)
    hidden, heads = found["hidden_size"], found["num_attention_heads"]
    if hidden % heads:
        raise Refused(f"hidden_size must be a multiple of num_attention_heads ({heads}), got {hidden}")
    return int(hidden // heads)


def heads_of_keys(default: int | None = None, theirs: str = "num_key_value_heads") -> Key:
    """How many heads of keys and values there are; as many as of queries where it is null."""
    return Key(
        theirs, default, lambda found: kv_groups(found[theirs]), lambda model: model.kv_heads,
        int, if_null=lambda found: found["num_attention_heads"],
    )  # fmt: skip


def kv_groups(heads: int) -> dict[str, Any]:
    """What the params say of so many heads of keys and values."""
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


def scaling_kind(scaling: Any) -> Any:
    """Type of a rope_scaling, by its newest name; what it is, where it is no mapping."""
    if isinstance(scaling, dict):
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        return "longrope" if kind == "su" else kind
    return "default" if scaling is None else scaling


def _read_scaling(found: Found, kinds: tuple[str, ...]) -> Mapping[str, Any]:
    given = found["rope_scaling"]
    kind = scaling_kind(given)
    if kind not in kinds:
        hint = _NO_SCALING.get(kind) if isinstance(kind, str) else None
        raise Refused(f"rope_scaling must be of type {', '.join(kinds)}, got {text(kind)}", hint)
    if kind == "default":
        return {}
    if kind == "longrope":
        return _read_longrope(found)
    rest = {key: value for key, value in given.items() if key not in ("rope_type", "type", "factor")}
    if unknown := sorted(rest.keys() - set(_SCALINGS[kind])):
        raise Refused(f"rope_scaling must have no {unknown[0]} beside type {kind}")
    factor = _number(given, "factor")
    if not factor:
        raise Refused(f"rope_scaling.factor must be a number greater than 0, got {text(given.get('factor'))}")
    if kind == "yarn":
        rest = _yarn(rest, factor, found["max_position_embeddings"])
    extra = {"pos_scaling_extra_args": rest} if rest and kind != "linear" else {}
    return {"pos_scaling_type": kind, "pos_scaling_factor": factor, **extra}


def _read_longrope(found: Found) -> Mapping[str, Any]:
    """A factor for each pair, of texts up to the original length and of longer ones."""
    given, pairs = found["rope_scaling"], int(head_width(found) * found.get("partial_rotary_factor", 1.0)) // 2
    for key in _LONGROPE:
        factors = given.get(key)
        if not isinstance(factors, list) or len(factors) != pairs or not all(_is_number(f) and f > 0 for f in factors):
            got = f"{len(factors)} of them" if isinstance(factors, list) else text(factors)
            raise Refused(f"rope_scaling.{key} must be a list of {pairs} numbers greater than 0, got {got}")
    if unknown := sorted(given.keys() - {"rope_type", "type", *_LONGROPE}):
        raise Refused(f"rope_scaling must have no {unknown[0]} beside type longrope")
    extra = {_ORIGINAL: found[_ORIGINAL], **{key: given[key] for key in _LONGROPE}}
    return {"pos_scaling_type": "longrope", "pos_scaling_extra_args": extra}


def _write_longrope(extra: PositionScalingParams) -> dict[str, Any]:
    """What is not given is not used here: theirs is then that of the other length."""
    given = {key: getattr(extra, key) for key in _LONGROPE}
    either = given["long_factor"] or given["short_factor"]
    return {"type": "longrope", **{key: list(factors or either) for key, factors in given.items()}}


def _write_original(model: DecoderParams) -> int:
    extra = model.pos_scaling_extra_args
    original = None if extra is None else extra.original_max_position_embeddings
    return model.max_position_embeddings if original is None else original


ORIGINAL_POSITIONS = Key("original_max_position_embeddings", 4096, lambda _: {}, _write_original, int)
"""for how long a text a model was made at first; longrope counts from there"""


def _number(scaling: Mapping[str, Any], key: str) -> float | None:
    """Return a number from 0 of a rope_scaling; None where it is not given."""
    if (value := scaling.get(key)) is not None and (not _is_number(value) or value < 0):
        raise Refused(f"rope_scaling.{key} must be a number from 0, got {text(value)}")
    return value


def _yarn(given: Mapping[str, Any], factor: float, positions: int) -> dict[str, Any]:
    """Return the extra arguments of YaRN; the factor of what is turned is theirs, or follows from mscale, if given."""
    rest = {key: value for key, value in given.items() if key not in _AMPLITUDES and value is not None}
    rest.setdefault(_ORIGINAL, positions)
    amplitude, scale, scale_of_all = (_number(given, key) for key in _AMPLITUDES)
    if amplitude is None and scale and scale_of_all and factor > 1:
        amplitude = _amplitude(factor, scale) / _amplitude(factor, scale_of_all)
    if amplitude is None:
        return rest
    if factor <= 1 and amplitude != 1:
        raise Refused(f"rope_scaling.attention_factor must be 1 beside a factor of {factor:g}, got {amplitude:g}")
    return {**rest, "mscale_a": 0.0, "mscale_b": amplitude}


def _amplitude(factor: float, scale: float) -> float:
    """Factor of the turned pairs, with the logarithm of the stretch weighted by `scale`. Source: Peng et al., 2023."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn_amplitude(model: DecoderParams) -> float:
    """Factor of the turned pairs of a model with YaRN."""
    extra, factor = model.pos_scaling_extra_args, model.pos_scaling_factor
    assert extra is not None
    return extra.mscale_a * math.log(factor) + extra.mscale_b if factor > 1 else 1.0


def _write_scaling(model: DecoderParams) -> dict[str, Any] | None:
    factor, extra = model.pos_scaling_factor, model.pos_scaling_extra_args
    if model.position_embedding_type != "rotary" or (model.pos_scaling_type, factor) == ("linear", 1.0):
        return None
    said: dict[str, Any] = {"rope_type": model.pos_scaling_type, "factor": factor}
    if model.pos_scaling_type == "linear":
        return said
    assert extra is not None
    if model.pos_scaling_type == "longrope":
        return _write_longrope(extra)
    said |= {key: getattr(extra, key) for key in _SCALINGS[model.pos_scaling_type] if key not in _AMPLITUDES}
    if model.pos_scaling_type == "yarn" and not math.isclose(yarn_amplitude(model), _amplitude(factor, 1.0)):
        said["attention_factor"] = yarn_amplitude(model)
    return said


def scaling(*kinds: str) -> Key:
    """What stretches rotary positions, of one of these kinds, or of any that can be had."""
    return Key("rope_scaling", None, lambda found: _read_scaling(found, kinds or tuple(_SCALINGS)), _write_scaling)


def _read_window(found: Found) -> Mapping[str, Any]:
    return {"attention_sliding_window_length": found["sliding_window"]}


def window(default: int | None) -> Key:
    """A window of all layers; null for none."""
    return Key(
        "sliding_window", default, _read_window, lambda model: model.attention_sliding_window_length,
        int, nullable=True,
    )  # fmt: skip


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


def _is_number(value: Any) -> bool:
    """Whether a value is a number that a float can have."""
    return type(value) in (int, float) and -_HUGE < value < _HUGE


def text(value: Any) -> str:
    """Return a value as messages have it."""
    if isinstance(value, (dict, list)):
        return "a list" if isinstance(value, list) else "a mapping"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
