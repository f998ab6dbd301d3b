"""Alternate loads on `cstool serve` and on llama.cpp's server, with the same weights: what users of each one feel.

Run from the project's folder, with llama.cpp's `llama-server`, and a Python that has the package gguf 0.19.0::

    python -m benchmarks.beside_servers --peer llama-server --gguf PYTHON --rounds 5

Models are those of `beside_llama_cpp`, files with random weights; of `cstool q8_0` and llama.cpp's Q8_0 every weight
has the same code. Both servers run all the time, with as many threads; they take turns, and the one that waits is idle.
Every request of a load has a new random prompt, the same for each side, and its answer all tokens that it may have. The
client is on the same cores. Keys and values are those of each by itself: float32 here, float16 there. Threads of
llama.cpp spin as they wait for each other: beside other work compare with `--threads 1`.

Then fairness: one user's text is on its way as another sends a long prompt. The user's tokens are counted until the
other has the first token.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.beside_llama_cpp import PAIRS, PROJECT, prepare
from benchmarks.llama_cpp_side import POSITIONS, SHAPES
from cstool.foundation.errors import AnswerError
from cstool.serving.client import Client
from cstool.serving.load import Load, Prompts

READY_S = 300.0
SETTLE_S = 0.3
"""between turns: idle threads of OpenMP spin for a while"""
SLOTS = 16
"""answers side by side, at most"""
KEPT_MIB = 512
"""of prompts that llama.cpp keeps in memory; its own limit is 8 GiB, which a long run fills"""
BEFORE, LONGEST_TEXT = 32, 1500
"""tokens of a user's text before the long prompt comes, and at most"""
TAIL_BYTES = 2000


class Turn(NamedTuple):
    """What a side did in a turn."""

    first_s: float
    """time to the first token, median of the answers [s]"""
    each: float
    """tokens/s of an answer after its first, median"""
    total: float
    """tokens/s of all answers together"""

    def __str__(self) -> str:
        """The numbers, with their units."""
        return f"first token {1e3 * self.first_s:.0f} ms, {self.each:.1f} tokens/s each, {self.total:.1f} tokens/s"


class Reading(NamedTuple):
    """One user's text while a long prompt of another user is read."""

    first_s: float
    """time to the first token of the long prompt [s]"""
    quiet_s: float
    """between two tokens of the text before the prompt comes, median [s]"""
    longest_s: float
    """between two tokens while it is read, at most [s]"""
    total: float
    """tokens/s of the text meanwhile"""

    def __str__(self) -> str:
        """The numbers, with their units."""
        between = f"between tokens {1e3 * self.quiet_s:.0f} ms, then at most {1e3 * self.longest_s:.0f} ms"
        return f"first token {self.first_s:.2f} s, {between}, {self.total:.1f} tokens/s"


@dataclass(frozen=True)
class Side:
    """A server under way.

    Args:
        client: of it
        fields: of every request
    """

    client: Client
    fields: Mapping[str, Any]

    def load(self, prompts: Prompts, tokens: int) -> Load:
        """Return a load of answers with exactly so many tokens."""
        usage = {"stream_options": {"include_usage": True}}
        return Load(self.client, prompts, {**self.fields, **usage, "max_tokens": tokens, "min_tokens": tokens})

    def text_s(self, prompt: Sequence[int], tokens: int) -> Generator[float, None, None]:
        """Yield the times at which pieces of an answer come, on the clock `time.perf_counter` [s]."""
        document = {**self.fields, "prompt": prompt, "max_tokens": tokens, "min_tokens": tokens}
        with contextlib.closing(self.client.events("/v1/completions", document)) as events:
            for event in events:
                if any(choice.get("text") for choice in event.get("choices") or ()):
                    yield time.perf_counter()


