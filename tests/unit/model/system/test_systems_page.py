"""docs/model/systems.md: its table has the numbers of the system files, and its example is a file that can be read."""

from __future__ import annotations

import re
from pathlib import Path

from cstool.model.system import STATUSES, System, load_system, system_names
from cstool.plan.timing.streaming import stream_of

PAGE = Path(__file__).parents[4] / "docs" / "model" / "systems.md"
DOCUMENTS = {
    "Cerebras SDK 2.10 documentation": "of the vendor, public: the language CSL, its builtins, an appendix on the PE",
    "Cerebras/csl-examples": "of the vendor, on GitHub: programs and benchmarks for the SDK, and how they are timed",
    "technical overview white paper (2022)": "of the vendor: the architecture of CS-2",
    "weight-streaming white paper (2021)": "of the vendor: MemoryX, SwarmX, and how weights are streamed",
    "announcement of weight streaming (2021)": "of the vendor, to the press",
    "CS-3 announcement (2024)": "of the vendor: WSE-3, units of MemoryX, clusters",
    "'Scaling up and out'": "of the vendor, an article of its blog",
    "the vendor's documentation": "of its software for machine learning, public: modes of execution",
    "public specification tables": "of CS-1, CS-2 and CS-3 on the vendor's pages and in the press",
    "IEEE Micro 43 (3)": "Lie, *Cerebras Architecture Deep Dive* (2023), after his talk at Hot Chips 34",
    "Hot Chips 2024": "slides of the vendor's talk on WSE-3",
    "arXiv 2010.03660": "Rocki et al., *Fast Stencil-Code Computation on a Wafer-Scale Processor*, SC20",
    "arXiv 2204.03775": "Jacquelin et al., *Scalable Distributed High-Order Stencil Computations*, SC22",
    "arXiv 2404.15888": "Luczynski et al., *Near-Optimal Wafer-Scale Reduce*, HPDC '24",
    "arXiv 2502.04563": "He et al., *WaferLLM: Large Language Model Inference at Wafer Scale*, OSDI '25",
    "public SpMM benchmark on the SDK": "raw data files of timed kernels, on GitHub",
    "lingzhi227/MIMD_dataflow": "on GitHub: benchmarks of the SDK, and the cycles that its simulator counts",
    "pedronahum/cerebras-csl-skills": "on GitHub: notes on programming with the SDK",
    "argonne-lcf/ai-science-training-series": "on GitHub: logs of training runs on a CS-2 of Argonne",
    "a user of the ALCF AI Testbed": "on GitHub: logs that users of Argonne's CS-3 have published",
    "argonne-lcf/user-guides": "on GitHub: how Argonne's CS-2 and CS-3 are used, with logs of runs",
    "documentation of Cerebras/modelzoo": "of the vendor, on GitHub: parameters of runs",
    "press on Andromeda (2022)": "what magazines were told of a cluster of 16 CS-2",
    "'Wafer-Scale Innovation for Next-Gen AI Acceleration' (2025)": "slides of the vendor",
    "EPCC's CS-3 workshop": "logs of training runs on a CS-3 of EPCC, 2026",
}
"""as sources name them -> what they are"""


def rows(system: System) -> dict[str, str]:
    memoryx, pe = system.memoryx, system.pe
    capacity = stream = "none"
    if memoryx is not None:
        capacity = f"{', '.join(f'{unit / 1e12:,.4g}' for unit in memoryx.units_bytes)} TB"
        passing = stream_of(system, 16)
        stream = f"{passing.weight_bytes}, {passing.nonzero_bytes}, {passing.gradient_bytes} B"
    spread = "none" if system.swarmx is None else f"{system.swarmx.straggler_share:.1%}"
    workers = delivered = norm = "none"
    if system.hosts is not None:
        workers = f"{system.hosts.workers_per_csx}"
        releases = system.hosts.releases.items()
        delivered = ", ".join(f"{n}: {r.tokens_per_s / 1e6:.2f}M/s" for n, r in releases if r.tokens_per_s) or "unknown"
        norm = ", ".join(f"{n}: {1e3 * r.norm_s:.0f} ms" for n, r in releases if r.norm_s)
    return {
        "wafer": system.wafer,
        "PEs that programs can use": f"{system.fabric.width} x {system.fabric.height} = {system.fabric.pes:,}",
        "SRAM of a PE": f"{pe.sram_bytes:,} B",
        "clock": f"{system.clock_hz / 1e9:g} GHz",
        "16-bit multiply-adds per PE and cycle": f"{pe.simd['fmach']}",
        "with 32-bit sums": f"{pe.simd['fmachs']}",
        "32-bit multiply-adds": f"{pe.simd['fmacs']}",
        "reads and writes per PE and cycle": f"{pe.read_bytes_per_cycle} + {pe.write_bytes_per_cycle} B",
        "accumulator cache of a PE": f"{pe.accumulator_cache_bytes} B",
        "banks of its memory": f"{pe.banks}, words of {pe.bank_word_bytes} B",
        "of a PE's rate, sustained": f"{pe.efficiency:.1%}",
        "attainable, 16 bits": f"{system.fabric.pes * pe.simd['fmach'] * 2 * system.clock_hz / 1e15:.2f} PFLOP/s",
        "links off the wafer": f"{system.io_bytes_per_s / 1e9:g} GB/s",
        "colors, of which for input and output": f"{system.links.colors}, {system.links.io_colors}",
        "MemoryX": capacity,
        "a weight, a non-zero, a gradient on the links": stream,
        "systems of a cluster at most": f"{system.max_systems:,}",
        "spread of their times": spread,
        "input workers of a system": workers,
        "tokens that one delivers, by release": delivered,
        "wait for a global norm, by release": norm,
        "power at work, and idle": f"{system.power_w / 1e3:g} kW, {system.idle_power_w / 1e3:g} kW",
    }


