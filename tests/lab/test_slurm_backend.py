"""The Slurm back end, with a real Slurm, keeps the contract of back ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cstool.appliance.queue.client import Jobs, open_jobs
from cstool.appliance.queue.job import CANCELLED, FAILED, QUEUED, RUNNING, SUCCEEDED, Job
from cstool.appliance.queue.slurm_script import slurm_folder
from tests.end_to_end.runs import latest_bits
from tests.job_contract import PATIENCE_S, JobContract, program_order
from tests.patience import wait_until
from tests.slurm import Slurm

STOPS = """
import os, signal, sys, time
def stop(*_):
    print("error: stopped", file=sys.stderr)
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
if os.path.exists("again"): sys.exit(0)
open("again", "w").close()
print("begun", flush=True)
while True: time.sleep(0.1)
"""
"""ends where it is begun again"""
LIMIT = "Slurm's time limit is near; it stopped, and is saved"
DIED = "job {} of Slurm: its batch job ended as FAILED (JobLaunchFailure), and did not say how"


class SlurmOffer:
    """An appliance whose jobs a Slurm has."""

    def __init__(self, root: Path, cluster: Slurm) -> None:
        self.jobs, self._cluster = open_jobs(root, "slurm", makes=True), cluster

    @contextmanager
    def held(self) -> Iterator[None]:
        self._cluster.ask("scontrol", "update", "PartitionName=main", "State=DOWN")
        try:
            yield
        finally:
            self._cluster.ask("scontrol", "update", "PartitionName=main", "State=UP")


class TestSlurm(JobContract):
    """The contract, and what Slurm does besides."""

    @pytest.fixture(scope="class")
    @classmethod
    def offer(cls, tmp_path_factory, cluster) -> Iterator[SlurmOffer]:
        found = SlurmOffer(tmp_path_factory.mktemp("root") / "appliance", cluster)
        yield found
        assert found.jobs.jobs(active=True) == []
        found.jobs.close()

    @pytest.fixture
    def begun(self, offer, tmp_path, text) -> Callable[..., Job]:

        def begin(**changes: object) -> Job:
            jobs: Jobs = offer.jobs
            job = jobs.submit(program_order(tmp_path, text, STOPS, **changes))
            log = jobs.folder(job.name).log("out")
            wait_until(lambda: log.exists() and "begun" in log.read_text(), "it does not begin", patience_s=PATIENCE_S)
            wait_until(lambda: jobs.job(job.name).phase == RUNNING, "the job does not run", patience_s=PATIENCE_S)
            return jobs.job(job.name)

        return begin

    @pytest.mark.parametrize(
        ("flags", "phase", "reason"),
        [
            ((), CANCELLED, "cancelled by Slurm's commands; it stopped, and is saved"),
            (("--batch", "--signal=USR1"), FAILED, f"time: {LIMIT}"),  # what Slurm does ahead of the time limit
            (("--batch", "--signal=KILL"), FAILED, DIED),
        ],
    )
    def test_somebody_ends_it_by_hand(self, offer, cluster, begun, flags, phase, reason):
        job = begun()
        cluster.ask("scancel", *flags, job.backend_id)
        job = self.ended(offer.jobs, job)
        assert (job.phase, job.reason) == (phase, reason.format(job.backend_id))

    def test_slurm_queues_it_again(self, offer, cluster, begun):
        jobs, job = offer.jobs, begun()
        cluster.ask("scontrol", "requeue", job.backend_id)
        wait_until(lambda: jobs.job(job.name).phase == QUEUED, "it does not wait again", patience_s=PATIENCE_S)
        job = self.ended(jobs, job)
        assert (job.phase, job.restarts, job.attempt) == (SUCCEEDED, 0, 2)
        assert self.kinds(jobs, job) == ["submitted", "started", "preempted", "started", "succeeded"]

    def test_after_slurms_time_limit_it_goes_on(self, offer, cluster, begun):
        job = begun(max_restarts=1)
        cluster.ask("scancel", "--batch", "--signal=USR1", job.backend_id)
        job = self.ended(offer.jobs, job)
        assert (job.phase, job.restarts) == (SUCCEEDED, 1)
        texts = [event.text for event in offer.jobs.events(job.name) if event.kind == "crashed"]
        assert texts == [f"{LIMIT}; restart 1 of 1"]

    def test_a_job_that_only_its_records_know(self, offer, cluster, tmp_path, text, monkeypatch):
        """Slurm has forgotten it, and there is no accounting."""
        jobs: Jobs = offer.jobs
        job = jobs.submit(program_order(tmp_path, text, "print('begun')"))
        wait_until(lambda: cluster.state(job.backend_id) == "COMPLETED", "it does not end", patience_s=PATIENCE_S)
        (slurm_folder(jobs.folder(job.name)) / "journal").unlink()
        jobs.queue.change(job.name, (QUEUED,), phase=RUNNING, stage="execute", attempt=1)
        monkeypatch.setattr("cstool.appliance.queue.slurm.known_jobs", lambda numbers: {})
        job = self.ended(jobs, job)
        assert (job.phase, job.exit_code) == (SUCCEEDED, 0)

    def test_the_script_is_as_good_by_hand(self, offer, cluster, make, straight):
        jobs: Jobs = offer.jobs
        job = jobs.submit(make())
        self.wait_for_commit(jobs, job, 1)
        jobs.cancel(job.name)
        job = self.ended(jobs, job)
        cluster.ask("sbatch", "--wait", str(slurm_folder(jobs.folder(job.name)) / "job.sh"))
        assert jobs.job(job.name) == job
        assert latest_bits(job.model_dir) == straight

    def test_a_second_batch_job_leaves_it_alone(self, offer, cluster, begun):
        jobs, job = offer.jobs, begun()
        place = slurm_folder(jobs.folder(job.name))
        log = place / f"{cluster.ask('sbatch', '--parsable', str(place / 'job.sh'))}.log"
        wait_until(lambda: log.exists() and "\n" in log.read_text(), "it does not end", patience_s=PATIENCE_S)
        assert log.read_text().startswith(f"error: {job.name}: must have one batch job at a time, process ")
        assert jobs.job(job.name).phase == RUNNING
        jobs.cancel(job.name)
        assert self.ended(jobs, job).phase == CANCELLED

    def test_more_urgent_jobs_first(self, offer, cluster, tmp_path, text):
        with offer.held():
            orders = [program_order(tmp_path / each, text, "", priority=each) for each in ("p3", "p2", "p1")]
            found = [offer.jobs.submit(order) for order in orders]
            ranks = [int(cluster.ask("squeue", "-h", "-j", job.backend_id, "--format=%Q")) for job in found]
            assert ranks == sorted({*ranks}), ranks
            assert len(ranks) == 3
            for job in found:
                offer.jobs.cancel(job.name)
