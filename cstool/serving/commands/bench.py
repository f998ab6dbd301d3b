"""`cstool bench`: measurements of running programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cstool.foundation.errors import CstoolError
from cstool.foundation.terminal.command import command, new_group
from cstool.foundation.terminal.options import argument, option
from cstool.foundation.terminal.render import print_json, print_line, print_table
from cstool.foundation.terminal.screen import screen_on
from cstool.foundation.words import counted, digits_text, time_text
from cstool.serving.verbs.benching import SYSTEM, BenchRequest, bench

if TYPE_CHECKING:
    from cstool.plan.verbs.results import InferEstimate, Tried
    from cstool.serving.verbs.benching import Benched

T = TypeVar("T")
COLUMNS = (
    *("load", "answers", "errors", "first token [ms]", "between tokens [ms]"),
    *("tokens/s each", "tokens/s", "requests/s"),
)
MODELLED = ("at a time", "first token", "between tokens", "tokens/s each", "tokens/s")
MOST_KINDS = 3
"""of errors that are shown of a round"""
FORMS = {"tokens": "of random tokens", "texts": "of random words", "chats": "of random words, as chats"}

bench_app = new_group("Measure speed: of a server under load.", "cstool bench serve http://127.0.0.1:8000")


@dataclass(frozen=True, kw_only=True)
class _BenchFlags:
    """The flags."""

    model: Annotated[
        str | None, option("--model", "NAME", "The model, as the server names it.", show_default="the only one")
    ] = None
    concurrency: Annotated[
        str | None,
        option("--concurrency", "N,N", "Numbers of requests side by side, a round for each.", show_default="1,4,16"),
    ] = None
    rate: Annotated[
        str | None,
        option(
            "--rate", "R,R", "Requests a second at random times, whether others have ended or not; a round for each."
        ),
    ] = None
    requests: Annotated[
        int | None,
        option(
            "--requests",
            "N",
            "Requests of a round.",
            show_default="four times those side by side, at least 16",
            min=1,
        ),
    ] = None
    prompt_tokens: Annotated[int, option("--prompt_tokens", "N", "Tokens of each prompt.", min=1)] = 128
    max_tokens: Annotated[int, option("--max_tokens", "N", "Most tokens of each answer.", min=1)] = 128
    shared_prefix: Annotated[
        int, option("--shared_prefix", "N", "Tokens of each prompt that all begin with.", min=0)
    ] = 0
    seed: Annotated[
        int | None, option("--seed", "N", "Of prompts and times; with a fresh one no prompt was seen before.", min=0)
    ] = None
    field: Annotated[
        list[str] | None,
        option("--field", "NAME=JSON", "Another field of each request; may be given several times."),
    ] = None
    api_key: Annotated[
        str | None, option("--api_key", "KEY", "Key of the server.", show_default="the variable CSTOOL_API_KEY")
    ] = None
    params: Annotated[
        str | None,
        option("--params", "FILE", f"Params or a checkpoint of the model: how it would answer on {SYSTEM}, modelled."),
    ] = None
    json: Annotated[str | None, option("--json", "FILE", "Write one JSON document, too; - prints it alone.")] = None


@command(
    bench_app,
    "serve",
    "cstool bench serve http://127.0.0.1:8000 --prompt_tokens 64 --max_tokens 32 --params gpt_tiny",
    "cstool bench serve http://127.0.0.1:8000 --rate 2,8 --shared_prefix 64 --json serve.json",
)
def serve(
    url: Annotated[str, argument("URL", "Address of a server with OpenAI's API, such as http://127.0.0.1:8000.")],
    flags: _BenchFlags,
) -> None:
    """Measure how fast a server answers.

    Prompts are random, temperature is 0. A warm-up goes before each round. Times of the first token and between tokens
    are the median, and the times that 90 % and 99 % do not exceed. The server may be any with OpenAI's API.
    """
    if flags.rate is not None and flags.concurrency is not None:
        raise CstoolError("--concurrency: must be left out beside --rate, where it has no effect")
    request = BenchRequest(
        url,
        flags.model,
        concurrency=_numbers("--concurrency", flags.concurrency or "1,4,16", int, 1024),
        rates=() if flags.rate is None else _numbers("--rate", flags.rate, float, 10_000),
        requests=flags.requests,
        prompt_tokens=flags.prompt_tokens,
        max_tokens=flags.max_tokens,
        shared_prefix=flags.shared_prefix,
        seed=flags.seed,
        fields=dict(map(_field, flags.field or ())),
        api_key=flags.api_key,
        params=flags.params,
    )
    with screen_on(sys.stderr) as screen:
        found = bench(request, progress=screen.progress)
    if flags.json == "-":
        print_json(_document(request, found))
        return
    _print(request, found)
    if flags.json is not None:
        _write(Path(flags.json), _document(request, found))


def _numbers(name: str, text: str, kind: Callable[[str], T], most: int) -> list[T]:
    """Positive numbers of `1,4,16`."""
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < number <= most for number in found):  # type: ignore[operator]
        words = "whole numbers" if kind is int else "numbers"
        raise CstoolError(f"{name}: must be {words} above 0, of at most {most:,}, got {text!r}", "such as 1,4,16")
    return found


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise CstoolError(f"--field: must be NAME=JSON, got {text!r}", "such as --field temperature=1")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _print(request: BenchRequest, found: Benched) -> None:
    shared = f", {request.shared_prefix:,} of them shared" if request.shared_prefix else ""
    lengths = f"{request.prompt_tokens:,} tokens in{shared}, at most {request.max_tokens:,} out"
    print_line(f"{found.model} at {request.url}: {lengths}, prompts {FORMS[found.form]}, seed {found.seed}")
    print_line("measured by this client; times are median / p90 / p99")
    print()
    rows = []
    for each in found.rounds:
        load = f"{each.concurrency} at a time" if each.rate is None else f"{each.rate:g} a second"
        times = map(_times_text, (each.first_token_s, each.between_tokens_s))
        one = "-" if each.tokens_per_s_each is None else digits_text(each.tokens_per_s_each)
        rates = (one, digits_text(each.tokens_per_s), digits_text(each.requests_per_s))
        rows.append((load, f"{len(each.answers):,}", f"{sum(each.errors.values()):,}", *times, *rates))
    print_table(COLUMNS, rows, right=COLUMNS[1:])
    for row, each in zip(rows, found.rounds, strict=True):
        kinds = sorted(each.errors.items(), key=lambda item: (-item[1], item[0]))
        for message, often in kinds[:MOST_KINDS]:
            print_line(f"{row[0]}: {often:,} x {message}")
        if len(kinds) > MOST_KINDS:
            print_line(f"{row[0]}: {counted(len(kinds) - MOST_KINDS, 'kind')} more")
    if found.modelled is not None:
        _print_modelled(found)


def _print_modelled(found: Benched) -> None:
    modelled = found.modelled
    assert modelled is not None
    print()
    lengths = f"{modelled.prompt_tokens:,} tokens in, {modelled.new_tokens:,} out"
    if not modelled.rows:
        print_line(f"on {SYSTEM}, modelled, {lengths}: left out: {modelled.why}")
        return
    first = next(row.estimate for row in modelled.rows if row.estimate is not None)
    print_line(f"the same model on {first.wafers:,} x {SYSTEM}, {lengths}: modelled, nothing of it is measured")
    print()
    rows = []
    for row in modelled.rows:
        if (one := row.estimate) is None:
            continue
        rates = map(digits_text, (one.user_tokens_per_s, one.tokens_per_s))
        rows.append((f"{one.users:,}", time_text(one.first_token_s), time_text(one.token_s), *rates))
    print_table(MODELLED, rows, right=MODELLED)
    for row in modelled.rows:
        if row.estimate is None:
            print_line(f"{row.label:,} at a time: left out: {row.why}")


def _times_text(times: Mapping[str, float]) -> str:
    return " / ".join(digits_text(1000 * seconds) for seconds in times.values()) or "-"


def _document(request: BenchRequest, found: Benched) -> dict[str, Any]:
    """The facts for JSON; times in seconds."""
    document: dict[str, Any] = {
        "url": request.url,
        "model": found.model,
        "prompts": found.form,
        "prompt_tokens": request.prompt_tokens,
        "shared_prefix": request.shared_prefix,
        "max_tokens": request.max_tokens,
        "seed": found.seed,
        "measured": list(_measured(found)),
    }
    if found.modelled is not None:
        modelled = found.modelled
        document["modelled"] = {
            "system": SYSTEM,
            "prompt_tokens": modelled.prompt_tokens,
            "new_tokens": modelled.new_tokens,
            "rounds": [_estimate(row) for row in modelled.rows] or modelled.why,
        }
    return document


def _measured(found: Benched) -> Iterator[dict[str, Any]]:
    for each in found.rounds:
        prompts = [answer.prompt_tokens for answer in each.answers if answer.prompt_tokens is not None]
        yield {
            "concurrency": each.concurrency,
            "rate": each.rate,
            "answers": len(each.answers),
            "errors": dict(each.errors),
            "seconds": each.seconds,
            "prompt_tokens": sum(prompts),
            "tokens": sum(answer.tokens for answer in each.answers),
            "first_token_s": each.first_token_s,
            "between_tokens_s": each.between_tokens_s,
            "whole_s": each.whole_s,
            "tokens_per_s_each": each.tokens_per_s_each,
            "tokens_per_s": each.tokens_per_s,
            "requests_per_s": each.requests_per_s,
        }


def _estimate(row: Tried[int, InferEstimate]) -> dict[str, Any]:
    found = row.estimate
    if found is None:
        return {"users": row.label, "why": row.why}
    return {
        "users": row.label,
        "num_csx": found.wafers,
        "first_token_s": found.first_token_s,
        "token_s": found.token_s,
        "tokens_per_s_each": found.user_tokens_per_s,
        "tokens_per_s": found.tokens_per_s,
    }


def _write(file: Path, document: Any) -> None:
    from cstool.foundation.atomic_file import write_replacing

    try:
        write_replacing(file, json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise CstoolError(f"--json {file}: cannot be written: {error.strerror}") from None
