"""Alternate the generation of text by cstool and by llama.cpp, in bfloat16 and in 8 bits, of the same weights.

Run from the project's folder, with a Python beside that has the packages ik-llama-cpp-python 0.1.5 and gguf 0.19.0::

    python -m venv ik && ik/bin/pip install ik-llama-cpp-python==0.1.5 gguf==0.19.0
    python -m benchmarks.beside_llama_cpp --peer ik/bin/python --rounds 5

Files with random weights are written once (`llama_cpp_side`), and converted (`cstool checkpoint convert`). Each side is
a process, which keeps its model; they take turns. Of `cstool q8_0` and llama.cpp's `q8_0` every weight has the same
code. The likeliest token is taken every time, no text ends early, and keys and values are those of each by itself:
float32 here, float16 there. `--company` counts texts that change beside 15 others, and does not measure. `--share`
measures cstool alone, beside a sum over memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from benchmarks.llama_cpp_side import SHAPES, serve, tensors

PROJECT = Path(__file__).parents[1]
PEER = Path(__file__).with_name("llama_cpp_side.py")
SETTLE_S = 0.2
TOKENS = 1536
"""of all sequences, at most"""
WARM_UP_TOKENS = 3
SUMMED_NUMBERS = 64 * 2**20
"""of 8 bytes, to measure how fast memory is read"""


class Case(NamedTuple):
    """Prompts, tokens of each, and tokens that follow."""

    prompts: int
    length: int
    count: int


CASES = {"one user": Case(1, 32, 128), "prompt of 512": Case(1, 512, 1), "16 users": Case(16, 32, 48)}
PAIRS = {"bf16": ("bfloat16",), "q8_0": ("q8_0", "int8")}
"""formats of files -> precisions of cstool beside them"""
BYTES = {"bf16": 2.0, "bfloat16": 2.0, "q8_0": 34 / 32, "int8": 1.0}
"""of a weight"""


class Side:
    """A side in a process of its own.

    Args:
        command: of a process that calls `serve`
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        pipe, self._said = subprocess.PIPE, tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - see `end`
        quiet = os.environ | {"PYTHONWARNINGS": "ignore"} | environment
        self._process = subprocess.Popen(
            command, cwd=PROJECT, env=quiet, text=True, stdin=pipe, stdout=pipe, stderr=self._said
        )
        assert self._process.stdout is not None
        assert self._line() == "ready"

    def run(self, case: Case, vocabulary: int, seed: int = 0) -> dict[str, Any]:
        """Take a turn; see `serve`."""
        return self.ask(np.random.default_rng(seed).integers(1, vocabulary, (case.prompts, case.length)), case.count)

    def ask(self, prompts: np.ndarray, count: int) -> dict[str, Any]:
        """Go on from prompts, (prompts, length), by so many tokens; see `serve`."""
        assert self._process.stdin is not None
        print(json.dumps([prompts.tolist(), count]), file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._line())
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline().strip():
            return line
        self._said.seek(0)
        raise SystemExit(f"a side ended: {' '.join(map(str, self._process.args))}\n{self._said.read()[-2000:]}")

    def end(self) -> None:
        """End the process."""
        with self._process, self._said:
            self._process.kill()


def serve_ours(path: Path, precision: str, *, scores: bool) -> None:
    """Be the side of cstool, see `serve`; log probabilities take time, and come if they are asked for."""
    from cstool.inference.decoding import Decoder
    from cstool.inference.sampling import Sampling
    from cstool.inference.sequences import TokenRequest
    from cstool.inference.verbs.answer import open_model

    greedy = Sampling(temperature=0.0)
    with open_model(path, precision=precision, progress="none") as model:  # type: ignore[arg-type]
        walks = {}

        def run(prompts: list[list[int]], count: int) -> dict[str, Any]:
            capacity = TOKENS // len(prompts)
            if len(prompts) not in walks:
                walks[len(prompts)] = model.walk(len(prompts), capacity)
            began, first_s = time.perf_counter(), 0.0
            made: list[list[int]] = [[] for _ in prompts]
            logs: list[list[float]] = [[] for _ in prompts]
            decoder = Decoder(walks[len(prompts)])
            for number, prompt in enumerate(prompts):
                decoder.admit(TokenRequest(number, prompt, count, greedy, top=0 if scores else None))
            while decoder.is_busy:
                for one in decoder.step():
                    made[one.prompt] += one.tokens
                    logs[one.prompt] += [each.logprob for each in one.logprobs]
                if not first_s and all(made):
                    first_s = time.perf_counter() - began
            rest_s = time.perf_counter() - began - first_s
            return {"tokens": made, "scores": logs, "first_s": first_s, "rest_s": rest_s}

        serve(run)


