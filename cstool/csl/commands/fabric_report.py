"""Reports of `cstool fabric` on runs, routes and traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cstool.foundation.terminal.render import print_facts, print_line, print_table
from cstool.foundation.words import counted, time_text

if TYPE_CHECKING:
    from cstool.csl.fabric.stats import FabricStats
    from cstool.csl.fabric.trace_view import Hop as FabricHop
    from cstool.csl.fabric.trace_view import Run as FabricWavelets
    from cstool.csl.fabric.trace_view import Span as FabricSpan
    from cstool.csl.verbs import BuiltinCoverage, ColorUse

CLOCK_HZ = 0.85e9
"""clock at which published kernels of the vendor's SDK were timed (H10)"""
_NAMES = {
    "busy": "cycles with a task",
    "tasks": "tasks",
    "elements": "vector elements",
    "received": "wavelets received",
    "sent": "wavelets sent",
}


def print_stats(stats: FabricStats, title: str) -> None:
    """Print the counts of a run: facts, and of PEs the least, the mean and the most."""
    print_line(f"{title}: {stats.width:,} x {stats.height:,} PEs of {stats.arch}")
    print_line(f"Simulated with the times of {stats.time_text}, measured on no wafer.")
    print()
    x, y, port, most = stats.hottest()
    busy = stats.busy_share
    carried = f"{counted(most, 'wavelet')} in {most / max(1, stats.cycles):.1%} of the cycles"
    print_facts(
        {
            "cycles": f"{stats.cycles:,}, which are {time_text(stats.cycles / CLOCK_HZ)} at 0.85 GHz",
            "busy": f"{busy.mean():.1%} of the cycles in the mean of all PEs, {busy.max():.1%} at most",
            "fullest link": f"PE {x}.{y} to the {port}, {carried}"
            if most
            else "none: no wavelet left a PE for another",
        }
    )
    print()
    rows = []
    for name, text in _NAMES.items():
        grid = stats.pes[name]
        low, high = int(grid.argmin()), int(grid.argmax())
        mean = f"{grid.mean():,.1f}"
        rows.append((text, f"{grid.flat[low]:,}", _pe(low, stats), mean, f"{grid.flat[high]:,}", _pe(high, stats)))
    print_table(("of a PE", "least", "where", "mean", "most", "at"), rows, right=("least", "mean", "most"))


def _pe(number: int, stats: FabricStats) -> str:
    return f"PE {number % stats.width}.{number // stats.width}"


def stats_document(stats: FabricStats) -> dict[str, Any]:
    """Return the facts of the report, and the numbers of every PE and link by row, ready for JSON."""
    x, y, port, most = stats.hottest()
    return {
        "arch": stats.arch,
        "time": stats.time,
        "width": stats.width,
        "height": stats.height,
        "cycles": stats.cycles,
        "busy_share": {"mean": float(stats.busy_share.mean()), "most": float(stats.busy_share.max())},
        "fullest_link": {"pe": [x, y], "port": port, "wavelets": most},
        "pes": {name: grid.tolist() for name, grid in stats.pes.items()},
        "links": {name: grid.tolist() for name, grid in stats.links.items()},
    }


def print_colors(colors: Sequence[ColorUse]) -> None:
    """Print the routes of each color."""
    if not colors:
        print("no color has a route")
        return
    numbers = ("routers", "PEs that send", "PEs that take", "switch positions")
    named = any(use.streams for use in colors)
    rows = [
        (
            str(use.color),
            *[", ".join(use.streams)] * named,
            *(f"{count:,}" for count in (use.routers, use.sends, use.takes, use.positions)),
        )
        for use in colors
    ]
    print_table(("color", *["stream"] * named, *numbers), rows, right=("color", *numbers))


def print_trace(facts: Mapping[str, str]) -> None:
    """Print the size of a trace."""
    print_facts(facts)
    print("\n--pe X.Y tells what a PE did, --link X.Y:EAST what a link carried, --chrome FILE writes it for Perfetto.")


def print_did(title: str, spans: Sequence[FabricSpan], runs: Sequence[FabricWavelets]) -> None:
    """Print the acts of a PE, and the wavelets that came to it, by their first cycle."""
    print_line(f"{title}: tasks, operations and wavelets in order; cycles are simulated")
    print()
    depth: dict[str, list[int]] = {}
    rows = []
    for span in spans:
        around = depth.setdefault(span.thread, [])
        while around and around[-1] <= span.begin:
            around.pop()
        name = f"{'  ' * len(around)}{span.name}{'' if span.is_over else ', not at its end'}"
        rows.append((span.begin, f"{span.begin:,}", f"{span.end:,}", f"{span.end - span.begin:,}", span.thread, name))
        around.append(span.end)
    for run in runs:
        came = f"{counted(run.wavelets, 'wavelet')} of color {run.color}{' and control' if run.controls else ''}"
        cycles = f"{run.end - run.begin + 1:,}"
        rows.append((run.begin, f"{run.begin:,}", f"{run.end:,}", cycles, "ramp", came))
    ordered = [row[1:] for row in sorted(rows, key=lambda row: row[0])]
    print_table(("from", "to", "cycles", "thread", "what"), ordered, right=("from", "to", "cycles"))


def print_carried(title: str, hops: Sequence[FabricHop]) -> None:
    """Print the wavelets of a link, one a line."""
    print_line(f"{title}: {counted(len(hops), 'wavelet')}, cycles are simulated")
    if not hops:
        return
    print()
    rows = [
        (f"{hop.time:,}", str(hop.color), f"0x{hop.data:08x}", "control" if hop.control else "data") for hop in hops
    ]
    print_table(("cycle", "color", "word", "kind"), rows, right=("cycle", "color"))


def print_builtins(builtins: Sequence[BuiltinCoverage]) -> None:
    """Print the supported builtins, and below them the refused ones."""
    known = [each for each in builtins if each.is_supported]
    print_table(
        ("builtin", "arguments", "where", "only", "what it does"),
        [(each.name, each.arguments, each.where, each.arch, each.meaning) for each in known],
    )
    refused = [(each.name, each.meaning) for each in builtins if not each.is_supported]
    print(f"\nrefused: {len(refused)} of {len(builtins)}\n")
    print_table(("builtin", "why"), refused)


def builtins_markdown(builtins: Sequence[BuiltinCoverage]) -> str:
    """Return the same as one table in Markdown."""
    lines = ["| builtin | arguments | where | what it does, or why it is refused |", "|---|---|---|---|"]
    for each in builtins:
        only = f" ({each.arch})" if each.arch else ""
        meaning = (each.meaning if each.is_supported else f"refused: {each.meaning}").replace("|", "\\|")
        lines.append(f"| `{each.name}`{only} | {each.arguments} | {each.where} | {meaning} |")
    return "\n".join(lines) + "\n"
