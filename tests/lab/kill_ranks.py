"""Kill ranks of runs over and over, let the runs go on, and compare every bit with a run in one process.

    python -m tests.lab.kill_ranks --times 30 --ranks 3

A run has MemoryX in files. A rank is killed (SIGKILL) at a random time, from before MPI has begun until after the last
step; at times a second one at about the same moment. Then the run goes on, on as many ranks as chance has it, each with
a shard of MemoryX or one with all of it, until it gets to its end. Each time the others must have ended soon, with one
message; no process may be left, and no step that was committed may be lost.
"""

import argparse
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.end_to_end.ranks import CSTOOL, Command, Said, committed, launched
from tests.end_to_end.runs import digest, gpt_params, latest_bits, run_file, write_text
from tests.job_contract import STREAMED

STEPS = 12
SOON_S = 30.0
OTHERWISE = 0.3
"""how probable it is that a run goes on on other ranks or nodes, and that a second rank is killed"""
CHANGES = {
    "init__loop": {"max_steps": STEPS},
    "init__checkpoint": {"steps": STEPS},
    "init__memoryx": {"store": "file"},
    "init__backend": {"cluster_config": {"num_csx": 4}},
    "init__model__dropout_rate": 0.1,
}


def kill_some(command: Command, ranks: int, seconds: float, chance: random.Random) -> tuple[Said, int]:
    """Kill one rank or two of a run that takes so long, and return what it said, and how many were still there."""
    numbers = chance.sample(range(ranks), 1 + (ranks > 1 and chance.random() < OTHERWISE))
    victims = [command.process.pid] if ranks == 1 else [command.rank(number) for number in numbers]
    time.sleep(chance.uniform(0, seconds))
    began, kills = time.monotonic(), 0
    for victim in victims:
        with suppress(ProcessLookupError):
            if command.process.poll() is None and victim in command.processes():
                os.kill(victim, signal.SIGKILL)
                kills += 1
        time.sleep(chance.choice((0.0, chance.uniform(0, 0.3))))
    said = command.wait()
    assert time.monotonic() - began < SOON_S or said.exit_code == 0, said.errors
    return said, kills


def kill_until_done(file: Path, most_ranks: int, seconds: float, chance: random.Random) -> Counter[str]:
    """Kill ranks of a run until it gets to its end, and count how often, by ranks and nodes."""
    counts: Counter[str] = Counter()
    before, ranks, nodes = 0, most_ranks, most_ranks
    while True:
        words = (*CSTOOL, "run", "-p", str(file), *STREAMED, "--lanes", "1")
        if ranks > 1:
            words = (*launched(file, *STREAMED, "--memoryx_nodes", str(nodes), ranks=ranks),)
        with Command(*words) as command:
            said, kills = kill_some(command, ranks, seconds, chance)
        if said.exit_code == 0:
            return counts
        assert kills, said
        assert said.exit_code == (-signal.SIGKILL if ranks == 1 else 1), said
        # Where all are gone nobody says which went first; one that cannot reach rank 0 is missed by its silence.
        told = "it died" in said.errors or "it has been silent" in said.errors or kills == ranks
        assert said.errors == "" if ranks == 1 else told and said.errors.count("error: ") == 1, said.errors
        counts[f"{ranks} ranks, {nodes} nodes, {kills} killed"] += 1
        step = committed(file.parent / "model_dir")
        assert step >= before, f"step {before} was committed, {step} is now"
        before = step
        if chance.random() < OTHERWISE:
            ranks = chance.randint(1, most_ranks)
            nodes = chance.choice((1, ranks))


def main() -> None:
    """Kill, and say how often."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=30, help="how often to kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=3, help="at most; at least 2")
    options = parser.parse_args()
    folder, chance = Path(tempfile.mkdtemp(prefix="kill_ranks.")), random.Random(options.seed)
    data, counts = write_text(folder / "data", 150), Counter[str]()
    straight = digest(Path(run_file(gpt_params(folder / "straight", data, **CHANGES)).checkpoints[-1]))
    began = time.monotonic()
    timed = gpt_params(folder / "timed", data, **CHANGES)
    with Command(*launched(timed, *STREAMED, ranks=options.ranks)) as command:
        assert command.wait().exit_code == 0
    seconds = time.monotonic() - began
    while counts.total() < options.times:
        counts += kill_until_done(gpt_params(folder / "run", data, **CHANGES), options.ranks, seconds, chance)
        assert latest_bits(folder / "run" / "model_dir") == straight, "the bits are others"
        shutil.rmtree(folder / "run")
        print(f"{counts.total()} kills so far: the same bits", flush=True)
    shutil.rmtree(folder)
    for what, count in sorted(counts.items()):
        print(f"{count:6,}  {what}")


if __name__ == "__main__":
    main()
