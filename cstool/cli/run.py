"""`cstool run`: train and evaluate a model by a params file."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from typing import Annotated, Any

import typer

from cstool.appliance.commands.job_flags import (
    ApplianceFlags,
    JobFlags,
    check_job,
    check_no_job,
    job_request,
    say_of_a_job,
)
from cstool.cli.same_command import same_command
from cstool.foundation.safe_python import python
from cstool.foundation.terminal.options import LOGGING, LogLevel, flag
from cstool.foundation.terminal.render import print_json
from cstool.foundation.terminal.screen import screen_on
from cstool.inference.commands.infer_flags import InferFlags
from cstool.model.commands.options import parse_lanes
from cstool.model.verbs.asked import check_trace_file
from cstool.training.commands.launch_flags import LaunchFlags, command_of_a_rank, launch_words
from cstool.training.commands.run_flags import RunFlags, load_run


def run(
    context: typer.Context,
    flags: RunFlags,
    launch: LaunchFlags,
    appliance: ApplianceFlags,
    job: JobFlags,
    asked: InferFlags,
    as_json: Annotated[bool, flag("--json", "Print one JSON document on stdout, the log on stderr.")] = False,
    logging: Annotated[LogLevel | None, LOGGING] = None,
) -> None:
    """Train or evaluate the model of a params file, or let it write.

    Without a checkpoint given, a run continues from the latest one in its model_dir.
    Only flags that are typed override the file. A file with several trainers runs them in order.
    With --appliance the run is a job: it waits for its turn, and is followed to its end.
    """
    from cstool.inference.commands.infer import infer
    from cstool.inference.verbs.answer import base_of
    from cstool.training.verbs.ranks import is_to_launch, joined_ranks
    from cstool.training.verbs.run import RunRequest, run_all

    if appliance.appliance:
        raise typer.Exit(_submit(context, flags, launch, appliance, job, asked, as_json, logging))
    check_no_job(appliance, job)
    if is_to_launch(launch.request, flags.transport):
        raise typer.Exit(_launch(context, flags, launch, logging))
    with joined_ranks(flags.transport) as link:
        lanes = parse_lanes(flags.lanes)
        infers = flags.mode == "infer"
        on_fabric = flags.executor == "fabric"
        if on_fabric:
            from cstool.cli.verbs.fabric_device import check_run, fabric_device

            check_run(flags.mode, link.ranks, flags.trace)
        if infers:
            asked.check_others(context)
        else:
            asked.check_mode(flags.mode)
        if flags.trace is not None:
            check_trace_file(flags.trace)
        if infers and asked.adapter and flags.params is None and flags.checkpoint_path is None:
            flags = replace(flags, checkpoint_path=base_of(asked.adapter[0]))
        trainers, checkpoint_path = load_run(context, flags, logging)
        if infers:
            # Of several trainers the last one has the model that the file comes to.
            how: dict[str, Any] = {"lanes": lanes, "executor": flags.executor, "as_json": as_json, "link": link}
            infer(trainers[-1], asked, checkpoint_path=checkpoint_path, precision=flags.precision, **how)
            return
        request = RunRequest(
            **{field.name: getattr(flags, field.name) for field in fields(RunRequest)} | {"lanes": lanes}
        )
        stream = sys.stderr if as_json else sys.stdout
        results = run_all(
            trainers,
            request,
            lambda: screen_on(stream),
            command=same_command(context),
            link=link,
            open_device=fabric_device if on_fabric else None,
        )
        if as_json:
            documents = [result.as_dict() for result in results]
            print_json(documents[0] if len(trainers) == 1 else {"trainers": documents})


def _launch(context: typer.Context, flags: RunFlags, launch: LaunchFlags, logging: str | None) -> int:
    """Start several processes for it, once the params are valid; return the exit code."""
    from cstool.training.verbs.ranks import launch_ranks
    from cstool.training.verbs.slurm import run_as_job

    if flags.mode == "infer":
        InferFlags.check_others(context)
    lanes = parse_lanes(flags.lanes)
    trainers, _ = load_run(context, flags, logging)
    continues = flags.checkpoint_path is None and flags.load_checkpoint_states is None

    if launch.launch == "slurm":
        return run_as_job(
            command_of_a_rank(context),
            trainers,
            flags.mode,
            launch.request,
            typed=["cstool", *sys.argv[1:]],
            flags=launch_words(context),
            lanes=lanes,
            continues=continues,
            say=say_of_a_job,
        )
    return launch_ranks(
        python(*sys.orig_argv[1:]),
        trainers,
        flags.mode,
        ranks=launch.ranks,
        max_restarts=launch.max_restarts or 0,
        continues=continues,
        say=say_of_a_job,
    )


def _submit(
    context: typer.Context,
    flags: RunFlags,
    launch: LaunchFlags,
    appliance: ApplianceFlags,
    job: JobFlags,
    asked: InferFlags,
    as_json: bool,
    logging: str | None,
) -> int:
    """Submit it as a job, and follow the job; return its exit code."""
    from cstool.appliance.verbs.jobs import submit_and_follow

    check_job(launch, as_json)
    request = job_request(flags, job, launch)
    asked.check_mode(flags.mode)
    trainers, _ = load_run(context, flags, logging, is_job=True)
    return submit_and_follow(job.root, job.backend, trainers, request, appliance.on_interrupt or "cancel", say_of_a_job)
