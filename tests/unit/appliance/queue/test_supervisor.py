"""A supervisor round by round, with keepers that are records alone, killed at every call that it makes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cstool.appliance.queue import supervisor as module
from cstool.appliance.queue.attempt import ABSENT, ALIVE, DEAD, ENDED, FULL, AttemptState, End
from cstool.appliance.queue.client import Jobs, open_jobs
from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, COMPILE, EXECUTE, PHASES, PREEMPT, Capacity, Job
from cstool.appliance.queue.queue import CAPACITY, DRAINED_SETTING, KEEPS, Queue
from cstool.appliance.queue.supervising import Ending, _prune, supervise
from cstool.appliance.queue.supervisor import Supervisor
from cstool.foundation.atomic_file import lock_file
from cstool.foundation.errors import CstoolError
from tests.appliance_log import faults
from tests.appliances import NEEDS, small_order
from tests.unit.appliance.queue.queues import refusal

TWO = Capacity((0, 1), 2**34, 2**34, 8, 1)
HERE = "boot-1"
COMPILES: dict[str, Any] = {"compile_words": ("compile",), "compile_key": "k"}


class Killed(BaseException):
    """As SIGKILL: nothing is done after it."""


class Keepers:
    """What real ones would have recorded. An attempt begins once, whoever starts it."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, int], AttemptState] = {}
        self.started: list[tuple[str, str, int]] = []
        self.told: dict[str, dict[str, Any]] = {}
        """what was last said of a job: command, cpus, user"""
        self.asked: list[tuple[str, str, int, str]] = []
        self.killed: list[tuple[str, str, int, bool]] = []
        self.processes: dict[str, SimpleNamespace] = {}
        self.cannot: str | None = None
        self.calls = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def start(self, folder, stage, attempt, order, command, cpus, *, user=None) -> Any:
        self.calls += 1
        process = self.processes[folder.name] = SimpleNamespace(returncode=None if self.cannot is None else 4)
        process.poll = lambda: process.returncode
        process.trouble = lambda: self.cannot if process.returncode == 4 else None
        if self.cannot is not None:
            return process
        key = (folder.name, stage, attempt)
        self.told[folder.name] = {"command": command, "cpus": cpus, "user": user}
        if key not in self.kept:
            self.started.append(key)
            self.kept[key] = AttemptState(ALIVE, None, HERE)
        return process

    def look(self, folder, stage, attempt) -> AttemptState:
        self.meanwhile()
        return self.kept.get((folder.name, stage, attempt), AttemptState(ABSENT))

    def ask(self, folder, stage, attempt, what) -> None:
        self.asked.append((folder.name, stage, attempt, what))

    def kill(self, folder, stage, attempt, *, spares_keeper) -> list[int]:
        self.killed.append((folder.name, stage, attempt, spares_keeper))
        return [7, 8]

    def end(self, *key: Any, code: int | None = 0, signal: int | None = None) -> None:
        self.kept[key] = AttemptState(ENDED, End(code, signal, "", "", 9, 1.0, 2.0), HERE)
        if key[0] in self.processes:
            self.processes[key[0]].returncode = 0

    def end_all(self) -> None:
        for key, kept in self.kept.items():
            if kept.state == ALIVE:
                self.end(*key)


class FakeAttempt:
    """An attempt that asks its keepers."""

    def __init__(self, keepers: Keepers, *key: Any) -> None:
        self.keepers, self.key = keepers, key

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self.keepers, name), *self.key)


