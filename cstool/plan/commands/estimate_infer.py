"""`cstool estimate --mode infer`: how fast a trained model answers on the modelled cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cstool.foundation.errors import EstimateError
from cstool.foundation.terminal.options import option
from cstool.foundation.terminal.render import print_json, print_line, print_table
from cstool.foundation.words import bytes_text, counted, time_text
from cstool.plan.commands.compile_report import number_text
from cstool.plan.commands.estimate_report import interval_document, interval_facts, joules_text, rough_text

if TYPE_CHECKING:
    from cstool.plan.estimation.inference import InferEstimate, InferRow

INFER_FLAGS = ("--prompt_tokens", "--new_tokens", "--batch")
ALLOWED = ("--mode", "--params", "--system", "--num_csx", "--set", "--json", "--debug", *INFER_FLAGS)
"""flags that have an effect beside `--mode infer`"""
COLUMNS = ("users", "first token", "token", "tokens/s each", "tokens/s", "per token", "power", "spent most on")


@dataclass(frozen=True)
class InferFlags:
    """Lengths of prompts and answers, and numbers of users."""

    prompt_tokens: Annotated[
        int | None, option("--prompt_tokens", "N", "With --mode infer: tokens of a prompt.", min=1, show_default="1024")
    ] = None
    new_tokens: Annotated[
        int | None, option("--new_tokens", "N", "With --mode infer: tokens of an answer.", min=1, show_default="256")
    ] = None
    batch: Annotated[
        str | None,
        option("--batch", "N,N,...", "With --mode infer: number of users at a time.", show_default="1"),
    ] = None


def parse_users(text: str) -> list[int]:
    """Return the numbers of users of `1,8,64`, ascending.

    Raises:
        EstimateError: one of them is none
    """
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdecimal() and 0 < int(part) <= 10**6):
            raise EstimateError(f"--batch: must be numbers of users, from 1 to 1,000,000, got {text}", "such as 1,8,64")
    return sorted({int(part) for part in parts})


def estimate_infer(
    params: Path,
    overrides: Sequence[str],
    flags: InferFlags,
    *,
    system: str,
    num_csx: str | None,
    as_json: bool,
) -> None:
    """Predict time to the first token, and tokens a second.

    Raises:
        EstimateError: see `cstool.plan.verbs.estimate_inference`; or a number is none
    """
    from cstool.plan.verbs.estimate_inference import estimate_inference

    wafers = None
    if num_csx is not None:
        if not (num_csx.isascii() and num_csx.isdecimal() and int(num_csx)):
            raise EstimateError(f"--num_csx: must be one number of systems beside --mode infer, got {num_csx}")
        wafers = int(num_csx)
    prompt_tokens, new_tokens = flags.prompt_tokens or 1024, flags.new_tokens or 256
    rows = estimate_inference(
        params,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        batches=parse_users("1" if flags.batch is None else flags.batch),
        overrides=overrides,
        system=system,
        num_csx=wafers,
    )
    if as_json:
        print_json(infer_document(rows, prompt_tokens, new_tokens))
    else:
        print_answers(rows, prompt_tokens, new_tokens)


def print_answers(rows: Sequence[InferRow], prompt_tokens: int, new_tokens: int) -> None:
    """Print the first estimate in full, then all of them in a table."""
    first = next(row.estimate for row in rows if row.estimate is not None)
    print_line(
        f"{first.model}: {first.parameters:,} parameters, {counted(prompt_tokens, 'token')} in, {new_tokens:,} out"
    )
    fabric = first.system.fabric
    where = f"{first.wafers:,} x {first.system.name} ({first.system.wafer}, {fabric.width} x {fabric.height} PEs)"
    print_line(f"{where}. Everything is modelled; nothing is measured.")
    print()
    facts = list(_facts(first, new_tokens))
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        print_line(f"{name:{width}}  {text}")
    print()
    print_line(f"from one token of a user to the next, {counted(first.users, 'user')}, halfway through the answer")
    spent = [(name, _time(s), f"{s / first.token_s:.1%}") for name, s in first.parts_s.items()]
    print_table(("part", "time", "share"), [*spent, ("token", _time(first.token_s), "100.0%")], right=("time", "share"))
    print("\nover users that are answered at a time, modelled")
    table = [tuple(_cells(row.estimate)) for row in rows if row.estimate is not None]
    print_table(COLUMNS, table, right=COLUMNS[:-1])
    for row in rows:
        if row.estimate is None:
            print_line(f"{row.users:,}: left out: {row.why}")


def _facts(found: InferEstimate, new_tokens: int) -> Iterator[tuple[str, str]]:
    if found.is_resident:
        across, down = found.regions
        regions = "all PEs of a wafer" if across * down == 1 else f"{across} x {down} regions of each wafer"
        yield "weights", f"stay on {counted(found.wafers, 'wafer')}, layers dealt to {regions}"
    else:
        yield "weights", f"come from MemoryX for each token: they do not fit {counted(found.wafers, 'wafer')}"
    yield "first token", f"{time_text(found.first_token_s)} after the prompt"
    each = number_text(found.user_tokens_per_s)
    yield "then", f"{each} tokens/s for each user, most of the time for {found.bound}"
    low, high = found.band.of_rate(found.user_tokens_per_s)
    yield from interval_facts(found.band, f"{rough_text(low)} to {rough_text(high)} tokens/s for each user")
    yield "answer", f"{time_text(found.answer_s(new_tokens))} after the prompt, {counted(new_tokens, 'token')}"
    held = f"{bytes_text(found.weights_bytes)} of weights, {bytes_text(found.cache_bytes)} of keys and values"
    yield "SRAM", f"{found.sram_bytes:,} of {found.system.pe.sram_bytes:,} bytes of the fullest PE: {held}"
    yield "room", f"for {counted(found.most_users, 'user')} at a time with as many tokens, laid out so"
    each = joules_text(found.joules_per_token)
    yield "power", f"{number_text(found.power_w / 1e3)} kW of the systems, {each} per token"


def _cells(found: InferEstimate) -> Iterator[str]:
    yield f"{found.users:,}"
    yield _time(found.first_token_s)
    yield _time(found.token_s)
    yield number_text(found.user_tokens_per_s)
    yield number_text(found.tokens_per_s)
    yield joules_text(found.joules_per_token)
    yield f"{number_text(found.power_w / 1e3)} kW"
    yield found.bound


def infer_document(rows: Sequence[InferRow], prompt_tokens: int, new_tokens: int) -> dict[str, Any]:
    """Return the facts ready for JSON; everything that is modelled is under that name."""
    first = next(row.estimate for row in rows if row.estimate is not None)
    return {
        "model": first.model,
        "parameters": first.parameters,
        "system": first.system.name,
        "prompt_tokens": prompt_tokens,
        "new_tokens": new_tokens,
        "modelled": {"batches": [_row_document(row, new_tokens) for row in rows]},
    }


def _row_document(row: InferRow, new_tokens: int) -> dict[str, Any]:
    found = row.estimate
    if found is None:
        return {"users": row.users, "fits": False, "why": row.why}
    return {
        "users": row.users,
        "fits": True,
        "kind": "modelled",
        "num_csx": found.wafers,
        "weights_stay": found.is_resident,
        "regions": list(found.regions),
        "first_token_s": found.first_token_s,
        "token_s": found.token_s,
        "answer_s": found.answer_s(new_tokens),
        "tokens_per_s_each": found.user_tokens_per_s,
        "tokens_per_s": found.tokens_per_s,
        "joules_per_token": found.joules_per_token,
        "power_w": found.power_w,
        "band": interval_document(
            found.band,
            token_s=found.band.of_time(found.token_s),
            tokens_per_s_each=found.band.of_rate(found.user_tokens_per_s),
            tokens_per_s=found.band.of_rate(found.tokens_per_s),
        ),
        "spent_s": found.parts_s,
        "bound_by": found.bound,
        "sram_bytes": found.sram_bytes,
        "weights_bytes": found.weights_bytes,
        "cache_bytes": found.cache_bytes,
        "most_users": found.most_users,
    }


def _time(seconds: float) -> str:
    return time_text(seconds).partition(" (")[0]
