"""The report of `cstool estimate` on a cluster of GPUs for the same job."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cstool.foundation.terminal.render import print_line, print_table
from cstool.foundation.words import bytes_text, counted
from cstool.plan.commands.compile_report import number_text
from cstool.plan.commands.tables import print_tried, short_time_text
from cstool.plan.verbs.results import Beside, GpuEstimate, GpuValidation, Tried, estimates_in

COLUMNS = ("GPUs", "split", "step", "tokens/s", "of peak", "bubble", "memory", "power", "per token")


def print_gpus(found: Beside) -> None:
    """Print the same job on GPUs, in a table, and the number of GPUs that are as fast as the wafers."""
    print(f"\nthe same job on GPUs ({found.gpu.name}), modelled; the fastest split whose memory fits")
    rows = list(found.rows)
    if found.match is not None and found.match.gpus not in {each.gpus for each in estimates_in(rows)}:
        rows.append(Tried(found.match.gpus, found.match))
    has_days = estimates_in(rows)[0].days is not None
    columns = (*COLUMNS, *(("training",) if has_days else ()))
    print_line("split: tensor x stages x copies, samples of a micro-batch, parts of a stage, recomputation")
    print_tried(columns, sorted(rows, key=lambda row: row.label), _cells, left=("split",))
    wafers = f"{counted(found.num_csx, 'system')} with {number_text(found.rate)} tokens/s"
    if found.match is None:
        print_line(f"no number of them that was tried is as fast as {wafers}")
    else:
        fewer = ""
        if found.fewer is not None:
            gpus, rate = found.fewer
            fewer = f"; {gpus:,} {'do not hold it' if rate is None else f'have {number_text(rate)}'}"
        print_line(f"as fast as {wafers}: {found.match.gpus:,}, of those that are powers of two{fewer}")


def _cells(_: Tried[int, GpuEstimate], found: GpuEstimate) -> Iterator[str]:
    split, step = found.step.split, found.step
    yield f"{found.gpus:,}"
    yield f"{split.tensor} x {split.stages} x {split.data}, {split.micro_batch}, {split.parts}, {split.recompute}"
    yield short_time_text(step.step_s)
    yield number_text(found.tokens_per_s)
    yield f"{found.share_of_peak:.1%}"
    yield f"{step.bubble:.1%}"
    yield bytes_text(round(step.memory_bytes))
    yield f"{number_text(found.power_w / 1e3)} kW"
    yield f"{number_text(found.joules_per_token)} J"
    if found.days is not None:
        yield f"{found.days:,.3g} days"


def gpus_document(found: Beside) -> dict[str, Any]:
    """Return all of it ready for JSON; everything is modelled."""

    def row(each: GpuEstimate) -> dict[str, Any]:
        return {
            "gpus": each.gpus,
            "fits": True,
            "kind": "modelled",
            "split": asdict(each.step.split),
            "step_s": each.step.step_s,
            "bubble": each.step.bubble,
            "memory_bytes": each.step.memory_bytes,
            "tokens_per_s": each.tokens_per_s,
            "share_of_peak": each.share_of_peak,
            "power_w": each.power_w,
            "joules_per_token": each.joules_per_token,
            "days": each.days,
        }

    return {
        "gpu": found.gpu.name,
        "rows": [
            {"gpus": each.label, "fits": False, "why": each.why} if each.estimate is None else row(each.estimate)
            for each in found.rows
        ],
        "as_fast": None if found.match is None else row(found.match),
    }


def print_gpu_validation(found: GpuValidation) -> None:
    """Print published steps on A100s beside the closed forms of GPUs."""
    print("\nGPUs: published steps on A100s; not held out\n")
    rows = [
        (each.name, number_text(each.published), number_text(each.predicted), f"{each.error:+.1%}", each.unit)
        for each in found.results
    ]
    columns = ("result", "published", "predicted", "error", "unit")
    print_table(columns, rows, right=columns[1:4])
    print()
    for source in dict.fromkeys(each.source for each in found.results):
        count, middle, average, largest = found.errors(source)
        print_line(
            f"{count}: off by {middle:.1%} in the median, {average:.1%} on average, {largest:.1%} at most: {source}"
        )


def gpu_validation_document(found: GpuValidation) -> list[dict[str, Any]]:
    """Return the results ready for JSON."""
    return [asdict(each) | {"error": each.error} for each in found.results]
