"""Changes of a document by the command line: `--set key=value` and typed flags."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cstool.foundation.errors import ParamsError
from cstool.foundation.yaml_lines.document import Document, Key, Place, dotted, parse_value

_AFTER_THE_FILE = 2**31
"""Messages about the command line come after messages about the file, in the order of typing."""


def apply_overrides(document: Document, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]]) -> None:
    """Change values of a document: first each `--set` in its order, then the flags.

    Args:
        overrides: `trainer.init.loop.max_steps=20`; the value is YAML, a number in the key is a list index
        flags: dotted key -> (flag as typed, value)

    Raises:
        ParamsError: an override is not KEY=VALUE, or its key leads through something that is not a mapping.
    """
    problems: list[tuple[str, str | None]] = []
    order = _AFTER_THE_FILE
    changes: list[tuple[str, str, Any]] = []
    for text in overrides:
        name, equals, value = text.partition("=")
        label = f"--set {text}"
        if not equals or not all(name.strip().split(".")):
            problems.append((f"{label}: must be KEY=VALUE", "for example --set trainer.init.loop.max_steps=20"))
            continue
        try:
            changes.append((name.strip(), label, parse_value(value, label)))
        except ParamsError as error:
            problems += error.problems
    for name, (label, value) in flags.items():
        changes.append((name, label, str(value) if isinstance(value, Path) else value))
    for name, label, value in changes:
        order += 1
        for each in _in_all_trainers(document, name):
            if (rule := _change(document, each, copy.deepcopy(value), Place(label, order))) is not None:
                problems.append((f"{label}: {rule}", None))
                break
    if problems:
        raise ParamsError(problems)


def _in_all_trainers(document: Document, name: str) -> list[str]:
    """Return the keys that a dotted key means: `trainer.init.seed` is a key of every trainer of a list."""
    first, _, rest = name.partition(".")
    trainers = document.data.get("trainer")
    if first != "trainer" or not isinstance(trainers, list) or not rest or rest.partition(".")[0].isdecimal():
        return [name]
    return [f"trainer.{index}.{rest}" for index in range(len(trainers))]


def _change(document: Document, name: str, value: Any, place: Place) -> str | None:
    """Set one value, and the place of all keys that it brings; return the problem, if any."""
    key: Key = ()
    holder: Any = document.data
    parts = name.split(".")
    touched: list[Key] = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        at: str | int = part
        if isinstance(holder, list):
            if not part.isdecimal() or int(part) >= len(holder):
                return f"{dotted(key)} is a list of {len(holder)}, so a number below that must follow, got {part!r}"
            at = int(part)
        elif not isinstance(holder, dict):
            return f"{dotted(key)} must be a mapping to hold {part!r}"
        key = (*key, at)
        if last:
            document.forget(key)
            holder[at] = value
            touched.append(key)
        elif isinstance(holder, dict) and holder.get(part) is None:
            holder[at] = {}
            touched.append(key)
        holder = holder[at]
    for changed in touched:
        if document.moved:
            document.moved[changed] = changed
        document.places[changed] = Place(place.label, place.order, key)
    return None
