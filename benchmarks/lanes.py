"""How much of a step is the interpreter's, and what two lanes gain over one.

Run from the project's folder::

    python -m benchmarks.lanes
    python -m benchmarks.lanes --models fc_mnist --rounds 20

Steps of one lane and of two take turns in one process. A lane is native while it executes records of a table; the rest
of a step is the interpreter, on any thread, and waits for the other lane. On a machine where other work wants a core
the second lane gains less.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from benchmarks.step import cstool_side

CASES = {"fc_mnist": (120, 1), "gpt_tiny": (24, 128), "vit_tiny": (80, 1)}
"""by model: samples of a batch, and tokens of a sample"""
LANES = (1, 2)
WARM_UP_STEPS = 3
TURN_S = 0.3
"""time of a turn"""


def measure(model: str, rounds: int) -> dict[int, tuple[list[float], list[list[float]]]]:
    """Return, by number of lanes, the seconds of a step in each turn, and of these each lane's in records."""
    batch_size, tokens = CASES[model]
    sides = {lanes: cstool_side(model, batch_size, sequence_length=tokens, lanes=lanes) for lanes in LANES}
    for step, _ in sides.values():
        for _ in range(WARM_UP_STEPS):
            step()
    found: dict[int, tuple[list[float], list[list[float]]]] = {lanes: ([], []) for lanes in LANES}
    for _ in range(rounds):
        for lanes, (step, appliance) in sides.items():
            before, began, steps = appliance.training_cluster.native_seconds, time.perf_counter(), 0
            while (took := time.perf_counter() - began) < TURN_S or not steps:
                step()
                steps += 1
            after = appliance.training_cluster.native_seconds
            found[lanes][0].append(took / steps)
            found[lanes][1].append([(b - a) / steps for a, b in zip(before, after, strict=True)])
    for _, appliance in sides.values():
        appliance.__exit__()
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="The interpreter's share of a step, and what two lanes gain")
    parser.add_argument("--models", nargs="+", choices=CASES, metavar="MODEL", default=CASES, help="only these")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each side (default: 10)")
    arguments = parser.parse_args()
    print("model       lanes   median ms   least ms   outside records, by lane   speed over one lane")
    for model in arguments.models:
        found = measure(model, arguments.rounds)
        for lanes, (seconds, native) in found.items():
            shares = [1 - median(n[lane] / s for s, n in zip(seconds, native, strict=True)) for lane in range(lanes)]
            gain = median(one / many for one, many in zip(found[1][0], seconds, strict=True))
            best = min(found[1][0]) / min(seconds)
            print(
                f"{model:11} {lanes:5} {1e3 * median(seconds):11.3f} {1e3 * min(seconds):10.3f}"
                f"   {', '.join(f'{share:.1%}' for share in shares):24}   {gain:.2f} (of the least: {best:.2f})"
            )


if __name__ == "__main__":
    main()
