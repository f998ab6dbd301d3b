"""Following a job: what is said, what signals do, and the exit code, over a queue that the test itself changes."""

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cstool.appliance.queue.backend import LocalBackend
from cstool.appliance.queue.client import Jobs
from cstool.appliance.queue.following import exit_code_of, follow_job, waiting_text
from cstool.appliance.queue.job import CANCELLED, CRASHED, FAILED, QUEUED, RESTARTS, SUCCEEDED
from cstool.appliance.verbs.jobs import job_names
from cstool.foundation.errors import Interrupted, RankLostError
from tests.shown_jobs import Shown, name_of

NAME = name_of(0)
WAY_ON = "the same command goes on from the last commit or checkpoint"


@pytest.fixture
def follow(tmp_path, monkeypatch) -> Any:
    """Follow a job, where each look comes after the next of some steps."""
    with Shown(tmp_path / "appliance") as shown:
        shown.submit(0)
        jobs = Jobs(shown.root, shown.queue, LocalBackend(shown.root, shown.queue))
        said: list[str] = []
        texts: dict[str, str] = {"out": "", "err": ""}
        signals: list[int] = []

        def run(*steps: Callable[[], Any], on_interrupt: str = "cancel") -> int:
            left = iter(steps)
            monkeypatch.setattr("cstool.appliance.queue.following.time.sleep", lambda _: next(left)())
            show = {name: lambda text, name=name: texts.update({name: texts[name] + text}) for name in texts}
            say = lambda line: said.append(line.removeprefix(f"job {NAME}: "))  # noqa: E731
            return follow_job(jobs, NAME, signals, show, say, on_interrupt=on_interrupt)

        run.shown, run.said, run.texts, run.signals = shown, said, texts, signals
        yield run


def test_what_happens_is_said_and_what_is_written_is_shown(follow):
    shown = follow.shown
    code = follow(
        lambda: shown.queue.set_expected({NAME: (shown.now, None)}, {NAME: "waits for 1 core"}),
        lambda: shown.compile(NAME, 1),
        lambda: (shown.start(NAME, [0, 1]), shown.log(NAME, "one\n")),
        lambda: (shown.log(NAME, "two\n"), shown.log(NAME, "oh\n", "err")),
        lambda: shown.stop(NAME),
        lambda: shown.start(NAME, [1]),
        lambda: shown.end(NAME, SUCCEEDED, exit_code=0),
    )
    assert code == 0
    assert follow.texts == {"out": "one\ntwo\n", "err": "oh\n"}
    assert follow.said[:2] == ["waits at position 1", "waits at position 1: waits for 1 core; expected to start soon"]
    assert [line for line in follow.said if not line.startswith("waits")] == [
        "compiles",
        "runs on cores 0 and 1",
        "makes room for a p1 job",
        "runs on core 1",
        "succeeded after 0s",
    ]


def test_how_a_run_ended(follow):
    shown = follow.shown
    shown.start(NAME, [0])
    with pytest.raises(RankLostError) as caught:
        follow(
            lambda: shown.change(NAME, (CRASHED, "was killed", {}), phase=QUEUED),
            lambda: shown.change(NAME, (RESTARTS, "restart 1 of 1", {})),
            lambda: shown.end(NAME, FAILED, "it took more memory than it may", exit_code=None),
        )
    assert str(caught.value) == f"job {NAME}: must end by itself, it failed: it took more memory than it may"
    assert follow.said[1:] == ["was killed", "waits at position 1", "restart 1 of 1", "waits at position 1"]
    job = shown.queue.job(NAME)
    assert waiting_text(replace(job, reason=""), None, 0) == "waits"
    waits = replace(job, reason="behind others", expected_start=723.0)
    assert waiting_text(waits, 2, 0) == "waits at position 2: behind others; expected to start in 12m3s"
    ends = (
        (SUCCEEDED, 0, 0),
        (CANCELLED, 130, 130),
        (FAILED, 1, 1),
        (FAILED, 2, 2),
        (FAILED, 130, 1),
        (FAILED, None, 1),
    )
    for phase, exit_code, code in ends:
        assert exit_code_of(replace(job, phase=phase, exit_code=exit_code)) == code


