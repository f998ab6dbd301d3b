"""The files of recorded loss curves: what made them, and by case digests and numbers."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def nine_digits(numbers: list[float]) -> list[float]:
    """Return the numbers with the nine significant digits that tell any two float32 apart."""
    return [float(f"{number:.9g}") for number in numbers]


def config_digest(config: Mapping[str, Any]) -> str:
    """16 hex digits that tell configs apart."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def write_curves(path: Path, made_by: str, cases: Mapping[str, Any]) -> None:
    """Write the file; `made_by` names the program and its versions. Of the config of a case it has the digest."""
    recorded = {
        name: {"config_digest": config_digest(case["config"]), **{k: v for k, v in case.items() if k != "config"}}
        for name, case in cases.items()
    }
    text = json.dumps({"made_by": made_by, "cases": recorded}, indent=2)
    # Lists of numbers read better on one line.
    text = re.sub(r"\[([^][{}]*)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    path.write_text(text + "\n")


def read_curves(name: str, configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was recorded by case, with its config.

    Raises:
        ValueError: a config is another one than the curve was recorded with
    """
    cases: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text())["cases"]
    if changed := [case for case in cases if config_digest(configs[case]) != cases[case]["config_digest"]]:
        raise ValueError(f"{name} was recorded with other configs of {', '.join(changed)}")
    return {case: {**found, "config": configs[case]} for case, found in cases.items()}
