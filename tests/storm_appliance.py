"""Many jobs, several clients at once, and a supervisor that is killed again and again; then everything is checked.

    python -m tests.storm_appliance --jobs 200 --clients 8 --kills 20

Each job is a real run of a tiny model, of one to three steps, with a priority and lanes by chance. Clients are
processes of their own: each submits its jobs, looks at queue and events meanwhile, and waits for its jobs. Then an
independent checker reads the event log, each model_dir must have the checkpoint of its last step with the bits of a run
alone, and no client may have seen an error.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cstool.appliance.queue.attempt import ENDED, Attempt
from cstool.appliance.queue.job import EXECUTE, PRIORITIES, STARTED, SUCCEEDED
from cstool.appliance.verbs.job_order import JobRequest
from cstool.appliance.verbs.jobs import job_events, list_jobs, show_job, submit_job, wait_for_jobs
from cstool.model.params import load_all_params
from cstool.training.store import list_checkpoints
from cstool.training.verbs.run import RunRequest
from tests.appliances import CAPACITY, TestAppliance
from tests.end_to_end.runs import digest, gpt_params, run_file, write_text

MOST_STEPS = 3
PAUSE_S = 0.3
"""a client pauses for up to so long between two jobs [s]"""


def client(number: int, count: int, folder: Path, seed: int) -> None:
    """Submit jobs and wait for them, as a process of its own does; print what became of them as JSON.

    Args:
        number: of the client; its jobs have model_dirs of this number
        count: of its jobs
        folder: with `text`, and the appliance in `root`
    """
    chance, root, lines = random.Random(f"{seed} {number}"), folder / "root", list[str]()
    jobs: dict[str, int] = {}
    for job in range(count):
        steps = chance.randint(1, MOST_STEPS)
        file = tiny_params(folder, folder / f"job-{number}-{job}", steps)
        lanes = chance.choice([1, 1, 1, 2])
        run = RunRequest(lanes=lanes, sparse_kernels="always", execution_mode="weight_streaming")
        request = JobRequest(
            run=run,
            program=(sys.executable, "-m", "cstool"),
            params_file=str(file),
            priority=chance.choice(PRIORITIES),
            labels=(f"client={number}",),
            memory="2GiB",
            disk="100MB",
            compile_dir=folder / "compiled",
        )
        submitted = submit_job(root, None, load_all_params(file), request, lines.append)
        jobs[submitted.job.name] = steps
        # What people do meanwhile.
        assert len(list_jobs(root, active=False, labels=[f"client={number}"]).jobs) == job + 1
        assert job_events(root, submitted.job.name)[0].kind == "submitted"
        assert show_job(root, submitted.job.name).job.needs.memory_bytes == 2**31
        time.sleep(chance.uniform(0, PAUSE_S))
    found, code = wait_for_jobs(root, [*jobs])
    assert code == 0, [(job.name, job.phase, job.reason) for job in found if job.phase != SUCCEEDED]
    print(json.dumps({name: [str(job.model_dir), jobs[name]] for name, job in zip(jobs, found, strict=True)}))


def tiny_params(folder: Path, place: Path, steps: int) -> Path:
    small = {"hidden_size": 16, "num_heads": 2, "num_hidden_layers": 1, "filter_size": 32}
    model = {f"init__model__{key}": value for key, value in small.items()}
    loop = {"init__loop": {"max_steps": steps}, "init__checkpoint": {"steps": 1}}
    return gpt_params(place, folder / "text", **model, **loop, fit__train_dataloader__batch_size=4)


def storm(jobs: int, clients: int, kills: int, folder: Path, *, seed: int = 0, seconds_per_job: float = 1.0) -> str:
    """Have clients submit jobs while the supervisor is killed, check what came of it, and return that in words.

    Args:
        folder: an empty one
        seconds_per_job: how long a job takes, about: kills are spread over that time
    """
    write_text(folder / "text", 20)
    bits = {
        steps: digest(Path(run_file(tiny_params(folder, folder / f"alone-{steps}", steps)).checkpoints[-1]))
        for steps in range(1, MOST_STEPS + 1)
    }
    assert len({*bits.values()}) == MOST_STEPS
    chance, began = random.Random(seed), time.monotonic()
    with TestAppliance(folder / "root", CAPACITY) as appliance:
        appliance.start()
        counts = [jobs // clients + (number < jobs % clients) for number in range(clients)]
        processes = [_start_client(number, count, folder, seed) for number, count in enumerate(counts)]
        try:
            killed = 0
            while killed < kills and any(process.poll() is None for process in processes):
                time.sleep(chance.uniform(0.0, 1.5 * seconds_per_job * jobs / max(1, kills)))
                appliance.kill_supervisor()
                killed += 1
            said = [process.communicate() for process in processes]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        for process, (_, errors) in zip(processes, said, strict=True):
            assert (process.returncode, errors) == (0, ""), f"a client ended with {process.returncode}: {errors}"
        assert killed == kills, f"all jobs had ended when the supervisor was killed {killed} times"
        found: dict[str, tuple[str, int]] = {}
        for output, _ in said:
            found |= json.loads(output)
        assert len(found) == jobs
        _check(appliance, found, bits)
        seconds = time.monotonic() - began
        events = appliance.queue.events()
        kinds = Counter(event.kind for event in events)
        return (
            f"{jobs} jobs of {clients} clients, {killed} kills, {kinds['supervisor_started']} supervisors: each job "
            f"began once and ended well in {seconds:.0f} s; {kinds['compile_started']} compile, "
            f"{kinds['compile_shared']} shared it; {len(events):,} events, nothing is wrong"
        )


def _start_client(number: int, count: int, folder: Path, seed: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-W", "ignore", "-m", "tests.storm_appliance", "--folder", str(folder)]
    command += ["--seed", str(seed), "--client", str(number), "--jobs", str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _check(appliance: TestAppliance, found: dict[str, tuple[str, int]], bits: dict[int, str]) -> None:
    wrong = appliance.faults()
    assert not wrong, "\n".join(wrong[:20])
    starts = Counter(event.job for event in appliance.queue.events() if event.kind == STARTED)
    assert starts == dict.fromkeys(found, 1), f"jobs that did not start once: {starts - Counter([*found])}"
    for name, (model_dir, steps) in found.items():
        folder = appliance.root.job(name)
        assert [each.name for each in folder.attempts.iterdir() if each.name.startswith(EXECUTE)] == [f"{EXECUTE}-1"]
        assert Attempt(folder, EXECUTE, 1).look().state == ENDED
        checkpoints = {entry.step: entry.path for entry in list_checkpoints(Path(model_dir))}
        assert max(checkpoints, default=None) == steps, f"{name}: has checkpoints of {[*checkpoints]}, not of {steps}"
        assert digest(checkpoints[steps]) == bits[steps], f"{name}: its bits are others than those of a run alone"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="an empty one; a new one where it is not given")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.client is not None:
        client(options.client, options.jobs, options.folder, options.seed)
        return
    with tempfile.TemporaryDirectory(prefix="storm.") as folder:
        place = Path(os.path.realpath(folder)) if options.folder is None else options.folder
        print(storm(options.jobs, options.clients, options.kills, place, seed=options.seed))


if __name__ == "__main__":
    main()
