"""`cstool job`: jobs of an appliance, submitted, looked at, waited for and cancelled, as `csctl job` has them."""

import sys
import time
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from cstool.appliance.commands.job_flags import (
    JobFlags,
    NameArgument,
    NamesArgument,
    RootOption,
    SubmitFlags,
    complete_job,
    job_request,
    say_of_a_job,
)
from cstool.foundation.errors import CstoolError
from cstool.foundation.terminal.command import command, new_group
from cstool.foundation.terminal.options import LOGGING, JsonOption, LogLevel, argument, flag, option
from cstool.foundation.terminal.render import print_json, print_line
from cstool.training.commands.run_flags import RunFlags, load_run

if TYPE_CHECKING:
    from cstool.appliance.queue.job import Job
    from cstool.appliance.verbs.jobs import Stream

job_app = new_group(
    "Submit runs as jobs that wait for their turn, and look after them.",
    "cstool job submit --params gpt_tiny --num_steps 100",
    "cstool job list",
    epilog="A job compiles, then executes. It gets cores, memory and disk of its own; one with --priority p1 starts "
    "before those with p2. `cstool appliance start` starts their supervisor; `cstool run --appliance` submits a "
    "run and follows it. A job name may be cut to a beginning that no other name has.",
)
LimitOption = Annotated[int | None, option("--limit", "N", "Only the newest N.", min=1)]


@command(
    job_app,
    "submit",
    "cstool job submit --params gpt_tiny --num_steps 100",
    "cstool job submit --params gpt_tiny --lanes 1 --priority p1 --job_labels team=a --time 2:00:00",
    short_help="Submit a run as a job, and print its name.",
)
def submit(
    context: typer.Context,
    flags: RunFlags,
    job: JobFlags,
    more: SubmitFlags,
    wait: Annotated[bool, flag("--wait", "Wait until the job has ended, and return its exit code.")] = False,
    as_json: JsonOption = False,
    logging: Annotated[LogLevel | None, LOGGING] = None,
) -> None:
    """Submit a run as a job: it compiles, waits for its turn, and runs. Its name is printed.

    The flags of `cstool run` have the same meaning here; the job keeps a copy of the params file as it is now. Needs
    that are not given are estimated, and a job never gets more than its needs.
    """
    from cstool.appliance.commands.job_report import job_document
    from cstool.appliance.verbs.jobs import submit_job, wait_for_jobs

    request = job_request(flags, job, more)
    trainers, _ = load_run(context, flags, logging, is_job=True)
    submitted = submit_job(job.root, job.backend, trainers, request, say_of_a_job)
    if not as_json:
        print_line(submitted.job.name)
    found, code = [submitted.job], 0
    if wait:
        found, code = wait_for_jobs(job.root, [submitted.job.name])
    if as_json:
        print_json(job_document(found[0], None if wait else submitted.position))
    elif wait:
        _say_end(found[0])
    if code:
        raise typer.Exit(code)


