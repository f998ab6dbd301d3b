"""A recorded run as a page: one HTML file with its data, style and script; nothing of it is asked from a network."""

import base64
import hashlib
import html
import json
from importlib import resources
from string import Template
from typing import Any

import numpy as np

from cstool.csl.fabric.arch import ARCHS, OWN_QUEUE
from cstool.csl.fabric.time_model import TIME_MODELS
from cstool.csl.fabric.trace import ACTS, Recorded
from cstool.csl.page.coding import differences, packed
from cstool.csl.page.tracks import Sampled, Tracks
from cstool.foundation.plain_text import one_line

SCRIPTS = ("data.js", "colours.js", "state.js", "grid.js", "timeline.js", "panels.js", "page.js")
FULL = 4_000_000
"""bytes of events, as text, up to which a page is not sampled where nothing else is asked for"""
FEWEST = 200
"""samples that a run keeps, however large it is"""
LARGEST = 60_000_000
"""bytes of a page that a browser still opens within seconds"""
MOST_CYCLES = 2**50
"""cycles that the numbers of a browser have exactly, with room for sums"""
MEMORY = 16_000_000
"""bytes of variables that a page shows at most"""


def _tables(sampled: Sampled) -> dict[str, Tracks]:
    """The tracks of the page, by the names that its script has for them."""
    return {
        "hops": sampled.hops(),
        "turns": sampled.turns(),
        "lines": sampled.lines(),
        "tasks": sampled.tasks(),
        "ops": sampled.operations(),
        "fills": sampled.fills(),
        "waits": sampled.waits(),
        "line_cycles": sampled.line_cycles(),
    }


def fitting_sampling(trace: Recorded) -> int:
    """The cycles from sample to sample with which the events of a trace have `FULL` bytes at most, or few samples."""
    every = 1
    while True:
        sampled = Sampled(trace, every)
        size = len(packed([part for table in _tables(sampled).values() for part in table.parts()]))
        if size <= FULL or sampled.samples <= FEWEST:
            return every
        every = max(every + 1, every * size // FULL)


def page_of(trace: Recorded, title: str, every: int = 1) -> str:
    """The page of a trace.

    Args:
        trace: the trace
        title: name of the run; any text
        every: cycles from sample to sample: 1 for all of them
    """
    sampled = Sampled(trace, every)
    tables = _tables(sampled)
    context = trace.context
    memory = context.memory.tobytes()
    about = _about(trace, sampled) | {"tables": [(name, each.shape) for name, each in tables.items()]}
    if len(memory) > MEMORY:
        memory = b""
        about["memory_left_out"] = f"left out: more than {MEMORY:,} bytes in all"
    grids = [trace.tiles, *(context.routes[color] for color in about["colors"])]
    parts = [differences(each.astype(np.int64).ravel()) for each in grids]
    parts += [part for table in tables.values() for part in table.parts()]
    return _document(title, about, packed([*parts, memory]))


def _about(trace: Recorded, sampled: Sampled) -> dict[str, Any]:
    """Facts of the page beside its numbers, for JSON."""
    context, arch = trace.context, ARCHS[trace.arch]
    places, files = _places(trace)
    return {
        "arch": trace.arch,
        "time": TIME_MODELS[trace.time].text,
        "width": trace.width,
        "height": trace.height,
        "origin": context.origin,
        "end": sampled.end,
        "every": sampled.every,
        "samples": sampled.samples,
        "notes": _notes(trace, sampled),
        "programs": trace.programs,
        "words": trace.words,
        "places": places,
        "files": files,
        "acts": ACTS,
        "queues": (arch.input_queues, arch.output_queues),
        "own_queue": OWN_QUEUE,
        "colors": sorted(context.routes),
        "configs": context.configs,
        "streams": dict(context.streams),
        "variables_of": context.variables,
        "log": context.log,
        "failure": context.failure,
        "memory_left_out": "",
    }


def _notes(trace: Recorded, sampled: Sampled) -> list[str]:
    """Warnings for the reader: parts of the run that are not there."""
    found = []
    if sampled.every > 1:
        found.append(
            f"This page is sampled: it has every {_ordinal(sampled.every)} cycle. Counts of wavelets and of lines are "
            "of all cycles; what begins and ends between two samples is not shown."
        )
    if trace.is_cut:
        found.append("More happened than was recorded: the trace is cut.")
    return found


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _places(trace: Recorded) -> tuple[list[tuple[int, int] | None], list[dict[str, str | None]]]:
    """The file and the line of each place, None for one of none; the files."""
    names: dict[str, int] = {}
    places: list[tuple[int, int] | None] = []
    for place in trace.places:
        name, _, line = place.rpartition(":")[0].rpartition(":")
        places.append((names.setdefault(name, len(names)), int(line)) if name and line.isdecimal() else None)
    for name in trace.context.sources:
        names.setdefault(name, len(names))
    return places, [{"shown": _shown(name), "text": trace.context.sources.get(name)} for name in names]


def _shown(name: str) -> str:
    """A file as the page names it: of a path from the root the last two parts, for pages go to others."""
    return "/".join(name.split("/")[-2:]) if name.startswith("/") else name


def _document(title: str, about: dict[str, Any], data: str) -> str:
    """The HTML. The about is JSON without a <, so that nothing in it ends its element."""
    files = resources.files("cstool.csl.page") / "static"
    script = "\n".join(['"use strict";', *((files / name).read_text() for name in SCRIPTS)])
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    text = json.dumps(about, ensure_ascii=True).replace("<", "\\u003c")
    template = Template((files / "page.html").read_text())
    return template.substitute(
        title=html.escape(one_line(title)),
        policy=html.escape(policy),
        style=(files / "page.css").read_text(),
        about=text,
        data=data,
        script=script,
    )
