"""What people do with jobs, with back ends that note what they were told."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from cstool.appliance.queue.backend import LocalBackend, make_backend
from cstool.appliance.queue.client import Jobs, open_jobs
from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, CANCELLED, QUEUED, RUNNING, SUCCEEDED, Job, JobOrder
from cstool.appliance.queue.job_folder import JobFolder
from cstool.appliance.queue.queue import BACKEND
from cstool.appliance.queue.slurm import SlurmBackend
from cstool.foundation.errors import ClusterError, CstoolError
from tests.appliances import CAPACITY, NEEDS, small_order
from tests.patience import within_patience
from tests.unit.appliance.queue.queues import NOBODY, as_user


class Elsewhere:
    """A back end that notes what it is told, and refuses what it is to refuse."""

    name = "slurm"

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.refuses = ""
        self.told: list[tuple[str, ...]] = []

    def check(self, order: JobOrder) -> None:
        self._refuse("check")

    def accept(self, job: Job, folder: JobFolder, order: JobOrder) -> str:
        assert folder.order(job.digest) == order
        self._refuse("accept")
        return "17"

    def refresh(self, jobs: Sequence[Job]) -> None:
        self.told.append(("refresh", *(job.name for job in jobs)))
        if self.refuses == "succeed":
            for job in jobs:
                self.jobs.queue.change(job.name, (QUEUED, RUNNING), phase=SUCCEEDED)

    def stop(self, job: Job, what: str) -> None:
        self.told.append((job.name, job.phase, what))

    def _refuse(self, what: str) -> None:
        if self.refuses == what:
            raise CstoolError(f"{what}: refused")


@pytest.fixture
def jobs(tmp_path) -> Iterator[Jobs]:
    with open_jobs(tmp_path / "root", makes=True) as found:
        yield found


@pytest.fixture
def elsewhere(jobs) -> tuple[Jobs, Elsewhere]:
    backend = Elsewhere(jobs)
    return Jobs(jobs.root, jobs.queue, backend), backend


def order(folder: Path, **changes) -> JobOrder:
    return small_order(folder / "model_dir", "", **changes)


def test_a_job_is_submitted_looked_at_and_labelled(tmp_path, jobs):
    job = jobs.submit(order(tmp_path, labels={"a": "1"}))
    assert (job.phase, job.backend, job.backend_id, job.user_id) == (QUEUED, "local", "", os.geteuid())
    assert jobs.job(job.name) == job
    assert jobs.jobs(labels={"a": "1"}) == [job]
    assert jobs.folder(job.name).order(job.digest) == order(tmp_path, labels={"a": "1"})
    assert jobs.position(job.name[:10]) == 1
    assert [event.kind for event in jobs.events(job.name)] == ["submitted"]
    assert jobs.label(job.name, {"a": None, "b": "2"}).labels == {"b": "2"}


@pytest.mark.parametrize(("at_once", "what"), [(False, CANCEL), (True, CANCEL_NOW)])
def test_a_back_end_is_told_of_what_is_cancelled(tmp_path, elsewhere, at_once, what):
    jobs, backend = elsewhere
    job = jobs.submit(order(tmp_path))
    assert job.backend_id == "17"
    jobs.queue.change(job.name, (QUEUED,), phase=RUNNING)
    assert jobs.cancel(job.name, at_once=at_once).asked == what
    assert backend.told == [("refresh", job.name), (job.name, RUNNING, what)]


@pytest.mark.parametrize("what", ["check: refused", "accept: refused", "the disk is full", "systems"])
def test_what_is_refused_leaves_nothing(tmp_path, elsewhere, monkeypatch, what):
    jobs, backend = elsewhere
    backend.refuses = what.partition(":")[0]
    changes = {}
    if what == "the disk is full":
        monkeypatch.setattr(jobs.queue, "add", Mock(side_effect=CstoolError(what)))
    elif what == "systems":
        jobs, changes = (
            Jobs(jobs.root, jobs.queue, LocalBackend(jobs.root, jobs.queue)),
            {"needs": replace(NEEDS, systems=99)},
        )
        jobs.queue.put("capacity", asdict(CAPACITY))
    with pytest.raises(CstoolError, match=what):
        jobs.submit(order(tmp_path, **changes))
    assert (jobs.queue.jobs(), jobs.events()) == ([], [])
    assert [*jobs.root.jobs.iterdir()] == []


def test_waiting_for_jobs_returns_them_as_they_ended_in_order(tmp_path, jobs, monkeypatch):
    first, second = jobs.submit(order(tmp_path)), jobs.submit(order(tmp_path))
    assert [job.phase for job in jobs.wait([second.name, first.name], 0.0)] == [QUEUED, QUEUED]

    def end(seconds: float) -> None:
        for job in (first, second):
            jobs.cancel(job.name)

    monkeypatch.setattr("cstool.appliance.queue.client.time.sleep", end)
    found = within_patience(lambda: jobs.wait([second.name, first.name]))
    assert [(job.name, job.phase) for job in found] == [(second.name, CANCELLED), (first.name, CANCELLED)]
    assert jobs.wait([]) == []
    with pytest.raises(CstoolError, match="must be in the queue, there is no such job"):
        jobs.wait([f"wsjob-{'0' * 22}"])


def test_waiting_asks_back_ends_that_know_what_the_queue_does_not(tmp_path, elsewhere):
    jobs, backend = elsewhere
    job = jobs.submit(order(tmp_path))
    backend.refuses = "succeed"
    assert [found.phase for found in within_patience(lambda: jobs.wait([job.name]))] == [SUCCEEDED]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_somebody_elses_job_is_not_for_others_to_stop(tmp_path, jobs):
    job = jobs.submit(order(tmp_path))
    for owner, user_id, what, said in (
        (job.user, job.user_id, "cancel", f"CstoolError: job {job.name}: only root may cancel it, this is nobody"),
        ("ann", 1, "label", f"CstoolError: job {job.name}: only ann or root may label it, this is nobody"),
        ("nobody", NOBODY, "label", None),
    ):
        theirs = replace(job, user=owner, user_id=user_id)
        assert as_user(NOBODY, [], lambda theirs=theirs, what=what: jobs._check_owner(theirs, what)) == said


def test_the_back_end_is_that_which_was_asked_for_or_that_of_the_appliance(tmp_path):
    with open_jobs(tmp_path / "a", makes=True) as jobs:
        assert (jobs.backend.name, jobs.queue.get(BACKEND)) == ("local", None)
    with open_jobs(tmp_path / "b", "slurm", makes=True) as jobs:
        assert isinstance(jobs.backend, SlurmBackend)
    with open_jobs(tmp_path / "b") as jobs:
        assert jobs.backend.name == "slurm"
    with open_jobs(tmp_path / "b", "local") as jobs:
        assert jobs.backend.name == "local"


def test_no_other_back_end_and_no_appliance(tmp_path, jobs):
    for make in (
        lambda: make_backend("slrum", jobs.root, jobs.queue),
        lambda: open_jobs(tmp_path / "none", "slrum", makes=True),
    ):
        with pytest.raises(ClusterError) as error:
            make()
        assert str(error.value) == "--backend: must be local or slurm, got 'slrum'\nhint: did you mean slurm?"
    shutil.rmtree(tmp_path / "none", ignore_errors=True)
    with pytest.raises(CstoolError):
        open_jobs(tmp_path / "none")
    assert not (tmp_path / "none").exists()
