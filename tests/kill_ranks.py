"""Kill ranks of runs over and over, let the runs go on, and compare every bit with a run in one process.

    python -m tests.kill_ranks --times 30

A trial is a run of several ranks with MemoryX in a file. A rank is killed (SIGKILL) at a random time, from before MPI
has begun until after the last step, and the same command is typed again, until the run gets to its end. Each time the
others must have ended soon, with one message, and no process may be left.
"""

import argparse
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

from cstool.store import committed_step
from tests.end_to_end.ranks import Command, launched
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text

STEPS = 12
SOON_S = 30.0
CHANGES = {
    "init__loop": {"max_steps": STEPS},
    "init__checkpoint": {"steps": STEPS},
    "init__memoryx": {"store": "file"},
    "init__backend": {"cluster_config": {"num_csx": 4}},
    "init__model__dropout_rate": 0.1,
}


def trial(file: Path, ranks: int, seconds: float, chance: random.Random) -> int:
    """Kill ranks of a run until it gets to its end, and return how often.

    Args:
        seconds: about what the run takes
    """
    path, kills, before = file.parent / "model_dir" / "memoryx.h5", 0, 0
    while True:
        with Command(*launched(file, ranks=ranks)) as command:
            victim = command.rank(chance.randrange(ranks))
            time.sleep(chance.uniform(0, seconds))
            began = time.monotonic()
            # A run that is through has no ranks any more.
            if command.process.poll() is None and victim in command.processes():
                os.kill(victim, signal.SIGKILL)
            said = command.wait()
        if said.exit_code == 0:
            return kills
        assert said.exit_code == 1, said
        assert said.errors.count("error: ") == 1, said.errors
        assert "it died" in said.errors, said.errors
        assert time.monotonic() - began < SOON_S, said.errors
        kills += 1
        step = (path.exists() and committed_step(path)) or 0
        assert step >= before, f"step {before} was committed, {step} is now"
        before = step


def main() -> None:
    """Kill, and say how often."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=30, help="how often to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    folder, chance = Path(tempfile.mkdtemp(prefix="kill_ranks.")), random.Random(options.seed)
    data = write_text(folder / "data", 150)
    straight = digest(Path(run_file(gpt_params(folder / "straight", data, **CHANGES)).checkpoints[-1]))
    began = time.monotonic()
    with Command(*launched(gpt_params(folder / "timed", data, **CHANGES), ranks=options.ranks)) as command:
        assert command.wait().exit_code == 0
    seconds, began, kills, runs = time.monotonic() - began, time.monotonic(), 0, 0
    while kills < options.times:
        kills += trial(gpt_params(folder / str(runs), data, **CHANGES), options.ranks, seconds, chance)
        assert latest_bits(folder / str(runs) / "model_dir") == straight, "the bits are others"
        shutil.rmtree(folder / str(runs))
        runs += 1
    shutil.rmtree(folder)
    print(f"{kills} kills of {runs} runs of {options.ranks} ranks in {time.monotonic() - began:.0f} s: the same bits")


if __name__ == "__main__":
    main()