@contextlib.contextmanager
def serving(command: Sequence[str], log: Path, fields: Mapping[str, Any]) -> Iterator[Side]:
    """Run a server until the end of the context.

    Args:
        command: of the server, which takes --port
        log: file for its messages
        fields: of every request

    Raises:
        SystemExit: it ends, or is not ready after `READY_S`
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}")
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--port", str(port)], cwd=PROJECT, stdout=out, stderr=out)
    try:
        until = time.monotonic() + READY_S
        while True:
            try:
                name = client.models()[0]
                break
            except AnswerError:
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"no server: {' '.join(command)}\n{_tail(log)}") from None
                time.sleep(0.1)
        yield Side(client, {"model": name, "temperature": 0, **fields})
    finally:
        process.terminate()
        process.wait()


def _tail(log: Path) -> str:
    return log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")


def take_turn(load: Load, together: int, requests: int) -> Turn:
    """Measure answers, so many at a time.

    Raises:
        SystemExit: one is not whole
    """
    found = load.closed(together, requests, lambda _: None)
    if found.errors:
        raise SystemExit(f"answers failed: {dict(found.errors)}")
    each = found.tokens_per_s_each
    assert each is not None
    return Turn(found.first_token_s["median"], each, found.tokens_per_s)


def read_beside(side: Side, number: int, prompts: Prompts) -> Reading:
    """Send a long prompt while a text is on its way; see `Reading`.

    Args:
        number: of the prompt
        prompts: long ones; the text goes on from the first tokens of another one
    """
    is_under_way, is_over, pieces = threading.Event(), threading.Event(), list[float]()

    def write() -> None:
        with contextlib.closing(side.text_s(prompts.ids(2 * number + 1)[:BEFORE], LONGEST_TEXT)) as times:
            for now in times:
                pieces.append(now)
                if len(pieces) >= BEFORE:
                    is_under_way.set()
                if is_over.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        if not is_under_way.wait(READY_S):
            raise SystemExit("no text came")
        began = time.perf_counter()
        first = next(side.text_s(prompts.ids(2 * number), 1))
    finally:
        is_over.set()
        writer.join()
    return reading_of(pieces, began, first)


def reading_of(pieces: Sequence[float], began: float, first: float) -> Reading:
    """Return the measurements of a text's pieces, and of a prompt from its request to its first token.

    Args:
        pieces: times of all pieces [s]
        began, first: of the request and of its token, by the same clock [s]
    """
    gaps = [(before, later - before) for before, later in pairwise(pieces)]
    quiet = [gap for before, gap in gaps if before + gap <= began]
    # A gap that begins before the request, or ends after its first token, is partly due to the prompt as well.
    beside = [gap for before, gap in gaps if before + gap > began and before < first]
    meanwhile = sum(began < now <= first for now in pieces)
    return Reading(first - began, median(quiet), max(beside, default=first - began), meanwhile / (first - began))


def open_sides(arguments: argparse.Namespace, model: str, form: str, stack: contextlib.ExitStack) -> dict[str, Side]:
    """Start the servers of a model in a form, that of llama.cpp first."""
    folder, threads = arguments.folder, str(arguments.threads)
    peer = [arguments.peer, "-m", str(folder / f"{model}-{form}.gguf"), "-t", threads, "-np", str(SLOTS)]
    peer += ["-c", str(SLOTS * POSITIONS), "--cache-ram", str(KEPT_MIB), "--no-webui"]
    commands = {f"llama.cpp {form}": (peer, {"ignore_eos": True})}
    for precision in PAIRS[form]:
        ours = [sys.executable, "-m", "cstool", "serve", str(folder / f"{model}.mdl"), "--precision", precision]
        commands[f"cstool {precision}"] = ([*ours, "--lanes", threads, "--max_batch", str(SLOTS)], {})
    return {
        name: stack.enter_context(serving(command, folder / f"{name.replace(' ', '_')}.log", fields))
        for name, (command, fields) in commands.items()
    }


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the median of quotients, and their range."""
    found = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    return f"{median(found):.2f}x ({found[0]:.2f} to {found[-1]:.2f})"


def measure(arguments: argparse.Namespace, model: str, form: str) -> None:
    """Measure a model in a form; print a line for each load and side."""
    vocabulary, names = SHAPES[model].vocabulary, f"{model:11}"
    with contextlib.ExitStack() as stack:
        sides = open_sides(arguments, model, form, stack)

        def load_of(together: int, side: Side, number: int) -> Turn:
            prompts = Prompts(arguments.prompt_tokens, 0, 1000 * number + together, vocabulary)
            load = side.load(prompts, arguments.max_tokens)
            # The first round is a warm-up.
            return take_turn(load, together, max(arguments.requests, 2 * together) if number else together)

        for together in arguments.together:
            compare(arguments, f"{names} {together} at a time", sides, partial(load_of, together))
        if arguments.long:
            long = Prompts(arguments.long, 0, 7, vocabulary)
            compare(
                arguments,
                f"{names} prompt of {arguments.long:,}",
                sides,
                lambda side, number: read_beside(side, number, long),
            )


def compare(
    arguments: argparse.Namespace, case: str, sides: Mapping[str, Side], turn: Callable[[Side, int], Turn | Reading]
) -> None:
    """Let sides take turns; print a line for each.

    Args:
        sides: by their names; others are compared with the first
        turn: is called with a side and the number of the round; 0 is a warm-up
    """
    turns: dict[str, list[Turn | Reading]] = {name: [] for name in sides}
    for number in range(arguments.rounds + 1):
        for name, side in sides.items():
            time.sleep(SETTLE_S)
            found = turn(side, number)
            if number:
                turns[name].append(found)
    theirs = next(iter(turns.values()))
    for name, mine in turns.items():
        line = f"{case:28} {name:16} {type(mine[0])(*map(median, zip(*mine, strict=True)))}"
        if mine is not theirs:
            first = ratios([one.first_s for one in theirs], [one.first_s for one in mine])
            total = ratios([one.total for one in mine], [one.total for one in theirs])
            line += f"; as fast: first token {first}, tokens {total}"
        print(line, flush=True)
        if arguments.json is not None:
            with open(arguments.json, "a") as file:
                print(json.dumps({"case": case, "side": name, "turns": [one._asdict() for one in mine]}), file=file)


def main() -> None:
    """Run the comparison and print its report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="llama.cpp's llama-server")
    parser.add_argument("--gguf", default=sys.executable, help="a Python with gguf, which writes missing files")
    parser.add_argument("--folder", type=Path, default=PROJECT / ".beside", help="for models (default: .beside)")
    parser.add_argument("--models", nargs="*", choices=SHAPES, default=["llama_125m"])
    parser.add_argument("--forms", nargs="*", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--together", nargs="*", type=int, default=[1, 4, 16], help="at a time (default: 1 4 16)")
    parser.add_argument("--requests", type=int, default=4, help="of a turn, at least two for each user (default: 4)")
    parser.add_argument("--prompt_tokens", type=int, default=128, help="of each prompt (default: 128)")
    parser.add_argument("--max_tokens", type=int, default=64, help="of each answer (default: 64)")
    parser.add_argument(
        "--long", type=int, default=2000, help="tokens of the long prompt; 0 leaves it out (default: 2000)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default: 5)")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each server (default: all cores)"
    )
    parser.add_argument("--json", type=Path, help="for a line with each row")
    arguments = parser.parse_args()
    for model in arguments.models:
        prepare(arguments.folder, model, arguments.gguf)
        for form in arguments.forms:
            measure(arguments, model, form)


if __name__ == "__main__":
    main()