class Place:
    """An appliance without processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: Jobs = open_jobs(folder / "root", makes=True)
        self.queue = self.jobs.queue
        self.keepers = Keepers()
        self.now = 1000.0
        self.lines: list[str] = []
        self.queue.put(CAPACITY, asdict(TWO))
        self.supervisor = self.new()

    def new(self, boot_id: str = HERE, *, queue: Any = None, keepers: Any = None) -> Supervisor:
        attempts: Any = partial(FakeAttempt, keepers or self.keepers)
        parts = {"boot_id": boot_id, "attempts": attempts, "clock": lambda: self.now}
        return Supervisor(self.jobs.root, queue or self.queue, **parts, say=self.lines.append)

    def end(self, job: Job, code: int | None = 0, *, signal: int | None = None, turns: int = 1) -> Job:
        job = self.job(job)
        self.keepers.end(job.name, job.stage, job.attempt, code=code, signal=signal)
        self.turn(turns)
        return self.job(job)

    def submit(self, **changes: Any) -> Job:
        return self.jobs.submit(small_order(self.folder / "model_dir", "pass", **changes))

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.supervisor.turn()

    def job(self, job: Job) -> Job:
        return self.queue.job(job.name)

    def phases(self, *jobs: Job) -> list[str]:
        return [self.job(job).phase for job in jobs]

    def kinds(self, job: Job) -> list[str]:
        return [event.kind for event in self.queue.events(job.name)]

    def check(self, **options: Any) -> None:
        events = [vars(event) for event in self.queue.events()]
        assert faults(events, vars(TWO), **options) == []


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """The clock of this host that never goes back."""
    found = SimpleNamespace(now=0.0, monotonic=lambda: found.now)
    monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.jobs.close()


def test_a_job_from_its_submission_to_its_end(place):
    job = place.submit(program=("py",), run_words=("run", "--mode", "train"), needs=replace(NEEDS, seconds=60.0))
    place.turn()
    job = place.job(job)
    assert (job.phase, job.attempt, job.cpus, job.expected_end) == ("RUNNING", 1, (0,), 1060.0)
    params = str(place.jobs.root.job(job.name).params_file)
    command = ["py", "run", "--mode", "train", "--params", params, "--lanes", "1"]
    assert place.keepers.told[job.name] == {"command": command, "cpus": (0,), "user": None}
    place.turn(3)
    assert place.keepers.started == [(job.name, EXECUTE, 1)]
    job = place.end(job)
    assert (job.phase, job.exit_code, job.peak_bytes, job.expected_end) == ("SUCCEEDED", 0, 9, None)
    assert place.kinds(job) == ["submitted", "started", "succeeded"]
    assert place.lines == [f"{job.name}: runs on core 0, attempt 1", f"{job.name}: execute, attempt 1: ended well"]
    place.check()


def test_a_job_that_runs_is_expected_to_end_at_its_limit_at_the_latest(place):
    for seconds, limit_s, lasts in ((None, 60.0, 60.0), (90.0, 60.0, 60.0), (30.0, 60.0, 30.0), (None, None, None)):
        job = place.submit(needs=replace(NEEDS, cores=2, seconds=seconds, limit_s=limit_s))
        behind = place.submit()
        place.turn(2)
        end = None if lasts is None else place.now + lasts
        assert (place.job(job).phase, place.job(job).expected_end) == ("RUNNING", end)
        assert place.job(behind).expected_start == end
        place.end(job)
        place.end(behind)


def test_it_plans_again_only_where_something_changed_or_time_has_passed(place, clock, monkeypatch):
    plans = list[float]()
    plan = module.plan
    monkeypatch.setattr(module, "plan", lambda *words: plans.append(clock.now) or plan(*words))

    def planned() -> int:
        plans.clear()
        place.turn(20)
        return len(plans)

    place.submit(needs=replace(NEEDS, cores=2, limit_s=60.0))
    place.submit()
    assert 1 <= planned() <= 3, "after what it wrote itself it looks once more"
    assert planned() == 0
    place.submit()
    assert 1 <= planned() <= 2
    clock.now = module.PLAN_S
    assert (planned(), plans) == (1, [module.PLAN_S])


def test_nothing_starts_before_the_appliance_has_something_to_give(place):
    job = place.submit()
    place.queue.put(CAPACITY, None)
    place.turn()
    assert place.phases(job) == ["QUEUED"]
    place.queue.put(CAPACITY, {"cpus": "all"})
    assert refusal(place.queue.capacity) == (
        f"{place.queue.path}: must say what the appliance has to give, got {{'cpus': 'all'}}\n"
        "hint: `cstool appliance start` says it anew"
    )


def test_the_most_urgent_start_first_and_drained_it_starts_nothing(place):
    late, other, first = place.submit(priority="p3"), place.submit(), place.submit(priority="p1")
    place.turn()
    assert place.phases(late, other, first) == ["QUEUED", "RUNNING", "RUNNING"]
    assert place.job(late).reason != ""
    place.keepers.end_all()
    place.turn(2)
    assert place.phases(late, other, first) == ["RUNNING", "SUCCEEDED", "SUCCEEDED"]
    assert place.job(late).reason == ""
    place.check(all_end=False)
    place.queue.put(DRAINED_SETTING, True)
    second, third = place.submit(), place.submit(**COMPILES)
    place.turn()
    place.end(late, turns=2)
    assert place.phases(late, second, third) == ["SUCCEEDED", "QUEUED", "QUEUED"]
    place.queue.put(DRAINED_SETTING, False)
    place.turn()
    assert place.phases(second, third) == ["RUNNING", "COMPILING"]


def test_a_compile_comes_first_and_identical_ones_happen_once(place, tmp_path):
    jobs = [place.submit(**COMPILES) for _ in range(3)]
    elsewhere = place.submit(**COMPILES, compile_dir=tmp_path / "elsewhere")
    place.turn()
    assert place.phases(*jobs, elsewhere) == ["COMPILING", "QUEUED", "QUEUED", "QUEUED"]
    assert [place.job(job).reason for job in (*jobs[1:], elsewhere)] == [
        *[f"waits for {jobs[0].name}, which compiles the same model"] * 2,
        "waits to be compiled, 1 compile at a time",
    ]
    params = str(place.jobs.root.job(jobs[0].name).params_file)
    assert place.keepers.told[jobs[0].name]["command"][-3:] == ["compile", "--params", params]
    place.end(jobs[0])
    assert place.phases(*jobs, elsewhere) == ["RUNNING", "RUNNING", "QUEUED", "COMPILING"]
    assert place.kinds(jobs[1]) == ["submitted", "compile_shared", "started"]
    place.supervisor = place.new()  # it has it from the events
    late = place.submit(**COMPILES)
    place.turn()
    assert place.kinds(late) == ["submitted", "compile_shared"]
    for _ in range(5):
        place.keepers.end_all()
        place.turn()
    assert {*place.phases(*jobs, late, elsewhere)} == {"SUCCEEDED"}
    assert [key for key in place.keepers.started if key[1] == COMPILE] == [
        (jobs[0].name, COMPILE, 1),
        (elsewhere.name, COMPILE, 1),
    ]
    place.check()


def test_where_a_compile_fails_each_job_hears_it_for_itself(place):
    jobs = [place.submit(**COMPILES) for _ in range(2)]
    place.turn()
    said = "error: model: must fit the wafer, it does not\nhint: a smaller one\n"
    place.jobs.root.job(jobs[0].name).log("err").write_text(said)
    place.end(jobs[0], 2)
    assert place.phases(*jobs) == ["FAILED", "COMPILING"]
    assert place.job(jobs[0]).reason == "model: must fit the wafer, it does not"
    assert (place.job(jobs[0]).stage, place.job(jobs[0]).exit_code) == (COMPILE, 2)
    place.check(all_end=False)


def test_what_is_asked_of_a_running_job_is_passed_on_once(place):
    job = place.submit()
    place.turn()
    place.queue.ask(job.name, CANCEL)
    place.turn(3)
    assert place.keepers.asked == [(job.name, EXECUTE, 1, CANCEL)]
    job = place.end(job, 130)
    assert (job.phase, job.reason) == ("CANCELLED", "cancelled; it stopped, and is saved")
    place.check()


def test_what_does_not_end_at_once_is_killed_its_keeper_last(place, clock):
    job = place.submit()
    place.turn()
    place.queue.ask(job.name, CANCEL)
    place.turn()
    clock.now += 100.0
    place.turn()
    assert place.keepers.killed == [], "it may take its time to save"
    place.queue.ask(job.name, CANCEL_NOW)
    place.turn(2)
    for part, killed in ((0.5, []), (0.5, [True])):
        clock.now += module.KILL_S[0] * part
        place.turn(3)
        assert place.keepers.killed == [(job.name, EXECUTE, 1, spares) for spares in killed]
    assert place.lines[-1] == f"{job.name}: did not end at once, killed: 7, 8"
    clock.now += module.KILL_S[1]
    place.turn()
    assert place.keepers.killed[1:] == [(job.name, EXECUTE, 1, False)]
    place.keepers.kept[job.name, EXECUTE, 1] = AttemptState(DEAD, None, HERE)
    place.turn()
    assert (place.job(job).phase, place.job(job).reason) == ("CANCELLED", "cancelled; its keeper died")


def test_what_is_asked_while_a_job_ends_counts(place):
    job = place.submit()
    place.turn()

    def cancelled_by_somebody() -> None:
        place.keepers.meanwhile = lambda: None
        place.queue.ask(job.name, CANCEL)
        place.keepers.end(job.name, EXECUTE, 1, code=130)

    place.keepers.meanwhile = cancelled_by_somebody
    place.turn()
    assert place.phases(job) == ["RUNNING"]
    place.turn()
    assert place.phases(job) == ["CANCELLED"]
    place.check()


def test_a_job_is_preempted_and_goes_on_and_is_preempted_again(place):
    low = place.submit(priority="p3", needs=replace(NEEDS, cores=2))
    place.turn()
    for attempt in (1, 2):
        high = place.submit(priority="p1", preempts=True)
        place.turn(3)
        assert place.keepers.asked[-1] == (low.name, EXECUTE, attempt, PREEMPT)
        assert len(place.keepers.asked) == attempt
        place.end(low, 130)
        assert place.phases(low, high) == ["QUEUED", "RUNNING"]
        assert place.job(low).asked == ""
        place.end(high)
        assert place.phases(low, high) == ["RUNNING", "SUCCEEDED"]
    place.end(low)
    assert place.kinds(low) == ["submitted", *["started", "stop_asked", "preempted"] * 2, "started", "succeeded"]
    assert (place.job(low).attempt, place.job(low).restarts) == (3, 0)
    place.check()


def test_after_a_reboot_what_ran_starts_again_and_nobody_is_to_blame(place):
    job = place.submit()
    place.turn()
    place.keepers.kept[job.name, EXECUTE, 1] = AttemptState(DEAD, None, HERE)
    place.supervisor = place.new("boot-2")
    place.turn()
    assert (place.job(job).phase, place.job(job).attempt, place.job(job).restarts) == ("RUNNING", 2, 0)
    assert place.kinds(job) == ["submitted", "started", "restarts", "started"]


@pytest.mark.parametrize("changes", [COMPILES, {"max_restarts": 1}], ids=["compiles", "runs"])
def test_what_found_the_disk_full_is_tried_again_after_a_while_and_others_go_on(place, clock, changes):
    job, other = place.submit(**changes), place.submit()
    place.turn(2)
    place.keepers.kept[job.name, place.job(job).stage, 1] = AttemptState(
        ENDED, End(120, None, FULL, "", 9, 1.0, 2.0), HERE
    )
    before = place.phases(job, other)
    for now_s in (0.0, 9.9):
        clock.now = now_s
        place.turn(2)
        assert place.phases(job, other) == ["QUEUED", "RUNNING"]
    assert "the disk was full" in place.job(job).reason
    clock.now = 13.0
    place.turn(2)
    assert (place.phases(job, other), place.job(job).attempt) == (before, 2)
    assert place.job(job).restarts == ("max_restarts" in changes)
    place.check(all_end=False)


def test_an_edited_order_or_a_folder_that_is_gone_fails_its_job_alone(place):
    edited, good, gone, other = place.submit(), place.submit(), place.submit(), place.submit(**COMPILES)
    file = place.jobs.root.job(edited.name).job_file
    file.write_text(file.read_text().replace("gpt2", "gpt3"))
    place.jobs.root.job(gone.name).remove()
    place.turn(2)
    place.end(good)
    assert place.phases(edited, good, gone, other) == ["FAILED", "SUCCEEDED", "FAILED", "COMPILING"]
    assert place.job(edited).reason.startswith(f"{file}: ")
    place.check(all_end=False)


NO_ROOM = "No space left on device"


def test_what_cannot_begin_is_tried_again_later_and_can_be_cancelled(place, clock):
    job, other = place.submit(), place.submit()
    place.keepers.cannot = NO_ROOM
    place.turn(3)
    assert place.phases(job, other) == ["RUNNING", "RUNNING"]
    tried = [f"{each.name}: cannot begin, tried again in 0.5 s: {NO_ROOM}" for each in (job, other)]
    assert [line for line in place.lines if "cannot" in line] == tried
    clock.now = 0.6
    place.turn(3)
    assert place.lines[-1] == f"{other.name}: cannot begin, tried again in 1 s: {NO_ROOM}"
    place.queue.ask(other.name, CANCEL)
    place.turn()
    assert (place.job(other).phase, place.job(other).reason) == ("CANCELLED", "cancelled before it began")
    clock.now, place.keepers.cannot = 2.0, None
    place.turn(2)
    assert place.keepers.started == [(job.name, EXECUTE, 1)]


def test_what_can_never_begin_fails_after_some_tries_and_makes_room(place, clock):
    job, behind = (place.submit(needs=replace(NEEDS, cores=2)) for _ in range(2))
    place.keepers.cannot = "Permission denied"
    for tries in range(1, module.MOST_TRIES):
        place.turn(2)
        assert (place.keepers.calls, place.phases(job, behind)) == (tries, ["RUNNING", "QUEUED"])
        clock.now += 60.0
    place.turn(2)
    assert place.phases(job, behind) == ["FAILED", "RUNNING"]
    assert place.keepers.calls == module.MOST_TRIES + 1
    assert place.job(job).reason == "cannot begin, tried 6 times: Permission denied"
    place.turn()
    place.keepers.cannot = None
    clock.now += 60.0
    place.turn()
    assert place.keepers.started == [(behind.name, EXECUTE, 1)]
    place.check(all_end=False)


def test_a_full_disk_passes_and_is_no_reason_to_fail_however_long_it_lasts(place, clock):
    job = place.submit()
    place.keepers.cannot = NO_ROOM
    for _ in range(3 * module.MOST_TRIES):
        place.turn(2)
        clock.now += 60.0
    assert place.keepers.calls == 3 * module.MOST_TRIES
    place.keepers.cannot = None
    place.turn(2)
    assert place.keepers.started == [(job.name, EXECUTE, 1)]


def test_a_job_that_may_have_begun_is_not_cancelled_before_its_keeper_says_so(place):
    job = place.submit()
    place.turn()
    del place.keepers.kept[job.name, EXECUTE, 1]  # its keeper has not come so far
    place.queue.ask(job.name, CANCEL)
    place.turn()
    assert place.phases(job) == ["RUNNING"]
    assert (place.keepers.asked, place.keepers.calls) == ([], 1)
    place.keepers.kept[job.name, EXECUTE, 1] = AttemptState(ALIVE, None, HERE)
    place.turn()
    assert place.keepers.asked == [(job.name, EXECUTE, 1, CANCEL)]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_job_runs_as_the_owner_of_its_folder_whatever_the_queue_says(place):
    job, nobodys = place.submit(), place.submit()
    for each, user in ((job, 65534), (nobodys, 54321)):
        for path in (place.jobs.root.job(each.name).path, *place.jobs.root.job(each.name).path.iterdir()):
            os.chown(path, user, 65534)
    place.turn(2)
    assert place.keepers.told[job.name]["user"][:2] == (65534, 65534)
    assert place.phases(job, nobodys) == ["RUNNING", "FAILED"]
    folder = place.jobs.root.job(nobodys.name).path
    assert place.job(nobodys).reason == f"{folder}: must belong to a user of this host, it is of uid 54321"


@pytest.mark.parametrize("ending", ["ended well", "cancelled while it waited"])
def test_a_job_that_has_ended_is_not_run_again_though_somebody_sets_its_phase_back(place, ending):
    job = place.submit()
    if ending == "ended well":
        place.turn()
        place.end(job)
    else:
        place.jobs.cancel(job.name)
    began = [*place.keepers.started]
    place.queue.change(job.name, PHASES, phase="QUEUED", attempt=3, ended_at=None)
    place.turn(2)
    text = "must not start again, it has ended before, as its folder says"
    assert (place.job(job).phase, place.job(job).reason, place.keepers.started) == ("FAILED", text, began)


def test_a_clock_that_goes_back_delays_nothing_and_jobs_of_other_back_ends_are_left_alone(place):
    first = place.submit(needs=replace(NEEDS, seconds=5.0))
    place.turn()
    place.now = 10.0
    second = place.submit(needs=replace(NEEDS, seconds=5.0))
    place.turn()
    place.keepers.end_all()
    place.turn()
    assert place.phases(first, second) == ["SUCCEEDED", "SUCCEEDED"]
    place.check()
    theirs = place.queue.add(f"wsjob-{'0' * 22}", small_order(place.folder, ""), "", "slurm", user="x", user_id=0)
    third = place.submit()
    place.turn()
    assert place.phases(third, theirs) == ["RUNNING", "QUEUED"]


def test_a_queue_that_cannot_be_written_stops_a_round_and_loses_nothing_and_may_be_opened_again(place):
    jobs = [place.submit() for _ in range(2)]
    full = Cut(place.queue, "change", 1, CstoolError("the disk is full"))
    supervisor = place.new(queue=full)
    with pytest.raises(CstoolError, match="the disk is full"):
        supervisor.turn()
    supervisor.turn()
    assert place.phases(*jobs) == ["RUNNING", "RUNNING"]
    assert len(place.keepers.started) == 2
    place.check(all_end=False)
    place.supervisor = supervisor
    with Queue(place.jobs.root) as queue:
        supervisor.use(queue)
        assert place.end(jobs[0]).phase == "SUCCEEDED"


class Cut:
    """Something that is cut off right before a call of it.

    Args:
        methods: which calls count, as words of a regular expression
        at: number of the call, from 0
    """

    def __init__(self, inner: Any, methods: str, at: int, error: BaseException) -> None:
        self._inner, self._methods, self._left, self._error = inner, re.compile(methods), at, error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or not self._methods.fullmatch(name):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == -1:
                raise self._error
            return found(*arguments, **named)

        return call


@pytest.mark.parametrize(("what", "least"), [("queue", 10), ("keepers", 6)])
def test_killed_before_any_call_every_job_runs_once(tmp_path, what, least):
    """A supervisor for each call that another one is killed before, until none is left to kill.

    After a call is before the next one: nothing lasts but what one of them did.
    """
    kills = 0
    while killed_at(tmp_path / str(kills), what, kills):
        kills += 1
    assert kills > least


def killed_at(folder: Path, what: str, call: int) -> bool:
    """Run jobs with a supervisor that is killed before a call, then others; return whether it was."""
    place = Place(folder)
    jobs = [place.submit(**COMPILES, priority="p3"), place.submit(**COMPILES), place.submit(max_restarts=1)]
    inner = place.queue if what == "queue" else place.keepers
    methods = "change|ask|set_expected|put|note" if what == "queue" else "start|ask|look"
    cut = Cut(inner, methods, call, Killed())
    was_killed, crashed, asked = False, False, False
    place.supervisor = place.new(**cast("dict[str, Any]", {what: cut}))
    for _ in range(30):
        try:
            place.turn()
        except Killed:
            was_killed = True
            place.supervisor = place.new()
            continue
        active = [place.job(job) for job in jobs if not place.job(job).has_ended]
        if not active:
            break
        if not asked and place.phases(jobs[1]) == ["RUNNING"] and place.phases(jobs[0]) == ["QUEUED"]:
            place.queue.ask(jobs[1].name, CANCEL)
            asked = True
            continue
        for job in active:
            if place.keepers.look(place.jobs.root.job(job.name), job.stage, job.attempt).state != ALIVE:
                continue
            code, signal = (130 if job.asked else 0), None
            if job.name == jobs[2].name and not crashed:
                code, signal, crashed = None, 9, True
            place.keepers.end(job.name, job.stage, job.attempt, code=code, signal=signal)
    assert place.phases(jobs[0], jobs[2]) == ["SUCCEEDED", "SUCCEEDED"]
    assert place.phases(jobs[1]) == ["CANCELLED" if asked else "SUCCEEDED"]
    place.check()
    starts = sorted(place.keepers.started)
    assert len(starts) == len({*starts})
    compiles = [key for key in starts if key[1] == COMPILE]
    assert len(compiles) == 1
    assert [key for key in starts if key[0] == jobs[2].name] == [(jobs[2].name, EXECUTE, n) for n in (1, 2)]
    for job in jobs[:2]:
        assert [key[1:] for key in starts if key[0] == job.name and key[1] == EXECUTE] == [(EXECUTE, 1)]
    place.jobs.close()
    return was_killed


def test_what_is_beyond_the_limits_goes_and_folders_that_no_job_has(place):
    place.queue.put(KEEPS, {"jobs": 1, "events": 1000})
    jobs = [place.submit() for _ in range(4)]
    for job in jobs[:3]:
        place.queue.ask(job.name, CANCEL)
    root = place.jobs.root
    orphan, fresh, strange = root.jobs / f"wsjob-{'0' * 22}", root.jobs / f"wsjob-{'1' * 22}", root.jobs / "notes"
    for folder in (orphan, fresh, strange):
        folder.mkdir()
        (folder / "file").touch()
    for folder in (orphan, strange, root.job(jobs[3].name).path):
        os.utime(folder, (0, 0))
    _prune(root, place.queue)
    left = {jobs[2].name, jobs[3].name, fresh.name, strange.name}
    assert {path.name for path in root.jobs.iterdir()} == left
    assert [job.name for job in place.queue.jobs()] == [jobs[2].name, jobs[3].name]


def test_there_is_one_supervisor(place, monkeypatch):
    monkeypatch.setattr("cstool.appliance.queue.holders.LOOKED_AT_S", 0.0)
    held = lock_file(place.jobs.root.supervisor_lock)
    found = refusal(lambda: supervise(place.jobs.root))
    os.close(held)
    who = rf"process {os.getpid()} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
    said = rf"{re.escape(str(place.jobs.root.folder))}: an appliance has one supervisor, one runs already: {who}\n"
    said += "hint: `cstool appliance status` says how it is, `cstool appliance stop` ends it"
    assert re.fullmatch(said, found)


# How it is told to end.

SIGNALS_IN_HANDLERS = """
import signal, sys
from cstool.appliance.queue.supervising import Ending

ending, left = Ending(), 30

def trace(frame, event, argument):
    global left
    if left:
        left -= 1
        signal.raise_signal(signal.SIGTERM)
    return trace

signal.signal(signal.SIGTERM, ending.tell)
sys.settrace(trace)
signal.raise_signal(signal.SIGTERM)
ending.wait(0.01)
sys.settrace(None)
print(ending.is_told, left < 30)
"""


def test_signals_that_come_while_others_are_taken():
    """`cstool appliance stop` tells the supervisor and its guard, which tells it too: two signals at once."""
    found = subprocess.run([sys.executable, "-c", SIGNALS_IN_HANDLERS], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.stderr) == ("True True\n", "")


@pytest.fixture
def ending():
    made = Ending()
    before = signal.signal(signal.SIGTERM, made.tell)
    yield made
    signal.signal(signal.SIGTERM, before)


def test_a_signal_ends_a_wait_and_those_after_it(ending):
    ending.wait(0.001)
    assert not ending.is_told
    threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGTERM)).start()
    began = time.monotonic()
    for _ in range(2):
        ending.wait(60)
        assert ending.is_told
    assert time.monotonic() - began < 60
