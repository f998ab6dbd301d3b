"""docs/systems.md: its table has the numbers of the system files, and its example is a file that can be read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cstool.arch import STATUSES, System, load_system, system_names

PAGE = """\
# Systems

The machine is data: one YAML file for each system, which `cstool compile --system` and `cstool run --system` take by
name or by path. No number of the hardware stands in the code. `cstool system list` lists the three that come along,
`cstool system show cs2` prints every number with its source.

A number is a value, a status and a source:

```yaml
clock_hz:
  value: 0.85e9
  status: R1
  source: "every timed kernel of Cerebras/csl-examples divides cycles by 0.85 GHz"
```

{statuses}

What is not published is said to be so. The bytes that code and stack take of a PE are chosen; most of what is below
the headline figures of WSE-1 and WSE-3 is taken over from WSE-2, whose SDK documentation is public. Headline figures
(850,000 cores, 40 GB) count more PEs than programs can use; the files take what programs can use, and say so.

## The three

{table}

WSE-1 stands alone: no MemoryX, so no weight streaming, and no SwarmX. WSE-3 has wider vector instructions, but the
ports of its memory did not grow with them; an AXPY reads two vectors and writes one, so what makes it faster here is
that it has more PEs.

## One of your own

A file may start from a known system and change some numbers. What it leaves out comes along, sources and all:

```yaml
extends: cs3
clock_hz:
  value: 1.1e9
  status: X
  source: "what is said of its peak"
memoryx:
  capacity_bytes:
    value: 2400_000_000_000_000
    status: C
    source: "what if it had the MemoryX of 2021"
```

`memoryx: null` and `swarmx: null` take these away. Without `extends` a file must have every number. All mistakes of a
file are told at once, each with its line. The name of the file is the name of the system; an artifact holds all
numbers that it was compiled for.
"""


def rows(system: System) -> dict[str, str]:
    memoryx, pe = system.memoryx, system.pe
    capacity = "none" if memoryx is None else f"{memoryx.capacity_bytes / 1e12:,.0f} TB"
    return {
        "wafer": system.wafer,
        "PEs that programs can use": f"{system.fabric.width} x {system.fabric.height} = {system.fabric.pes:,}",
        "SRAM of a PE": f"{pe.sram_bytes:,} B",
        "clock": f"{system.clock_hz / 1e9:g} GHz",
        "16-bit multiply-adds per PE and cycle": f"{pe.simd['fmach']}",
        "with 32-bit sums": f"{pe.simd['fmachs']}",
        "32-bit multiply-adds": f"{pe.simd['fmacs']}",
        "reads and writes per PE and cycle": f"{pe.read_bytes_per_cycle} + {pe.write_bytes_per_cycle} B",
        "attainable, 16 bits": f"{system.fabric.pes * pe.simd['fmach'] * 2 * system.clock_hz / 1e15:.2f} PFLOP/s",
        "links off the wafer": f"{system.io_bytes_per_s / 1e9:g} GB/s",
        "colors, of which for input and output": f"{system.links.colors}, {system.links.io_colors}",
        "MemoryX at most": capacity,
        "systems of a cluster at most": f"{system.max_systems:,}",
        "power": f"{system.power_w / 1e3:g} kW",
    }


def test_the_page_has_the_numbers_of_the_files(golden: Callable[[str, str], None]) -> None:
    columns = [rows(load_system(name)) for name in system_names()]
    lines = [f"| | {' | '.join(system_names())} |", "|---|" + "---|" * len(columns)]
    lines += [f"| {what} | {' | '.join(column[what] for column in columns)} |" for what in columns[0]]
    statuses = "\n".join(["| status | |", "|---|---|", *(f"| {key} | {text} |" for key, text in STATUSES.items())])
    golden("../../docs/systems.md", PAGE.format(table="\n".join(lines), statuses=statuses))


def test_the_example_is_a_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, example = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    Path("mine.yaml").write_text(example)
    system, cs3 = load_system("mine.yaml"), load_system("cs3")
    assert system.clock_hz == 1.1e9
    assert system.memoryx is not None
    assert cs3.memoryx is not None
    assert system.memoryx.capacity_bytes == 2 * cs3.memoryx.capacity_bytes
    assert system.memoryx.bytes_per_s == cs3.memoryx.bytes_per_s