def test_the_page_has_the_numbers_of_the_files(golden):
    columns = [rows(load_system(name)) for name in system_names()]
    lines = [f"| | {' | '.join(system_names())} |", "|---|" + "---|" * len(columns)]
    lines += [f"| {what} | {' | '.join(column[what] for column in columns)} |" for what in columns[0]]
    statuses = "\n".join(["| status | |", "|---|---|", *(f"| {key} | {text} |" for key, text in STATUSES.items())])
    documents = "\n".join(f"- {name}: {what}." for name, what in DOCUMENTS.items())
    page = PAGE.read_text(encoding="utf-8")
    for block in (statuses, "\n".join(lines), documents):
        first = re.escape(block.partition("\n")[0].partition(":")[0])
        page, count = re.subn(rf"^{first}.*?(?=\n\n|\n\Z)", lambda _, block=block: block, page, flags=re.M | re.S)
        assert count == 1, block
    golden("../../docs/model/systems.md", page)


def documents_of(source: str) -> set[str]:
    return {name for name in DOCUMENTS if name in source}


def test_sources_name_documents_of_the_list_or_say_what_a_number_comes_from():
    named: set[str] = set()
    for name in system_names():
        for key, (status, source) in load_system(name).sources.items():
            found = documents_of(source)
            named |= found
            match status:
                case "R1" | "R2" | "F":
                    assert found, f"{name}, {key}: {source}"
                case "D":
                    assert found or source.startswith("as WSE-2: "), f"{name}, {key}: {source}"
                case "X":
                    assert re.search("CS-[23]|WSE-2", source), f"{name}, {key}: {source}"
                case _:
                    assert (status, source[:6]) == ("C", "chosen"), f"{name}, {key}: {source}"
    assert named == set(DOCUMENTS)


def test_few_numbers_are_fitted():
    fitted = [
        (name, key)
        for name in system_names()
        for key, (status, _) in load_system(name).sources.items()
        if status == "F"
    ]
    assert [found for found in fitted if not found[1].startswith("hosts.")] == [
        ("cs2", "pe.vector_op_cycles"),
        ("cs2", "pe.call_cycles"),
        ("cs2", "pe.efficiency"),
        ("cs3", "pe.efficiency"),
        ("cs3", "swarmx.straggler_share"),
    ]
    # What hosts do is known from logs of runs alone: each number is what one log says, and says which.
    hosts = [(name, key) for name, key in fitted if key.startswith("hosts.")]
    assert all("log of " in load_system(name).sources[key][1] for name, key in hosts)
    assert len(hosts) == 8
    assert load_system("cs1").pe.efficiency == load_system("cs2").pe.efficiency


def test_the_example_is_a_system(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    *_, example = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    Path("mine.yaml").write_text(example)
    system, cs3 = load_system("mine.yaml"), load_system("cs3")
    assert system.clock_hz == 1.1e9
    assert system.memoryx is not None
    assert cs3.memoryx is not None
    assert system.memoryx.capacity_bytes == 2 * cs3.memoryx.capacity_bytes
    assert system.memoryx.units_bytes == (*cs3.memoryx.units_bytes, 2 * cs3.memoryx.capacity_bytes)
    assert system.memoryx.bytes_per_s == cs3.memoryx.bytes_per_s
