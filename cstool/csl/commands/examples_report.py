"""Reports of `cstool fabric examples`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cstool.csl.commands.fabric_report import CLOCK_HZ
from cstool.foundation.terminal.render import print_facts, print_line, print_table
from cstool.foundation.words import time_text

if TYPE_CHECKING:
    from cstool.csl.sdk.examples import CslExample
    from cstool.csl.verbs import ExampleRun


def print_examples(examples: Sequence[CslExample]) -> None:
    """Print the programs, one a line."""
    print_table(("name", "what it computes", "source"), [(each.name, each.summary, each.source) for each in examples])
    print("\n`cstool fabric examples NAME` copies one to NAME_run, runs it, and draws its result.")


def print_example(done: ExampleRun) -> None:
    """Print the check, the cycles beside a published figure, and where the picture is."""
    stats, result, example = done.run.stats, done.result, done.example
    facts = {"computes": example.summary}
    if example.source:
        facts["source"] = example.source
    if result is not None:
        numbers = f"largest difference {result.difference:.3g} in {result.found.size:,} numbers"
        facts["check"] = f"{numbers}, {result.tolerance:.3g} is allowed"
    if stats is not None:
        cycles, per = (stats.cycles, "in all") if result is None or not result.cycles else (result.cycles, result.per)
        facts["simulated"] = f"{cycles:,.0f} cycles {per}, {time_text(cycles / CLOCK_HZ)} at 0.85 GHz"
        facts["on"] = f"{stats.width:,} x {stats.height:,} PEs of {stats.arch}, with the times of {stats.time_text}"
    if example.published:
        facts["published"] = example.published
    if done.picture is not None:
        facts["picture"] = str(done.picture)
    print()
    print_line(f"{example.name}: {done.folder}")
    print()
    print_facts(facts)


def example_document(done: ExampleRun) -> dict[str, Any]:
    """Return the same facts, ready for JSON."""
    stats, result = done.run.stats, done.result
    return {
        "name": done.example.name,
        "summary": done.example.summary,
        "source": done.example.source,
        "published": done.example.published,
        "folder": str(done.folder),
        "exit_code": done.run.code,
        "check": None if result is None else {"difference": result.difference, "tolerance": result.tolerance},
        "simulated": None
        if stats is None
        else {
            "arch": stats.arch,
            "time": stats.time,
            "width": stats.width,
            "height": stats.height,
            "cycles": stats.cycles,
            "cycles_measured": None if result is None or not result.cycles else result.cycles,
            "measured_of": None if result is None or not result.cycles else result.per,
        },
        "picture": done.picture,
    }