def test_a_run_that_said_what_is_wrong_ends_with_its_code(follow):
    follow.shown.start(NAME, [0])
    assert follow(lambda: follow.shown.end(NAME, FAILED, "x", exit_code=2)) == 2


def test_a_log_that_was_cut_short_goes_on_after_what_was_moved(follow):
    shown = follow.shown
    shown.start(NAME, [0])

    def cut() -> None:
        path = shown.root.job(NAME).path / "out"
        path.with_name("out.1").write_text("one, two, ")
        path.write_text("3")

    follow(lambda: shown.log(NAME, "one, "), cut, lambda: shown.end(NAME, SUCCEEDED))
    assert follow.texts["out"] == "one, two, 3"


def send(follow: Any, number: int) -> Callable[[], None]:
    return lambda: follow.signals.append(number)


def test_ctrl_c_twice_cancels_then_ends_at_once(follow):
    shown = follow.shown
    shown.start(NAME, [0])
    asked = []
    with pytest.raises(Interrupted) as caught:
        follow(
            send(follow, signal.SIGINT),
            lambda: asked.append(shown.queue.job(NAME).asked),
            send(follow, signal.SIGINT),
            lambda: asked.append(shown.queue.job(NAME).asked),
            lambda: shown.end(NAME, CANCELLED, "cancelled"),
        )
    assert asked == ["cancel", "cancel_now"]
    assert str(caught.value) == f"stopped by SIGINT: job {NAME} was cancelled\nhint: {WAY_ON}"
    assert follow.said[1:] == [
        "stops after this step, and saves. Another Ctrl-C ends it at once.",
        "is ended at once. Another Ctrl-C leaves it.",
    ]


LEFT = (
    f"{{}}: job {NAME} is no longer followed\n"
    f"hint: `cstool job logs {NAME} -f` shows its log, `cstool job cancel {NAME}` ends it"
)


@pytest.mark.parametrize(
    ("numbers", "on_interrupt", "asked"),
    [
        ([signal.SIGINT] * 3, "cancel", "cancel_now"),
        ([signal.SIGHUP], "cancel", ""),
        ([signal.SIGINT], "detach", ""),
        ([signal.SIGTERM], "detach", ""),
    ],
)
def test_what_leaves_it(follow, numbers, on_interrupt, asked):
    follow.shown.start(NAME, [0])
    with pytest.raises(Interrupted) as caught:
        follow(*(send(follow, number) for number in numbers), on_interrupt=on_interrupt)
    assert str(caught.value) == LEFT.format(signal.Signals(numbers[-1]).name)
    assert follow.shown.queue.job(NAME).asked == asked


def test_a_job_that_waits_is_cancelled_at_once(follow):
    with pytest.raises(Interrupted) as caught:
        follow(send(follow, signal.SIGTERM), lambda: None)
    assert str(caught.value) == f"stopped by SIGTERM: job {NAME} was cancelled"


def test_a_job_that_somebody_else_cancelled(follow):
    follow.shown.start(NAME, [0])
    with pytest.raises(Interrupted) as caught:
        follow(lambda: follow.shown.queue.ask(NAME, "cancel"), lambda: follow.shown.end(NAME, CANCELLED))
    assert str(caught.value) == f"job {NAME} was cancelled\nhint: {WAY_ON}"


def test_names_for_a_shell(follow):
    root = follow.shown.root.folder
    follow.shown.submit(1)
    assert job_names(root, "") == [name_of(1), NAME]
    assert job_names(root, NAME[:9]) == [NAME]
    assert job_names(root / "none", "") == []