@njit(nogil=True, cache=False)  # type: ignore[misc, unused-ignore]
def _sum(numbers: np.ndarray) -> int:
    total = 0
    for i in range(numbers.shape[0]):
        total += numbers[i]
    return total


class Memory:
    """Says how fast all threads together read memory."""

    def __init__(self, threads: int) -> None:
        self._parts = np.array_split(np.ones(SUMMED_NUMBERS, np.int64), threads)
        self._pool = ThreadPoolExecutor(threads)
        list(self._pool.map(_sum, self._parts))

    def bytes_per_s(self) -> float:
        """Sum up 512 MiB; return the rate [bytes/s]."""
        began = time.perf_counter()
        list(self._pool.map(_sum, self._parts))
        return 8 * SUMMED_NUMBERS / (time.perf_counter() - began)


def read_numbers(model: str) -> int:
    """Weights that a token reads: all matrices but the tables of which it takes a row."""
    sizes = dict(tensors(SHAPES[model]))
    return sum(prod(size) for name, size in sizes.items() if len(size) > 1 and "_embd" not in name)


def prepare(folder: Path, model: str, python: str) -> None:
    """Write the files of a model, where they are not there.

    Args:
        folder: for them
        python: with the package gguf
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / f"{model}-q8_0.gguf").exists():
        subprocess.run([python, str(PEER), "write", str(folder), model], check=True)
    target = folder / f"{model}.mdl"
    if not target.exists():
        source = str(folder / f"{model}-bf16.gguf")
        subprocess.run([sys.executable, "-m", "cstool", "checkpoint", "convert", source, str(target)], check=True)


def open_sides(arguments: argparse.Namespace, model: str, form: str) -> dict[str, Side]:
    """Start the sides of a model in a form."""
    path, threads = arguments.folder / f"{model}-{form}.gguf", str(arguments.threads)
    command = [arguments.peer, str(PEER), "serve", str(path), threads, "16", str(TOKENS), *arguments.options]
    library = {} if arguments.library is None else {"IK_LLAMA_CPP_LIB_PATH": str(arguments.library)}
    sides = {f"llama.cpp {form}": Side(command, library)}
    for precision in PAIRS[form]:
        ours = ["--serve", str(arguments.folder / f"{model}.mdl"), precision, *["--company"] * arguments.company]
        sides[f"cstool {precision}"] = Side([sys.executable, "-m", "benchmarks.beside_llama_cpp", *ours], {})
    return sides


def measure(arguments: argparse.Namespace, model: str, form: str) -> list[dict[str, Any]]:
    """Measure a model in a form; return a row for each case and side."""
    vocabulary, memory = SHAPES[model].vocabulary, Memory(arguments.threads)
    sides = open_sides(arguments, model, form)
    rates: list[float] = []
    found: dict[tuple[str, str], list[dict[str, Any]]] = {
        (case, name): [] for case in arguments.cases for name in sides
    }
    try:
        for number in range(arguments.rounds + 1):
            for case in arguments.cases:
                for name, side in sides.items():
                    # Idle threads of OpenMP spin for a while.
                    time.sleep(SETTLE_S)
                    asked = CASES[case] if number else CASES[case]._replace(count=min(CASES[case].count, 4))
                    answer = side.run(asked, vocabulary, number)
                    if number:
                        found[case, name].append(answer)
                        rates.append(memory.bytes_per_s())
    finally:
        for side in sides.values():
            side.end()
    rows = []
    for (case, name), turns in found.items():
        asked, peer = CASES[case], found[case, f"llama.cpp {form}"]
        times = [turn["rest_s" if asked.count > 1 else "first_s"] for turn in turns]
        others = [turn["rest_s" if asked.count > 1 else "first_s"] for turn in peer]
        ratios = sorted(b / a for a, b in zip(times, others, strict=True))
        made = asked.prompts * max(1, asked.count - 1)
        row: dict[str, Any] = {"model": model, "case": case, "side": name, "s": median(times), "all_s": times}
        row["tokens_per_s"] = (made if asked.count > 1 else asked.length) / row["s"]
        if asked.count > 1:
            weights = BYTES[name.split()[1]] * read_numbers(model) * (asked.count - 1)
            row["read_gb_per_s"] = weights / row["s"] / 1e9
            row["memory_gb_per_s"], row["memory_best_gb_per_s"] = median(rates) / 1e9, max(rates) / 1e9
        row["as_fast"] = [median(ratios), ratios[0], ratios[-1]]
        pairs = list(zip(turns, peer, strict=True))
        row["same_texts"] = sum(a["tokens"] == b["tokens"] for a, b in pairs), len(pairs)
        rows.append(row)
    return rows


def count_changed(arguments: argparse.Namespace, model: str, form: str) -> None:
    """Print how many texts of each side are others beside 15 than alone."""
    case = CASES["16 users"]
    for name, side in open_sides(arguments, model, form).items():
        texts = scores = total = 0
        for seed in range(arguments.rounds):
            rng = np.random.default_rng(seed)
            prompts = rng.integers(1, SHAPES[model].vocabulary, (case.prompts, case.length))
            together = side.ask(prompts, case.count)
            for number in range(case.prompts):
                alone = side.ask(prompts[number : number + 1], case.count)
                texts += alone["tokens"][0] != together["tokens"][number]
                scores += alone["scores"][0] != together["scores"][number]
                total += 1
        side.end()
        print(f"{model:11} {name:16} of {total} texts {texts} changed, {scores} with the scores of tokens", flush=True)


def tell_share(arguments: argparse.Namespace, model: str, precision: str) -> None:
    """Print how fast tokens of one user read weights, beside sums over memory in turns."""
    from cstool.inference.verbs.answer import open_model

    memory, passes = Memory(arguments.threads), 40
    path = arguments.folder / f"{model}.mdl"
    with open_model(path, precision=precision, progress="none") as opened:  # type: ignore[arg-type]
        walk = opened.walk(1, passes + WARM_UP_TOKENS)
        slot, seconds, rates = walk.memory.open(), [], []
        for place in range(passes + WARM_UP_TOKENS):
            began = time.perf_counter()
            walk.next([1], [slot], [place])
            seconds.append(time.perf_counter() - began)
            if place % 4 == 0:
                rates.append(memory.bytes_per_s() / 1e9)
    read = BYTES[precision] * read_numbers(model) / median(seconds[WARM_UP_TOKENS:]) / 1e9
    share = read / median(rates)
    print(f"{model:11} {precision:8} {read:.1f} GB/s, a sum {median(rates):.1f} GB/s: {share:.0%}", flush=True)


def report(row: dict[str, Any]) -> str:
    """Return a row as a line of text."""
    fast, least, most = row["as_fast"]
    read = f", {row['read_gb_per_s']:.1f} of {row['memory_gb_per_s']:.1f} GB/s" if "read_gb_per_s" in row else ""
    ratio = "" if row["side"].startswith("llama.cpp") else f", {fast:.2f}x ({least:.2f} to {most:.2f})"
    what = f"{row['model']:11} {row['case']:14} {row['side']:16}"
    return f"{what} {row['tokens_per_s']:8.1f} tokens/s, {row['s']:.3f} s{read}{ratio}"


def main() -> None:
    """Run the comparison and print its report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="a Python with ik-llama-cpp-python and gguf")
    parser.add_argument("--library", type=Path, help="libllama.so in the place of that package's own")
    parser.add_argument(
        "--options", nargs="*", choices=("flash", "repack"), default=[], help="of llama.cpp (default: none)"
    )
    parser.add_argument("--folder", type=Path, default=PROJECT / ".beside", help="for models (default: .beside)")
    parser.add_argument("--models", nargs="*", choices=SHAPES, default=["llama_125m", "llama_1b"])
    parser.add_argument("--forms", nargs="*", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default: 5)")
    parser.add_argument("--company", action="store_true", help="count texts that change beside others")
    parser.add_argument("--share", action="store_true", help="of the speed of memory that tokens of one user reach")
    parser.add_argument("--json", type=Path, help="for a line with each row")
    parser.add_argument("--serve", nargs=2, metavar=("CHECKPOINT", "PRECISION"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve_ours(Path(arguments.serve[0]), arguments.serve[1], scores=arguments.company)
        return
    arguments.threads = len(os.sched_getaffinity(0))
    for model in arguments.models:
        prepare(arguments.folder, model, arguments.peer)
        for form in arguments.forms:
            if arguments.share:
                for precision in PAIRS[form]:
                    tell_share(arguments, model, precision)
                continue
            if arguments.company:
                count_changed(arguments, model, form)
                continue
            for row in measure(arguments, model, form):
                print(report(row), flush=True)
                if arguments.json is not None:
                    with open(arguments.json, "a") as file:
                        print(json.dumps(row), file=file)


if __name__ == "__main__":
    main()
