"""Rotary positions in Hugging Face's config.json: their entries, and their scaling."""

import math
from collections.abc import Mapping
from typing import Any

from cstool.convert.hf_keys import Found, Key, Refused, head_width, is_number, text
from cstool.foundation.words import did_you_mean, nearest
from cstool.model.params import DecoderParams
from cstool.model.params.sections.decoder_parts import PositionScalingParams

_OLDER, _NEWER = "rope_scaling", "rope_parameters"
_APART = ("rope_theta", "partial_rotary_factor")
"""keys that older releases of the library have beside the entry, and newer ones in it"""
_THETAS = ("rope_theta", "rotary_emb_base")
_KINDS_OF_LAYERS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
_ORIGINAL = "original_max_position_embeddings"
_AMPLITUDES = ("attention_factor", "mscale", "mscale_all_dim")
_SCALINGS = {
    "default": (),
    "linear": (_ORIGINAL,),
    "llama3": (_ORIGINAL, "low_freq_factor", "high_freq_factor"),
    "yarn": (_ORIGINAL, "beta_fast", "beta_slow", "truncate", *_AMPLITUDES),
}
"""kinds of scaling -> their keys beside the factor"""
_LONGROPE = ("short_factor", "long_factor")
_NO_SCALING = {
    "dynamic": "its positions change with the length of a text, here they do not",
    "longrope": "of these families a Phi-3 has it",
}


