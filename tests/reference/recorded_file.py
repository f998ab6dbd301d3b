"""Files of recorded loss curves and answers: their program, then of each case digests, tensors and numbers."""

import hashlib
import json
import re
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
    """Return shapes by name; tensors that layers or experts have alike have one name: h.0|1.bias."""
    found = {name: list(shape) for name, shape in shapes.items()}
    for number in (r"(?<=experts\.)\d+", r"(?<=\.)\d+(?=\.)"):
        alike: dict[tuple[str, str, tuple[int, ...]], list[str]] = {}
        for name, shape in found.items():
            before, *rest = re.split(f"({number})", name, maxsplit=1)
            alike.setdefault((before, rest[1] if rest else "", tuple(shape)), []).extend(rest[:1])
        found = {before + "|".join(numbers) + after: list(shape) for (before, after, shape), numbers in alike.items()}
    return found


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
