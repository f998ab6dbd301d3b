"""Files of recorded loss curves and answers: their program, then of each case digests, tensors and numbers."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

Shapes = Mapping[str, Sequence[int]]
LINE = 120


def nine_digits(numbers: list[float]) -> list[float]:
    """Return the numbers with the nine significant digits that tell any two float32 apart."""
    return [float(f"{number:.9g}") for number in numbers]


def config_digest(config: Mapping[str, Any]) -> str:
    """16 hex digits that tell configs apart."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def write_curves(path: Path, made_by: str, cases: Mapping[str, Any], **more: Any) -> None:
    """Write the file; `made_by` names the program and its versions. Of the config of a case it has the digest."""
    recorded = {
        name: {"config_digest": config_digest(case["config"]), **{k: v for k, v in case.items() if k != "config"}}
        for name, case in cases.items()
    }
    path.write_text(as_text({**more, "made_by": made_by, "cases": recorded}))


def as_text(recorded: Any, depth: int = 0) -> str:
    """Return a file as JSON: lists of numbers on one line each, short entries side by side."""
    text, end = json.dumps(recorded), "" if depth else "\n"
    is_row = isinstance(recorded, list) and not any(isinstance(entry, list | dict | str) for entry in recorded)
    if is_row or not isinstance(recorded, list | dict) or 0 < depth < LINE - len(text):
        return text + end
    if isinstance(recorded, dict):
        entries = [f"{json.dumps(name)}: {as_text(entry, depth + 1)}" for name, entry in recorded.items()]
    else:
        entries = [as_text(entry, depth + 1) for entry in recorded]
    lines = entries[:1]
    for entry in entries[1:]:
        if "\n" in lines[-1] + entry or depth + len(f" {lines[-1]}, {entry},") > LINE:
            lines.append(entry)
        else:
            lines[-1] += f", {entry}"
    inner = ",\n".join(" " * (depth + 1) + line for line in lines)
    return f"{text[0]}\n{inner}\n{' ' * depth}{text[-1]}{end}"


def folded(shapes: Shapes) -> dict[str, list[int]]:
    """Return shapes by name; tensors of a shape whose names differ in one word have one name: h.0|1.bias."""
    found = {tuple(name.split(".")): tuple(shape) for name, shape in shapes.items()}
    for place in range(max(map(len, found))):
        alike: dict[tuple[tuple[str, ...], tuple[int, ...]], list[str]] = {}
        for words, shape in found.items():
            others = (*words[:place], "", *words[place + 1 :]) if place < len(words) else words
            alike.setdefault((others, shape), []).extend(words[place : place + 1])
        found = {tuple(word or "|".join(own) for word in others): shape for (others, shape), own in alike.items()}
    return {".".join(words): list(shape) for words, shape in found.items()}


def unfolded(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Return shapes by the name of each tensor: `folded` undone."""
    found = {}
    for name, shape in shapes.items():
        for words in product(*(word.split("|") for word in name.split("."))):
            found[".".join(words)] = tuple(shape)
    return found


def read_curves(name: str, configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was recorded by case, with its config.

    Raises:
        ValueError: a config is another one than the curve was recorded with
    """
    cases: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text())["cases"]
    if changed := [case for case in cases if config_digest(configs[case]) != cases[case]["config_digest"]]:
        raise ValueError(f"{name} was recorded with other configs of {', '.join(changed)}")
    return {case: {**found, "config": configs[case]} for case, found in cases.items()}
