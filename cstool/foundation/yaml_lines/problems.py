"""Checks data against sections, and collects its problems and its keys without effect."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from cstool.foundation.errors import ParamsError
from cstool.foundation.words import NO_EFFECT, did_you_mean
from cstool.foundation.yaml_lines.document import Document, Key, dotted
from cstool.foundation.yaml_lines.section import Section

S = TypeVar("S", bound=Section)

_RULES = {
    "missing": "is missing",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be greater than {gt:g}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt:g}",
    "multiple_of": "must be a multiple of {multiple_of:g}",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
}
_MAX_HINTED_KEYS = 12
_MISSING = object()


class Problems:
    """The problems and notes of one document.

    Args:
        folder: folder of the file, in which its paths are looked for
        beside: the problems of another trainer of the file; new ones are added to them
    """

    def __init__(self, document: Document, folder: Path, beside: "Problems | None" = None) -> None:
        self._document = document
        self._context = {"folder": folder}
        self._found: dict[tuple[str, str | int, str], tuple[int, str, str | None]] = {}
        if beside is not None:
            self._found = beside._found
        self._notes: dict[str, str] = {}
        self._refused: set[Key] = set()

    @property
    def any_found(self) -> bool:
        """Whether there are problems."""
        return bool(self._found)

    @property
    def notes(self) -> tuple[str, ...]:
        """Accepted keys and values without effect, one line each."""
        return tuple(self._notes.values())

    def add(self, key: Key, rule: str, value: Any = _MISSING, hint: str | None = None) -> None:
        """Add a problem: `where: key rule, got value`."""
        got = "" if value is _MISSING else f", got {show(value)}"
        self._add(key, "{key} " + f"{rule}{got}", hint)

    def add_unsupported(
        self, key: Key, value: Any, choices: tuple[Any, ...] = (), instead: str = "leave it out", is_about: str = ""
    ) -> None:
        """Add the problem of a vendor's key or value that is not supported here.

        Args:
            key, value: as written
            choices: supported values
            instead: hint if there are no choices
            is_about: meaning of the key or value, in words
        """
        text = "" if isinstance(value, dict | list) else f": {show(value).strip(chr(39))}"
        names = [show(choice).strip("'") for choice in choices]
        hint = (did_you_mean(value, names) if isinstance(value, str) else None) or (
            f"supported: {', '.join(names)}" if names else instead
        )
        self._add(key, "not supported: {key}" + text + (f" ({is_about})" if is_about else ""), hint)

    def note(self, key: Key, why: str = "") -> None:
        """Note a key that has no effect, and the reason why that may matter, once per place of the file."""
        label = self._document.place(key).label
        key = self._document.written(key)
        self._notes.setdefault(label + str(key[-1]), f"{dotted(key)}: {NO_EFFECT}{why and f': {why}'}")

    def note_text(self, text: str) -> None:
        """Note something in words."""
        self._notes.setdefault(text, text)

    def check_keys(self, data: Any, key: Key, known: Collection[str], without_effect: Collection[str] = ()) -> None:
        """Check that the mapping at `key` has no other keys than `known`, and note keys without effect."""
        if not isinstance(data, dict):
            self.add(key, "must be a mapping", data)
            return
        for name in data:
            if name in without_effect:
                self.note((*key, name))
            elif name not in known:
                self.add((*key, name), "is not a known key", hint=_nearest(name, [*known, *without_effect]))

    def check(self, section: type[S], data: Any, key: Key) -> S | None:
        """Check the mapping at `key`; return the section, or None after adding its problems."""
        if data is None:
            data = {}
        if not isinstance(data, dict):
            self.add(key, "must be a mapping", data)
            return None
        count = len(self._found)
        try:
            checked = section.model_validate(self._clean(section, data, key), context=self._context)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                self._translate(section, dict(item), key)
            return None
        return checked if len(self._found) == count else None

    def check_value(self, section: type[S], name: str, value: Any, key: Key) -> S | None:
        """Check a value at `key` that stands alone; `section` has its field as `name`."""
        self._document.moved[(*key, name)] = self._document.written(key)
        return self.check(section, {name: value}, key)

    def only_entry(
        self, data: Any, key: Key, names: Collection[str], others: Collection[str] | Mapping[str, str] = ()
    ) -> tuple[str, Any, Key] | None:
        """Return name, value and key of a mapping that must hold one of `names` and nothing else.

        Args:
            others: the vendor's names that are not supported here; each with an alternative, where that helps
        """
        hint: str | None = f"the names are {', '.join(names)}"
        if not isinstance(data, dict):
            self.add(key, "must be a mapping with one name", data, hint)
            return None
        if len(data) != 1:
            self.add(key, "must hold one name", list(data), hint)
            return None
        ((written, value),) = data.items()
        by_lower = {name.lower(): name for name in (*others, *names)}
        name = by_lower.get(str(written).lower())
        below: Key = (*key, written)
        stands_at = self._document.names.get(below)
        where = below if stands_at is None else stands_at
        if name is None or name in others:
            if name is None:
                hint = did_you_mean(str(written), by_lower.values()) or hint
            if not written and stands_at is not None:
                self.add(where, "is missing", hint=hint)
            elif name is not None:
                choices = tuple(names) if len(names) <= _MAX_HINTED_KEYS else ()
                instead = others[name] if isinstance(others, Mapping) else "leave it out"
                self.add_unsupported(where, {} if stands_at is None else written, choices, instead)
            else:
                self.add(where, "is not a known name", _MISSING if stands_at is None else written, hint)
            return None
        return name, value, below

    def where(self, key: Key) -> tuple[str, str]:
        """Return the place of a value, and its key as written."""
        return self._document.place(key).label, dotted(self._document.written(key))

    def raise_found(self) -> None:
        """Raise all problems, if there are any, in the order of the file, as one ParamsError."""
        if self._found:
            found = sorted(self._found.values(), key=lambda item: item[0])
            raise ParamsError([(message, hint) for _, message, hint in found])

    def _add(self, key: Key, template: str, hint: str | None) -> None:
        place = self._document.place(key)
        key = self._document.written(key)
        if place.key == key:
            # The label already says the key.
            text = template.removeprefix("{key} ").replace("{key}", dotted(key))
        else:
            text = template.replace("{key}", dotted(key))
        # An anchor used in several places is one mistake.
        identity = (place.label, key[-1] if key else "", template)
        self._found.setdefault(identity, (place.order, f"{place.label}: {text}", hint))

    def _clean(self, section: type[Section], data: dict[str, Any], key: Key) -> dict[str, Any]:
        """Return the data for the section's fields: the vendor's other keys judged, nulls and other names gone."""
        fields = section.field_keys()
        cleaned: dict[str, Any] = {}
        for written, value in data.items():
            name = section.other_names.get(written, written)
            below = (*key, written)
            if name != written:
                self._document.moved[(*key, name)] = self._document.written(below)
                if name in data:
                    self.add(below, f"is another name of {name}: give one of the two")
                    continue
            if name in section.without_effect:
                self.note(below)
                continue
            if value is None and name not in section.null_counts and (name in fields or name in section.supported):
                continue
            if name in section.supported:
                choices = section.supported[name]
                if value not in (choices or (False,)):
                    self.add_unsupported(below, value, choices, is_about=section.is_about)
                    self._refused.add((*key, name))
                    continue
                if name not in fields:
                    continue
            inner = _inner_section(section, name)
            cleaned[name] = self._clean(inner, value, below) if inner and isinstance(value, dict) else value
        return cleaned

    def _translate(self, section: type[Section], error: dict[str, Any], key: Key) -> None:
        """Turn one of pydantic's errors into a problem."""
        kind, where, value, context = error["type"], error["loc"], error["input"], error.get("ctx", {})
        field = section.model_fields.get(str(where[0])) if where and kind != "extra_forbidden" else None
        if field is not None:
            # A default that breaks a rule is under the name of its field.
            where = (field.alias or where[0], *where[1:])
        below: Key = (*key, *where)
        if kind == "extra_forbidden":
            for part in where[:-1]:
                section = _inner_section(section, str(part)) or section
            self.add(below, "is not a known key", hint=_nearest(str(where[-1]), section.known_keys()))
        elif kind == "missing":
            if below not in self._refused:
                self.add(below, "is missing")
        elif where and where[-1] == "[key]":
            names = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ")
            self.add(below[:-1], "is not a known key", hint=_nearest(str(value), names.split(", ")))
        elif kind == "rule":
            # A null was not written: the value that breaks the rule is a default.
            shown = value is not None and not context["rule"].startswith("needs ")
            got = value if shown and not isinstance(value, dict | Section) else _MISSING
            self.add(below, context["rule"], got, context["hint"])
        else:
            expected = str(context.get("expected", "")).replace("'", "")
            rule = _RULES.get(kind)
            text = rule.format(**{**context, "expected": expected}) if rule else error["msg"]
            self.add(below, text, value, _number_hint(kind, value))


def show(value: Any) -> str:
    """Write a value in YAML, shortened."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case dict():
            return "a mapping" if value else "{}"
        case list() | tuple():
            text = ", ".join(show(item) for item in value)
            return f"[{text}]" if len(text) < 60 and not any(isinstance(v, dict) for v in value) else "a list"
        case str():
            return repr(value if len(value) <= 60 else value[:57] + "...")
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _inner_section(section: type[Section], key: str) -> type[Section] | None:
    """Return the section at a key of a section, if there is one."""
    for name, field in section.model_fields.items():
        if key == (field.alias or name):
            kinds = (field.annotation, *get_args(field.annotation))
            return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)), None)
    return None


def _nearest(word: str, known: list[str]) -> str | None:
    all_keys = f"the keys here are {', '.join(known)}" if len(known) <= _MAX_HINTED_KEYS else None
    return did_you_mean(word, known) or all_keys


def _number_hint(kind: str, value: Any) -> str | None:
    """Return a hint with the notation of the number that was probably meant."""
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if kind in {"int_type", "float_type"} and isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return None
        return f"write {value}, without quotes"
    return None
