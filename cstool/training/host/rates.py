"""The measurements of this host, kept beside the compiled kernels: a YAML file that people can read."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import EstimateError
from cstool.foundation.folders import cache_root
from cstool.model.optimizers import forms
from cstool.training.host.step import KINDS, PASSES, Cost, HostRates
from cstool.training.machine.grains import available_cores
from cstool.training.machine.state import environment

HEAD = """# This host as a system, measured by `cstool estimate --system host`. All of it is of this machine alone.
# costs: of a kernel on one grain, in seconds per call, more per call where lanes share, per FLOP of products, per
# vector op, per byte of weights, per byte of activations.
"""
_FAULTS = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    yaml.YAMLError,
)
"""errors of a file that is not there, or not as it was written"""


def rates_file() -> Path:
    """File of the rates of this host."""
    return cache_root() / "host.yaml"


def load_rates() -> HostRates | None:
    """Return the rates of this host; None where it was not calibrated, or was another one with other cores."""
    try:
        data = yaml.safe_load(rates_file().read_text(encoding="utf-8"))
        rates = _from_plain(data)
    except _FAULTS:
        return None
    return rates if rates.cpu == environment()["cpu"] and rates.cores == available_cores() else None


def save_rates(rates: HostRates) -> Path:
    """Keep the rates of this host, and return the file.

    Raises:
        EstimateError: it cannot be written
    """
    path = rates_file()
    plain = asdict(rates) | {"costs": {name: asdict(cost) for name, cost in sorted(rates.costs.items())}}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_replacing(path, (HEAD + yaml.safe_dump(plain, sort_keys=False)).encode())
    except OSError as error:
        raise EstimateError(
            f"{path}: cannot be written: {error.strerror}", "CSTOOL_CACHE_DIR names another folder"
        ) from error
    return path


def _from_plain(data: dict[str, Any]) -> HostRates:
    costs = {name: Cost(**{key: float(value) for key, value in cost.items()}) for name, cost in data["costs"].items()}
    numbers = [value for cost in costs.values() for value in cost.row]
    rates = HostRates(**{**data, "costs": costs, "update_s": {str(k): float(v) for k, v in data["update_s"].items()}})
    positive = (rates.cached_bytes_per_s, rates.read_bytes_per_s, rates.write_bytes_per_s)
    missing = [name for name in KINDS if f"{name} {PASSES[0]}" not in costs or f"{name} {PASSES[1]}" not in costs]
    missing += [optimizer.name for optimizer in forms() if optimizer.name not in rates.update_s]
    if missing or min([*numbers, rates.step_s]) < 0 or min(positive) <= 0:
        raise ValueError("a rate is missing, or negative")
    return rates
