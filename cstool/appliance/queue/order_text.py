"""A job's order as JSON: the content of its `job.json`, and back."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from cstool.appliance.queue.job import PRIORITIES, JobOrder, Needs

FORMAT = 1
"""version of `job.json`"""
_TUPLES = ("typed", "program", "run_words", "compile_words", "backend_options")
_PATHS = ("working_dir", "model_dir", "compile_dir")


def order_text(order: JobOrder) -> str:
    """Return an order as JSON, ASCII alone, with a line for each field."""
    found: dict[str, Any] = {"format": FORMAT}
    for field in fields(order):
        value = getattr(order, field.name)
        if field.name in _PATHS:
            value = str(value)
        elif field.name in ("environment", "labels"):
            value = dict(value)
        elif field.name == "needs":
            value = {**asdict(value), "sources": dict(value.sources)}
        found[field.name] = value
    return json.dumps(found, indent=1) + "\n"


def order_of(text: bytes) -> JobOrder:
    """Return the order of a text that `order_text` made.

    Raises:
        ValueError: it is none, or of another cstool
    """
    try:
        found = json.loads(text)
        version = found.pop("format")
        if version == FORMAT and found["priority"] in PRIORITIES:
            found |= {name: tuple(found[name]) for name in _TUPLES}
            found |= {name: Path(found[name]) for name in _PATHS}
            return JobOrder(**{**found, "needs": Needs(**found["needs"])})
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError("it is no order") from error
    raise ValueError("it is no order" if version == FORMAT else "it is of another cstool")
