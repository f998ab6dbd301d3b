"""The files of recorded loss curves: what made them, and by case the config, digests and numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def nine_digits(numbers: list[float]) -> list[float]:
    """Return the numbers with the nine significant digits that tell any two float32 apart."""
    return [float(f"{number:.9g}") for number in numbers]


def write_curves(path: Path, made_by: str, cases: Mapping[str, Any]) -> None:
    """Write the file; `made_by` names the program and its versions."""
    text = json.dumps({"made_by": made_by, "cases": cases}, indent=2)
    # Lists of numbers read better on one line.
    text = re.sub(r"\[([^][{}]*)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    path.write_text(text + "\n")
