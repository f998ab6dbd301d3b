"""`cstool estimate --mode infer`: how fast a trained model answers on the modelled cluster."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cstool.foundation.errors import EstimateError
from cstool.foundation.terminal.render import print_json, print_line, print_table
from cstool.foundation.words import bytes_text, counted, time_text
from cstool.plan.commands.compile_report import number_text
from cstool.plan.commands.estimate_document import interval_document
from cstool.plan.commands.estimate_facts import interval_facts, joules_text, rough_text
from cstool.plan.commands.estimate_flags import InferFlags
from cstool.plan.commands.tables import print_named, print_tried, short_time_text
from cstool.plan.verbs.estimating import estimate_inference
from cstool.plan.verbs.results import InferEstimate, Tried, estimates_in

COLUMNS = ("users", "first token", "token", "tokens/s each", "tokens/s", "per token", "power", "spent most on")


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
    params: Path, overrides: Sequence[str], flags: InferFlags, system: str, num_csx: str | None, as_json: bool
) -> None:
    """Predict time to the first token, and tokens a second.

    Raises:
        EstimateError: see `estimate_inference`; or a number is none
    """
    wafers = None
    if num_csx is not None:
        if not (num_csx.isascii() and num_csx.isdecimal() and int(num_csx)):
            raise EstimateError(f"--num_csx: must be one number of systems beside --mode infer, got {num_csx}")
        wafers = int(num_csx)
    lengths = {"prompt_tokens": flags.prompt_tokens or 1024, "new_tokens": flags.new_tokens or 256}
    users = parse_users("1" if flags.batch is None else flags.batch)
    rows = estimate_inference(params, overrides, system, batches=users, wafers=wafers, **lengths)
    if as_json:
        print_json(infer_document(rows, **lengths))
    else:
        print_answers(rows, **lengths)


def print_answers(rows: Sequence[Tried[int, InferEstimate]], prompt_tokens: int, new_tokens: int) -> None:
    """Print the first estimate in full, then all of them in a table."""
    first = estimates_in(rows)[0]
    print_line(
        f"{first.model}: {first.parameters:,} parameters, {counted(prompt_tokens, 'token')} in, {new_tokens:,} out"
    )
    fabric = first.system.fabric
    where = f"{first.wafers:,} x {first.system.name} ({first.system.wafer}, {fabric.width} x {fabric.height} PEs)"
    print_line(f"{where}. Everything is modelled; nothing is measured.")
    print()
    print_named(_facts(first, new_tokens))
    print()
    print_line(f"from one token of a user to the next, {counted(first.users, 'user')}, halfway through the answer")
    spent = [(name, short_time_text(s), f"{s / first.token_s:.1%}") for name, s in first.parts_s.items()]
    whole = ("token", short_time_text(first.token_s), "100.0%")
    print_table(("part", "time", "share"), [*spent, whole], right=("time", "share"))
    print("\nover users that are answered at a time, modelled")
    print_tried(COLUMNS, rows, _cells, left=COLUMNS[-1:])


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


def _cells(_: Tried[int, InferEstimate], found: InferEstimate) -> Iterator[str]:
    yield f"{found.users:,}"
    yield short_time_text(found.first_token_s)
    yield short_time_text(found.token_s)
    yield number_text(found.user_tokens_per_s)
    yield number_text(found.tokens_per_s)
    yield joules_text(found.joules_per_token)
    yield f"{number_text(found.power_w / 1e3)} kW"
    yield found.bound


def infer_document(rows: Sequence[Tried[int, InferEstimate]], prompt_tokens: int, new_tokens: int) -> dict[str, Any]:
    """Return the facts ready for JSON; everything that is modelled is under that name."""
    first = estimates_in(rows)[0]
    return {
        "model": first.model,
        "parameters": first.parameters,
        "system": first.system.name,
        "prompt_tokens": prompt_tokens,
        "new_tokens": new_tokens,
        "modelled": {"batches": [_row_document(row, new_tokens) for row in rows]},
    }


def _row_document(row: Tried[int, InferEstimate], new_tokens: int) -> dict[str, Any]:
    found = row.estimate
    if found is None:
        return {"users": row.label, "fits": False, "why": row.why}
    return {
        "users": row.label,
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
