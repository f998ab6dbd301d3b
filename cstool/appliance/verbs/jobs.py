"""Jobs of an appliance: submitted, listed, followed, waited for, cancelled, labelled."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from cstool.appliance.queue.backend import LOCAL
from cstool.appliance.queue.client import open_jobs
from cstool.appliance.queue.following import exit_code_of, follow_job
from cstool.appliance.queue.job import EXECUTE, PHASES, stays
from cstool.appliance.queue.names import check_label_changes, check_labels
from cstool.appliance.verbs.job_order import make_order
from cstool.foundation.errors import CstoolError
from cstool.foundation.slurm.following import LOG_S, LogFile
from cstool.foundation.words import check_choice
from cstool.training.machine.ranks.signals import collected_signals

if TYPE_CHECKING:
    from cstool.appliance.queue.client import Jobs
    from cstool.appliance.queue.following import OnInterrupt
    from cstool.appliance.queue.job import Event, Job, Stay
    from cstool.appliance.verbs.job_order import JobRequest
    from cstool.model.params import Params

Stream = Literal["out", "err"]
MOST_ENDED = 100
"""default number of listed jobs that have ended"""
START_HINT = "`cstool appliance start` starts one"


class ListedJob(NamedTuple):
    """A job, and its position among waiting jobs, from 1; None where it does not wait."""

    job: Job
    position: int | None


class JobList(NamedTuple):
    """Jobs, the newest last, and the number of older ended jobs that are left out."""

    jobs: Sequence[ListedJob]
    more: int


class ShownJob(NamedTuple):
    """A job with all its details.

    Args:
        position: among waiting jobs, from 1; None where it does not wait
        stays: in its phases, the oldest first
        logs: where each of its logs is, by stream
    """

    job: Job
    position: int | None
    stays: Sequence[Stay]
    logs: Mapping[str, str]


class WaitTimeout(CstoolError):
    """Jobs have not ended in time."""

    exit_code = 1


def submit_job(
    root: Path | None,
    backend: str | None,
    trainers: Sequence[Params],
    request: JobRequest,
    say: Callable[[str], object],
) -> ListedJob:
    """Submit a job; the appliance is made where there is none.

    Args:
        root: of the appliance; None for the usual one
        backend: None for the one of the appliance
        trainers: of one params file
        request: the rest of the request
        say: takes a line where no process is there that would start the job

    Raises:
        CstoolError: it is refused, or cannot be written
    """
    with open_jobs(root, backend, makes=True) as jobs:
        job = _submit(jobs, trainers, request)
        _note_absence(jobs, job, say)
        return ListedJob(job, jobs.position(job.name))


def submit_and_follow(
    root: Path | None,
    backend: str | None,
    trainers: Sequence[Params],
    request: JobRequest,
    on_interrupt: OnInterrupt,
    say: Callable[[str], object],
) -> int:
    """Submit a job and follow it to its end: its log goes to stdout, its errors to stderr.

    Args:
        root, backend, trainers, request: as of `submit_job`
        on_interrupt: effect of Ctrl-C: "cancel" has the job stop, "detach" leaves it
        say: takes lines about the job itself

    Returns:
        The exit code of the job

    Raises:
        Interrupted: the job was cancelled, or is not to be followed
        RankLostError: it was ended, or could not begin
        CstoolError: another error that the user can act on
    """
    with collected_signals() as signals, open_jobs(root, backend, makes=True) as jobs:
        job = _submit(jobs, trainers, request)
        say(f"job {job.name}: submitted; its log is {jobs.folder(job.name).log('out')}")
        _note_absence(jobs, job, say)
        show = {"out": shower(sys.stdout), "err": shower(sys.stderr)}
        return follow_job(jobs, job.name, signals, show, say, on_interrupt=on_interrupt)


def list_jobs(
    root: Path | None,
    *,
    active: bool,
    phases: Collection[str] | None = None,
    user: str | None = None,
    labels: Sequence[str] = (),
    limit: str | None = None,
) -> JobList:
    """List jobs, the newest last.

    Args:
        active: only jobs that have not ended
        phases: only jobs in one of these
        user: only this user's
        labels: only jobs that have all these, each as KEY=VALUE
        limit: largest number of jobs, the newest ones, "0" or "all" for all; None for all active jobs and the newest
            `MOST_ENDED` ended ones

    Raises:
        CstoolError: there is no such appliance, or a phase, a label or the limit is none
    """
    for phase in phases or ():
        check_choice("--phase", phase, PHASES)
    wanted, most = check_labels(labels) or None, _parse_limit(limit)
    with open_jobs(root) as jobs:
        more = 0
        if limit is None and not active:
            found, more = jobs.newest(phases=phases, user=user, labels=wanted, most_ended=MOST_ENDED)
        else:
            found = jobs.jobs(active=active, phases=phases, user=user, labels=wanted, limit=most)
        positions = jobs.queue.positions()
        return JobList([ListedJob(job, None if job.has_ended else positions.get(job.name)) for job in found], more)


def show_job(root: Path | None, name: str) -> ShownJob:
    """Look at a job.

    Args:
        name: or an unambiguous beginning of it

    Raises:
        CstoolError: there is no such job
    """
    with open_jobs(root) as jobs:
        job = jobs.job(name)
        folder = jobs.folder(job.name)
        logs = {"out": str(folder.log("out")), "err": str(folder.log("err"))}
        # Not `exists()`: the folder is its owner's alone, and in a shared appliance others look at the job too.
        if job.stage == EXECUTE and os.access(folder.report, os.R_OK):
            logs["compile"] = str(folder.report)
        return ShownJob(job, jobs.position(job.name), stays(jobs.events(job.name)), logs)


def job_events(root: Path | None, name: str | None, limit: int | None = None) -> list[Event]:
    """Return the events of a job, or of all and of the appliance; the oldest first.

    Args:
        name: None for all
        limit: largest number of events; the newest ones

    Raises:
        CstoolError: there is no such job
    """
    with open_jobs(root) as jobs:
        return jobs.events(None if name is None else jobs.job(name).name, limit=limit)


def job_logs(
    root: Path | None,
    name: str,
    show: Mapping[Stream, Callable[[str], object]],
    *,
    follows: bool = False,
) -> Job:
    """Show the logs of a job, including the parts that were moved aside when they grew long.

    Args:
        show: a function for each wanted stream, which takes its text
        follows: go on with new text, until the job has ended

    Returns:
        The job

    Raises:
        CstoolError: there is no such job, or its logs may not be read
    """
    with open_jobs(root) as jobs:
        job = jobs.job(name)
        folder = jobs.folder(job.name)
        files = []
        for stream, shows in show.items():
            path = folder.log(stream)
            _check_readable(job, path)
            LogFile(path.with_name(f"{path.name}.1"), shows).show_more()
            files.append(LogFile(path, shows))
        while True:
            job = jobs.job(job.name)
            for file in files:
                file.show_more()
            if job.has_ended or not follows:
                return job
            time.sleep(LOG_S)


def cancel_jobs(root: Path | None, names: Sequence[str], *, at_once: bool = False) -> Iterator[Job]:
    """Cancel jobs one after the other, and yield each as it is then.

    Args:
        names: or unambiguous beginnings of them; of all of them it is checked first that there are such jobs
        at_once: end a running job, in place of having it finish its step and save

    Raises:
        CstoolError: there is no such job, it has ended, or it belongs to another user
    """
    with open_jobs(root) as jobs:
        whole = [jobs.job(name).name for name in names]
        for name in dict.fromkeys(whole):
            yield jobs.cancel(name, at_once=at_once)


def label_job(root: Path | None, name: str, changes: Sequence[str]) -> Job:
    """Change labels of a job, and return it as it is then.

    Args:
        changes: KEY=VALUE sets a label, KEY- removes it

    Raises:
        CstoolError: there is no such job, it belongs to another user, or a label is none
    """
    wanted = check_label_changes(changes)
    with open_jobs(root) as jobs:
        return jobs.label(name, wanted)


def wait_for_jobs(root: Path | None, names: Sequence[str], timeout_s: float | None = None) -> tuple[list[Job], int]:
    """Wait until jobs have ended.

    Args:
        names: or unambiguous beginnings of them
        timeout_s: longest wait [s]

    Returns:
        The jobs, in this order, and the exit code of the first of them that did not succeed; 0 where all did

    Raises:
        WaitTimeout: one has not ended in time
        CstoolError: there is no such job
    """
    with open_jobs(root) as jobs:
        whole = [jobs.job(name).name for name in names]
        found = jobs.wait(whole, timeout_s)
    for job in found:
        if not job.has_ended:
            assert timeout_s is not None
            raise WaitTimeout(f"job {job.name}: must have ended within {timeout_s:g} s, it is {job.phase}")
    return found, next((code for job in found if (code := exit_code_of(job))), 0)


def job_names(root: Path | None, incomplete: str) -> list[str]:
    """Names of jobs that begin so, the newest first; none where there is no appliance."""
    try:
        with open_jobs(root) as jobs:
            # Not by the back end: this is for a shell that waits.
            return [job.name for job in reversed(jobs.queue.jobs(limit=1000)) if job.name.startswith(incomplete)]
    except CstoolError:
        return []


def yaml_text(document: Mapping[str, Any]) -> str:
    """A document as YAML, its keys in their order."""
    import yaml

    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True)


def shower(stream: TextIO) -> Callable[[str], object]:
    """A function that shows text on a stream at once."""

    def show(text: str) -> None:
        stream.write(text)
        stream.flush()

    return show


def _parse_limit(limit: str | None) -> int | None:
    """Largest number of listed jobs; None for all.

    Raises:
        CstoolError: it is no number
    """
    if limit is None or limit.lower() == "all":
        return None
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10):
        raise CstoolError(f"--limit: must be a number of jobs, or all, got {limit!r}")
    return int(limit) or None


def _submit(jobs: Jobs, trainers: Sequence[Params], request: JobRequest) -> Job:
    # Jobs of one user have one folder of artifacts: what is the same is compiled once.
    shared = None if jobs.root.shared_with is not None else jobs.root.compiled
    order = make_order(
        trainers,
        replace(request, compile_dir=shared),
        capacity=jobs.queue.capacity(),
        history=jobs.queue.history_s,
    )
    return jobs.submit(order)


def _note_absence(jobs: Jobs, job: Job, say: Callable[[str], object]) -> None:
    """Say so where a job waits for a supervisor that does not run."""
    from cstool.appliance.queue.appliance import appliance_status

    if job.backend != LOCAL:
        return
    status = appliance_status(jobs.root)
    if status.supervisor is None:
        say(f"job {job.name}: waits until a supervisor runs; {START_HINT}")
    elif status.drained:
        say(f"job {job.name}: waits until the appliance starts jobs again; `cstool appliance drain --off` has it do so")


def _check_readable(job: Job, path: Path) -> None:
    """Check that a log may be read, if there is one.

    Raises:
        CstoolError: it may not
    """
    if not os.access(path.parent, os.X_OK) or (path.exists() and not os.access(path, os.R_OK)):
        raise CstoolError(f"job {job.name}: its logs are for {job.user} to read")
