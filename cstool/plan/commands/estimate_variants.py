"""The report of `cstool estimate` on variants of a model: frozen weights, adapters, recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cstool.foundation.terminal.options import flag, option
from cstool.foundation.terminal.render import print_line, print_table
from cstool.foundation.words import bytes_text, time_text

if TYPE_CHECKING:
    from cstool.plan.estimation import Estimate
    from cstool.plan.verbs.estimate_variants import RecomputeChoice

ADAPTERS = (".lora_A", ".lora_B")
"""ends of the names of adapters' weights"""
CHOICE_COLUMNS = ("--recompute", "layers again", "micro-batch", "step", "speed", "SRAM of a PE", "mode")


@dataclass(frozen=True)
class ModelVariantFlags:
    """Hypothetical changes of the model. They are for estimates alone: `cstool run` trains all weights."""

    frozen: Annotated[
        str | None,
        option("--frozen", "WHAT,...", "Estimate only: weights that are not trained, by pattern, or first:N layers."),
    ] = None
    adapters: Annotated[
        str | None,
        option("--adapters", "rank=R,layers=L,...", "Estimate only: low-rank adapters, all else frozen."),
    ] = None


@dataclass(frozen=True)
class VariantFlags(ModelVariantFlags):
    """Hypothetical changes of an estimate."""

    recompute_table: Annotated[
        bool, flag("--recompute_table", "Compare the choices of --recompute, by time and SRAM.")
    ] = False


def trained_text(found: Estimate) -> str | None:
    """Return in words the number of trained weights, where not all are."""
    graph = found.artifact.graph
    if graph.trained_count == graph.parameter_count:
        return None
    share = graph.trained_count / graph.parameter_count
    adapters = sum(
        segment.count * weight.size
        for segment in graph.segments
        for weight in segment.weights
        if weight.name.endswith(ADAPTERS)
    )
    of_all = f"{graph.trained_count:,} of {graph.parameter_count:,} weights, {share:.3%}"
    kind = ", all of them of adapters" if adapters == graph.trained_count else ""
    return f"{of_all}{kind}; the others are frozen: no gradient, no update, no optimizer state"


def print_estimate_only(asked: ModelVariantFlags, of_file: str | None) -> None:
    """Say that a run does no such thing, where some of it was estimated.

    Args:
        asked: flags of the command
        of_file: the adapters of the file, which count where no others are asked for; None where it has none
    """
    if not (asked.frozen or asked.adapters or of_file):
        return
    if of_file is not None and not asked.adapters:
        print_line(f"adapters as the callback Lora of the file has them: --adapters {of_file}")
    print_line("--frozen and --adapters are of estimates alone: cstool run trains all weights")


def print_choices(choices: Sequence[RecomputeChoice]) -> None:
    """Print time and memory of the choices of recomputation."""
    print("\nactivations recomputed in the backward pass, choice by choice, modelled")
    fitting = [choice for choice in choices if choice.estimate is not None]
    base = fitting[0].estimate.step_s if fitting and fitting[0].estimate is not None else 1.0
    table = [tuple(_cells(choice.name, choice.estimate, base)) for choice in fitting if choice.estimate is not None]
    print_table(CHOICE_COLUMNS, table, right=CHOICE_COLUMNS[1:-1])
    for choice in choices:
        if choice.estimate is None:
            print_line(f"{choice.name}: left out: {choice.why}")


def _cells(name: str, found: Estimate, base_s: float) -> Iterator[str]:
    artifact = found.artifact
    levels = artifact.recompute.levels
    yield name
    yield f"{levels}x" if levels else "-"
    yield f"{artifact.micro_batch_size:,}" if artifact.streaming is not None else "-"
    yield time_text(found.step_s).partition(" (")[0]
    yield f"{base_s / found.step_s:.2f}x"
    yield f"{bytes_text(artifact.sram_used_bytes)} of {bytes_text(artifact.system.pe.sram_bytes)}"
    yield artifact.mode


def choices_document(choices: Sequence[RecomputeChoice]) -> list[dict[str, Any]]:
    """Return the choices ready for JSON."""
    found = []
    for choice in choices:
        estimate = choice.estimate
        if estimate is None:
            found.append({"recompute": choice.name, "fits": False, "why": choice.why})
            continue
        artifact = estimate.artifact
        found.append(
            {
                "recompute": choice.name,
                "fits": True,
                "kind": "modelled",
                "levels": artifact.recompute.levels,
                "kept_blocks": artifact.recompute.kept_blocks,
                "micro_batch_size": artifact.micro_batch_size,
                "mode": artifact.mode,
                "step_s": estimate.step_s,
                "sram_used_bytes": artifact.sram_used_bytes,
            }
        )
    return found