@command(
    job_app,
    "list",
    "cstool job list",
    "cstool job list -a --label team=a --phase FAILED",
    short_help="List jobs, the newest last.",
)
def list_(
    every: Annotated[bool, flag("--all -a", "List ended jobs, too.")] = False,
    phase: Annotated[
        list[str] | None,
        option("--phase", "PHASE", "Only jobs in this phase, such as FAILED; may be given several times."),
    ] = None,
    user: Annotated[str | None, option("--user", "NAME", "Only jobs of this user.")] = None,
    label: Annotated[
        list[str] | None, option("--label", "KEY=VALUE", "Only jobs with this label; may be given several times.")
    ] = None,
    limit: Annotated[
        str | None,
        option("--limit", "N|all", "Only the newest N; if not given, the newest 100 of the ended jobs."),
    ] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """List jobs that have not ended, the newest last, in the vendor's columns.

    AGE counts from submission, DURATION from the first start. Waiting jobs have a position in the queue, and an
    expected start. On a narrow terminal some columns are left out.
    """
    from cstool.appliance.commands.job_report import job_document, print_jobs
    from cstool.appliance.verbs.jobs import list_jobs

    listed = list_jobs(
        root,
        active=not (every or phase),
        phases=[each.upper() for each in phase or ()] or None,
        user=user,
        labels=label or (),
        limit=limit,
    )
    if as_json:
        print_json({"jobs": [job_document(each.job, each.position) for each in listed.jobs], "more": listed.more})
    elif listed.jobs:
        print_jobs(listed.jobs, time.time())
        if listed.more:
            say_of_a_job(f"{listed.more:,} more have ended before; --limit all lists them")
    else:
        say_of_a_job(
            "no such job" if every or phase or user or label else "no job waits or runs; -a lists those that have ended"
        )


@command(
    job_app,
    "get",
    "cstool job get wsjob-4k",
    "cstool job get wsjob-4k -o yaml",
    short_help="Show a job: its needs, state and phases.",
)
def get(
    name: NameArgument,
    output: Annotated[
        Literal["yaml", "json"] | None, flag("--output -o", "Print it as `csctl get job` does, as YAML or JSON.")
    ] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a job: its state, needs and their source, its phases with their times, and where its logs are."""
    from cstool.appliance.commands.job_report import job_document, print_job, vendors_document
    from cstool.appliance.verbs.jobs import show_job, yaml_text

    shown = show_job(root, name)
    if output == "yaml":
        print(yaml_text(vendors_document(shown.job, shown.position)), end="")
    elif output == "json":
        print_json(vendors_document(shown.job, shown.position))
    elif as_json:
        print_json({**job_document(shown.job, shown.position), "logs": shown.logs})
    else:
        print_job(shown, time.time())


@command(
    job_app,
    "events",
    "cstool job events wsjob-4k",
    "cstool job events --all --limit 20",
    short_help="List the events of a job, or of all.",
)
def events(
    name: Annotated[str | None, argument("NAME", "Name of a job.", complete_job)] = None,
    every: Annotated[bool, flag("--all -a", "List the events of all jobs, and of the appliance.")] = False,
    limit: LimitOption = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the events of a job, or of all jobs and the appliance, the oldest first."""
    from cstool.appliance.commands.job_report import event_document, print_events
    from cstool.appliance.verbs.jobs import job_events

    if (name is None) == (not every):
        got = "neither" if name is None else "both"
        raise CstoolError(f"cstool job events: must have the name of a job or --all, got {got}")
    found = job_events(root, name, limit)
    if as_json:
        print_json({"events": [event_document(event) for event in found]})
    else:
        print_events(found, of_all=every)


@command(
    job_app,
    "logs",
    "cstool job logs wsjob-4k",
    "cstool job logs wsjob-4k -f --stream out",
    short_help="Show the output of a job.",
)
def logs(
    name: NameArgument,
    follow: Annotated[bool, flag("--follow -f", "Print new lines, too, until the job has ended.")] = False,
    stream: Annotated[
        Literal["out", "err"] | None,
        flag("--stream", "Print only its stdout, or only its stderr, on stdout; if not given, each on its own stream."),
    ] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the output of a job: its stdout on stdout, its stderr on stderr, as `cstool run` does."""
    from cstool.appliance.verbs.jobs import job_logs, shower

    streams: dict[Stream, TextIO] = {"out": sys.stdout, "err": sys.stderr} if stream is None else {stream: sys.stdout}
    if not as_json:
        job_logs(root, name, {each: shower(file) for each, file in streams.items()}, follows=follow)
        return
    parts: dict[Stream, list[str]] = {each: [] for each in streams}
    job = job_logs(root, name, {each: parts[each].append for each in streams}, follows=follow)
    print_json({"name": job.name, **{each: "".join(pieces) for each, pieces in parts.items()}})


@command(
    job_app,
    "cancel",
    "cstool job cancel wsjob-4k",
    "cstool job cancel wsjob-4k wsjob-7p --now",
    short_help="Cancel jobs.",
)
def cancel(
    names: NamesArgument,
    now: Annotated[bool, flag("--now", "End the run at once, without a checkpoint.")] = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs. A running job finishes its step and saves a checkpoint first."""
    from cstool.appliance.commands.job_report import job_document
    from cstool.appliance.verbs.jobs import cancel_jobs

    found = cancel_jobs(root, names, at_once=now)
    if as_json:
        print_json({"jobs": [job_document(job, None) for job in found]})
        return
    for job in found:
        if not job.has_ended:
            say_of_a_job(f"job {job.name}: {'is ended' if now else 'stops after its step, and saves'}")
        print("Job canceled successfully")


@command(
    job_app,
    "label",
    "cstool job label wsjob-4k team=a run=3",
    "cstool job label wsjob-4k run-",
    short_help="Set labels of a job, or remove them.",
)
def label(
    name: NameArgument,
    changes: Annotated[list[str], argument("KEY=VALUE|KEY-...", "A label to set, or KEY- to remove it.")],
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set labels of a job, or remove them; `cstool job list --label` lists the jobs with a label."""
    from cstool.appliance.commands.job_report import job_document, labels_text
    from cstool.appliance.verbs.jobs import label_job

    job = label_job(root, name, changes)
    if as_json:
        print_json(job_document(job, None))
    else:
        print_line(f"{job.name}: {labels_text(job) or 'no labels'}")


@command(
    job_app,
    "wait",
    "cstool job wait wsjob-4k",
    "cstool job wait wsjob-4k wsjob-7p --timeout 3600",
    short_help="Wait until jobs have ended.",
)
def wait(
    names: NamesArgument,
    timeout: Annotated[float | None, option("--timeout", "SECONDS", "Wait at most this time.", min=0)] = None,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until jobs have ended. The exit code is the one of the first job that did not succeed.

    It is the exit code of the job's run; 1 if the run was ended, or crashed; 130 if the job was cancelled. It is 1,
    too, if a job has not ended in time.
    """
    from cstool.appliance.commands.job_report import job_document
    from cstool.appliance.verbs.jobs import wait_for_jobs

    found, code = wait_for_jobs(root, names, timeout)
    if as_json:
        print_json({"jobs": [job_document(job, None) for job in found], "exit_code": code})
    else:
        for job in found:
            _say_end(job)
    if code:
        raise typer.Exit(code)


def _say_end(job: "Job") -> None:
    print_line(f"{job.name}: {job.phase}{f', {job.reason}' if job.reason else ''}")