class Entry(dict[str, Any]):
    """The entry of a config on stretched positions; `name` is its key, for messages."""

    name = _OLDER

    @property
    def kind(self) -> Any:
        """Its type, by its newest name."""
        said = [self[key] for key in ("rope_type", "type") if self.get(key) is not None]
        newest = ["longrope" if kind == "su" else kind for kind in said]
        if newest[1:] and newest[0] != newest[1]:
            raise Refused(f"{self.name}.type must be as rope_type ({text(said[0])}), got {text(said[1])}")
        return newest[0] if newest else "default"

    @property
    def rest(self) -> dict[str, Any]:
        """Its keys beside the type, without null values."""
        return {key: value for key, value in self.items() if key not in ("rope_type", "type") and value is not None}


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with its entries on rotary positions in the places of older releases of the library.

    Newer releases keep all of it in `rope_parameters`. The result has an `Entry`, or None, as `rope_scaling`.

    Raises:
        Refused: the entries are invalid, or contradict each other or the keys beside them
    """
    found = {key: value for key, value in config.items() if key not in (_OLDER, _NEWER)}
    entries = []
    for name in (_NEWER, _OLDER):
        if config.get(name) is None or (name == _OLDER and config[name] == {}):
            continue
        entry = _entry(name, config[name])
        for key in _APART:
            beside, given = found.get(key), entry.pop(key, None)
            if None not in (beside, given) and beside != given:
                raise Refused(f"{name}.{key} must be as {key} ({text(beside)}), got {text(given)}")
            found |= {} if given is None else {key: given}
        entries.append(entry)
    if len(entries) == 2 and (entries[0].kind, entries[0].rest) != (entries[1].kind, entries[1].rest):
        raise Refused(f"{_OLDER} must say the same as {_NEWER}, it does not", "keep the one that the model has")
    if entries and entries[0].name == _NEWER and all(found.get(key) is None for key in _THETAS):
        near = nearest("rope_theta", entries[0])
        raise Refused(f"{_NEWER} must have rope_theta, it has none", near and f"is {near} to be rope_theta?")
    return {**found, _OLDER: entries[0] if entries else None}


def _entry(name: str, given: Any) -> Entry:
    """Return the entry of a config for all layers, or raise Refused."""
    if not isinstance(given, dict):
        raise Refused(f"{name} must be null or a mapping, got {text(given)}")
    nested = [given[kind] for kind in given if kind in _KINDS_OF_LAYERS]
    if nested:
        alike = [value for value in nested if value is not None]
        if len(nested) < len(given) or any(not isinstance(value, dict) or value != alike[0] for value in alike):
            raise Refused(
                f"{name} must be the same for all kinds of layers, got others by {', '.join(given)}",
                "all layers have the same positions here",
            )
        given = alike[0] if alike else {}
    entry = Entry(given)
    entry.name = name
    return entry


def _read_scaling(found: Found, kinds: tuple[str, ...]) -> Mapping[str, Any]:
    given = found[_OLDER] if found[_OLDER] is not None else Entry()
    kind, name, rest = given.kind, given.name, given.rest
    if kind not in kinds:
        hint = _NO_SCALING.get(kind) if isinstance(kind, str) else None
        raise Refused(f"{name} must be of type {', '.join(kinds)}, got {text(kind)}", hint)
    if kind == "longrope":
        return _read_longrope(found, given)
    factor = None if kind == "default" else rest.pop("factor", None)
    if unknown := sorted(rest.keys() - set(_SCALINGS[kind])):
        known = ("factor", *_SCALINGS[kind], *_APART)
        hint = "rope_type says what it is of" if kind == "default" else did_you_mean(unknown[0], known)
        raise Refused(f"{name} must have no {unknown[0]} beside type {kind}", hint)
    if kind == "default":
        return {}
    if factor is None or not is_number(factor) or factor <= 0:
        raise Refused(f"{name}.factor must be a number greater than 0, got {text(factor)}")
    if kind == "yarn":
        rest = _yarn(given, factor, found["max_position_embeddings"])
    extra = {"pos_scaling_extra_args": rest} if rest and kind != "linear" else {}
    return {"pos_scaling_type": kind, "pos_scaling_factor": factor, **extra}


def _read_longrope(found: Found, given: Entry) -> Mapping[str, Any]:
    """A factor for each pair, of texts up to the original length and of longer ones."""
    name, pairs = given.name, int(head_width(found) * found.get("partial_rotary_factor", 1.0)) // 2
    for key in _LONGROPE:
        factors = given.get(key)
        if not isinstance(factors, list) or len(factors) != pairs or not all(is_number(f) and f > 0 for f in factors):
            got = f"{len(factors)} of them" if isinstance(factors, list) else text(factors)
            raise Refused(f"{name}.{key} must be a list of {pairs} numbers greater than 0, got {got}")
    original = found[_ORIGINAL]
    # Values that newer releases repeat there: the ratio is read only where the original length is not known.
    repeated = {_ORIGINAL: original, "factor": found["max_position_embeddings"] / original}
    for key, value in repeated.items():
        if given.get(key) not in (None, value):
            raise Refused(f"{name}.{key} must be {text(value)} beside {_ORIGINAL} {original}, got {text(given[key])}")
    if unknown := sorted(given.rest.keys() - {"attention_factor", *_LONGROPE, *repeated}):
        raise Refused(f"{name} must have no {unknown[0]} beside type longrope")
    amplitude = _number(given, "attention_factor")
    if amplitude == 0:
        raise Refused(f"{name}.attention_factor must be greater than 0, got 0")
    extra = {_ORIGINAL: original, **{key: given[key] for key in _LONGROPE}}
    said = {} if amplitude is None else {"attention_factor": amplitude}
    return {"pos_scaling_type": "longrope", "pos_scaling_extra_args": extra | said}


def _write_longrope(extra: PositionScalingParams) -> dict[str, Any]:
    """Write longrope; a list that is not given is unused here, so theirs repeats the list of the other length."""
    given = {key: getattr(extra, key) for key in _LONGROPE}
    either = given["long_factor"] or given["short_factor"]
    said = {"type": "longrope", **{key: list(factors or either) for key, factors in given.items()}}
    return said if extra.attention_factor is None else {**said, "attention_factor": extra.attention_factor}


def _write_original(model: DecoderParams) -> int:
    extra = model.pos_scaling_extra_args
    original = None if extra is None else extra.original_max_position_embeddings
    return model.max_position_embeddings if original is None else original


ORIGINAL_POSITIONS = Key("original_max_position_embeddings", 4096, lambda _: {}, _write_original, int)
"""length of texts that a model was first made for; longrope counts from there"""


def _number(entry: Entry, key: str) -> float | None:
    """Return a number from 0 of an entry; None where it is not given."""
    if (value := entry.get(key)) is not None and (not is_number(value) or value < 0):
        raise Refused(f"{entry.name}.{key} must be a number from 0, got {text(value)}")
    return value


def _yarn(given: Entry, factor: float, positions: int) -> dict[str, Any]:
    """Return the extra arguments of YaRN; the factor on rotated elements is given, or follows from mscale."""
    rest = {key: value for key, value in given.rest.items() if key not in ("factor", *_AMPLITUDES)}
    rest.setdefault(_ORIGINAL, positions)
    amplitude, scale, scale_of_all = (_number(given, key) for key in _AMPLITUDES)
    if amplitude is None and scale and scale_of_all and factor > 1:
        amplitude = _amplitude(factor, scale) / _amplitude(factor, scale_of_all)
    if amplitude is None:
        return rest
    if factor <= 1 and amplitude != 1:
        raise Refused(f"{given.name}.attention_factor must be 1 beside a factor of {factor:g}, got {amplitude:g}")
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
    """Key of the scaling of rotary positions, of one of these kinds; of all kinds if none is named."""
    return Key(_OLDER, None, lambda found: _read_scaling(found, kinds or tuple(_SCALINGS)), _write_scaling)
