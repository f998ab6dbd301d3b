"""Random fabric programs on both engines of the fabric: nothing may differ.

    python -m tests.csl_random 2000
    python -m tests.csl_random 1 --seed 173 --show
    NUMBA_DISABLE_JIT=1 python -m tests.csl_random 200 --uncompiled

Seeds whose programs differ are printed, with what differs first. `--uncompiled` runs the fast engine as plain Python.
"""

import argparse
import sys
import time


def main() -> int:
    """Compare by the command line; the exit code is 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.csl_random")
    parser.add_argument("programs", type=int, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one")
    parser.add_argument("--max_cycles", type=int, default=3000, help="cycles of each at most")
    parser.add_argument("--show", action="store_true", help="print the code of the PEs")
    parser.add_argument("--uncompiled", action="store_true", help="the fast engine as plain Python")
    flags = parser.parse_args()
    if flags.uncompiled:
        from tests.unit.csl.fast import uncompiled  # noqa: F401
    from tests.unit.csl.fast.judge import differences, function_launches
    from tests.unit.csl.fast.random_programs import random_program

    begun, bad = time.perf_counter(), 0
    for seed in range(flags.seed, flags.seed + flags.programs):
        program = random_program(seed)
        if flags.show:
            for pe in program.programs:
                print(pe.code)
        found = differences(program, function_launches(program), flags.max_cycles)
        if found:
            bad += 1
            print(f"seed {seed}: {found[0][:400]}", flush=True)
    print(f"{flags.programs} programs, {bad} differ, {time.perf_counter() - begun:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
