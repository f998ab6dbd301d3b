"""`cstool system`: the machines that models are compiled for, number by number."""

import shutil
import sys
import textwrap
from typing import Annotated

from cstool.foundation.plain_text import one_line
from cstool.foundation.progress.screen import is_terminal
from cstool.foundation.terminal.command import command, new_group
from cstool.foundation.terminal.options import JsonOption, argument
from cstool.foundation.terminal.render import print_json, print_line, print_table
from cstool.foundation.words import counted
from cstool.model.commands.completion import complete_system
from cstool.training.verbs.systems import describe_host, describe_system, known_systems

system_app = new_group("Show the systems that models are compiled for.", "cstool system list", "cstool system show cs3")
_UNITS = {
    "hz": "Hz",
    "s": "s",
    "w": "W",
    "bytes": "B",
    "cycles": "cycles",
    "bytes_per_s": "B/s",
    "bytes_per_cycle": "B/cycle",
    "elements_per_cycle": "/cycle",
    "flops": "FLOP/s",
    "tokens_per_s": "tokens/s",
}
"""suffix of the name of a number -> unit"""


@command(system_app, "list", "cstool system list", "cstool system list --json")
def list_(as_json: JsonOption = False) -> None:
    """List the built-in systems, which need no system file."""
    systems = known_systems()
    if as_json:
        print_json({"systems": [{"name": system.name, "wafer": system.wafer} for system in systems]})
        return
    rows = [
        (
            system.name,
            system.wafer,
            f"{system.fabric.width} x {system.fabric.height}",
            f"{system.fabric.pes:,}",
            "none" if system.memoryx is None else _units_text(system.memoryx.units_bytes),
            f"{system.max_systems:,}",
            f"{system.power_w / 1e3:g} kW",
        )
        for system in systems
    ]
    columns = ("system", "wafer", "fabric", "PEs", "MemoryX", "systems at most", "power")
    print_table(columns, rows, right=("fabric", "PEs", "MemoryX", "systems at most", "power"))


@command(system_app, "show", "cstool system show cs3", "cstool system show my_system.yaml")
def show(
    name: Annotated[str, argument("NAME|FILE", "cs1, cs2, cs3, a system file, or host.", complete_system)],
    as_json: JsonOption = False,
) -> None:
    """Show every number of a system with its status and source, and the numbers derived from them.

    Of this machine (host) it shows the libraries for products of matrices, with their precision and speed.
    """
    if name == "host":
        _show_host(as_json)
        return
    found = describe_system(name)
    system, numbers, derived = found.system, found.numbers, found.derived
    if as_json:
        listed = [dict(zip(("key", "value", "status", "source"), number, strict=True)) for number in numbers]
        print_json(
            {
                "name": system.name,
                "wafer": system.wafer,
                "numbers": listed,
                "derived": [{"what": what, "value": value, "unit": unit} for what, value, unit in derived],
            }
        )
        return
    print_line(f"{system.name} ({system.wafer})")
    print()
    rows = [(key, f"{_text(value)} {_unit(key)}".rstrip(), status) for key, value, status, _ in numbers]
    rows += [(part, "none", "") for part in ("memoryx", "swarmx") if getattr(system, part) is None]
    print_table(("number", "value", "status"), rows, right=("value",))
    print("\nderived from these (modelled, nothing is measured)\n")
    print_table(("what", "value"), [(what, f"{_text(value)} {unit}") for what, value, unit in derived], ("value",))
    print("\nstatus")
    for status, meaning in found.statuses.items():
        print(f"  {status:<2}  {meaning}")
    print("\nsources")
    width = min(100, shutil.get_terminal_size().columns) if is_terminal(sys.stdout) else 100
    for key, _, _, source in numbers:
        print(textwrap.fill(one_line(f"{key}: {source}"), width, initial_indent="  ", subsequent_indent="      "))


def _show_host(as_json: bool) -> None:
    found = describe_host()
    if as_json:
        providers = [provider._asdict() for provider in found.providers]
        timed = [{"products": products, "speeds": speeds} for products, speeds in found.timed]
        lists = {"instructions": list(found.instructions), "providers": providers, "timed": timed}
        print_json({**found._asdict(), **lists})
        return
    print_line(f"host: {counted(found.cores, 'core')} of {found.cpu} with {', '.join(found.instructions) or 'no AVX2'}")
    print()
    rows = [
        (
            provider.name,
            provider.precision,
            "yes" if provider.is_here else "no",
            "" if provider.speed is None else f"{provider.speed:.2f}x",
            provider.reason,
        )
        for provider in found.providers
    ]
    print_table(("products by", "operands", "here", "speed", "with what, or why not"), rows, right=("speed",))
    print(
        "\nspeed: of one thread, over NumPy's float32, measured just now. --precision says which operands a run takes."
        "\nIn float32 a run times its own products, and takes the fastest one."
    )
    if found.timed:
        names = list(dict.fromkeys(name for _, speeds in found.timed for name in speeds))
        lines = [
            (products, *(f"{speeds[name]:.2f}x" if name in speeds else "" for name in names))
            for products, speeds in found.timed
        ]
        print("\ntimed for runs that began here, over NumPy's (tokens x outputs x inputs: share of the work)\n")
        print_table(("products", *names), lines, right=names)


def _units_text(units_bytes: tuple[int, ...]) -> str:
    return f"{', '.join(f'{unit / 1e12:,.4g}' for unit in units_bytes)} TB"


def _unit(key: str) -> str:
    name = key.rpartition(".")[2]
    ends = [end for end in _UNITS if name == end or name.endswith(f"_{end}")]
    return _UNITS[max(ends, key=len)] if ends else ""


def _text(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_text, value))
    if abs(value) >= 1e9:
        return f"{value:.4g}"
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
