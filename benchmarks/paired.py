"""Alternate the rows of `make bench` between this checkout and another one of the project: is it still as fast?

Run from the project's folder, the other one beside it (`git worktree add ../before COMMIT`)::

    python -m benchmarks.paired ../before --rounds 5

Each side of a row is a process of its own, which has built all it needs before the first turn; the sides take turns and
the one that waits is idle. A ratio is the other checkout's seconds by this one's, so more than 1 is faster than before.
Both sides use the benchmarks of their own checkout, as far as `ROWS` names them; what takes turns is this one's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median

if __package__:
    from benchmarks.turns import Side, serve
else:  # A side takes `benchmarks` from its own checkout, which may be older than what takes turns here.
    from turns import Side, serve

HERE = Path(__file__).resolve()


def _step(model: str) -> Callable[[], object]:
    from benchmarks.step import cstool_side

    return cstool_side(model, 4)[0]


def _sparse_step(sparsity: float | None) -> Callable[[], object]:
    from benchmarks.step import cstool_side

    return cstool_side("gpt3_xl_wide", 4, sparsity=sparsity)[0]


def _sparse_product(product: str) -> Callable[[], object]:
    from threadpoolctl import threadpool_limits

    from benchmarks.sparse_lanes import Case, Lane, make_weight

    threadpool_limits(1, user_api="blas")
    case = Case("linear layer", 4096, 1024, 512)
    lane = Lane(case, *make_weight(case, 90), seed=0)
    return lambda: lane.sparse(product)


def _generate(tokens: int) -> Callable[[], object]:
    from benchmarks.generate import Ours

    ours = Ours(len(os.sched_getaffinity(0)), 1, 128)
    return lambda: ours.run([list(range(1, 65))], tokens)


def _command(*words: str) -> Callable[[], object]:
    command = [sys.executable, "-c", "from cstool.cli import main; main()", *words]
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


ROWS: dict[str, Callable[[], Callable[[], object]]] = {
    "step gpt2": lambda: _step("gpt2"),
    "step llama": lambda: _step("llama"),
    "step at 90 % sparsity": lambda: _sparse_step(0.9),
    "step of its dense twin": lambda: _sparse_step(None),
    "sparse forward, 90 %": lambda: _sparse_product("forward"),
    "sparse delta, 90 %": lambda: _sparse_product("delta"),
    "sparse gradient, 90 %": lambda: _sparse_product("gradient"),
    "sparse backward, 90 %": lambda: _sparse_product("backward"),
    "generate, prompt of 64": lambda: _generate(1),
    "generate, 32 tokens more": lambda: _generate(33),
    "cstool --help": lambda: _command("--help"),
    "cstool config stats": lambda: _command("config", "stats", "params/gpt2_small.yaml"),
}
"""name of a row -> builds what one turn does"""


def start(folder: Path, row: str) -> Side:
    """Return a side of a row, ready for its first turn."""
    return Side([sys.executable, str(HERE), str(folder), "--serve", row], folder, {"PYTHONPATH": str(folder)})


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(description="This checkout against another one of the project")
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default: 5)")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW", help="only these")
    parser.add_argument("--serve", choices=ROWS, metavar="ROW", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        sys.path[0] = str(arguments.other)
        serve(ROWS[arguments.serve])
        return
    print(f"measured on this host, {arguments.rounds} rounds, sides alternating; medians in seconds")
    print(f"{'':26}   before      now   before / now (min to max)")
    for row in arguments.rows:
        sides = [start(folder.resolve(), row) for folder in (arguments.other, HERE.parents[1])]
        seconds = [[side.turn() for side in sides] for _ in range(arguments.rounds)]
        for side in sides:
            side.end()
        before, now = (median(turns) for turns in zip(*seconds, strict=True))
        ratios = sorted(a / b for a, b in seconds)
        between = f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
        print(f"{row:26}{before:9.4f}{now:9.4f}   {median(ratios):.3f}x {between}", flush=True)


if __name__ == "__main__":
    main()
