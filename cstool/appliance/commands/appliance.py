"""`cstool appliance`: start, stop, drain and show the supervisor of jobs on this host, and serve its page."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cstool.appliance.commands.job_flags import RootOption, say_of_a_job
from cstool.foundation.terminal.command import command, new_group
from cstool.foundation.terminal.options import JsonOption, flag, option
from cstool.foundation.terminal.render import print_facts, print_json, print_line
from cstool.foundation.words import bytes_text, counted

if TYPE_CHECKING:
    from cstool.appliance.verbs.appliance import ShownAppliance

appliance_app = new_group(
    "Start the job supervisor of this host, and look at its state.",
    "cstool appliance start",
    "cstool appliance status",
    epilog="An appliance is a folder with a queue of jobs, and a supervisor that starts them, each on cores and with "
    "memory of its own. Jobs go on when the supervisor is stopped, and the next supervisor finds them.",
)


@command(
    appliance_app,
    "start",
    "cstool appliance start",
    "cstool appliance start --cores 1 --memory 4GiB --systems 4",
    short_help="Start the supervisor, which starts jobs.",
)
def start(
    cores: Annotated[
        int | None,
        option("--cores", "N", "Cores that jobs may have.", show_default="all of this host, or as before", min=1),
    ] = None,
    memory: Annotated[
        str | None,
        option("--memory", "SIZE", "Memory of all jobs together.", show_default="nine tenths of the free memory"),
    ] = None,
    disk: Annotated[
        str | None,
        option("--disk", "SIZE", "Disk of all jobs together.", show_default="nine tenths of the free space"),
    ] = None,
    systems: Annotated[
        int | None,
        option("--systems", "N", "Modelled CSX systems that jobs share.", show_default="192", min=1),
    ] = None,
    compiles: Annotated[
        int | None,
        option("--compiles", "N", "Jobs that compile at a time, beside running jobs.", show_default="1", min=1),
    ] = None,
    group: Annotated[
        str | None, option("--group", "NAME", "Let members of this group submit jobs, too; for root alone.")
    ] = None,
    foreground: Annotated[bool, flag("--foreground", "Supervise in this process, until it is stopped.")] = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start the supervisor of an appliance, and create the appliance if there is none.

    It goes on when this shell ends, and is started again if it dies. Settings that are not given stay as before.
    """
    from cstool.appliance.verbs import appliance as verbs

    asked = verbs.CapacityRequest(cores, memory, disk, systems, compiles)
    shown = verbs.start(root, asked, group=group, foreground=foreground)
    if as_json or not foreground:
        _show(shown, as_json)


@command(
    appliance_app,
    "stop",
    "cstool appliance stop",
    "cstool appliance stop --cancel_jobs",
    short_help="Stop the supervisor; running jobs go on.",
)
def stop(
    cancel_jobs: Annotated[
        bool, flag("--cancel_jobs", "Cancel all jobs first, and wait until they have saved and ended.")
    ] = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the supervisor. Running jobs go on; waiting jobs wait for the next supervisor."""
    from cstool.appliance.verbs import appliance as verbs

    ran = verbs.stop(root, cancel_jobs=cancel_jobs)
    if as_json:
        print_json({"stopped": ran})
    else:
        print_line("The supervisor has ended" if ran else "No supervisor was there")


@command(
    appliance_app,
    "status",
    "cstool appliance status",
    short_help="Show the appliance's resources, their use, and the number of jobs.",
)
def status(root: RootOption = None, as_json: JsonOption = False) -> None:
    """Show the state of the supervisor, the resources of the appliance and their use, and the number of jobs."""
    from cstool.appliance.verbs import appliance as verbs

    _show(verbs.status(root), as_json)


@command(
    appliance_app,
    "drain",
    "cstool appliance drain --wait",
    "cstool appliance drain --off",
    short_help="Start no more jobs; running jobs go on.",
)
def drain(
    off: Annotated[bool, flag("--off", "Start jobs again.")] = False,
    wait: Annotated[bool, flag("--wait", "Wait until no job runs.")] = False,
    root: RootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start no more jobs, before a reboot for example. Running jobs go on; new jobs are accepted."""
    from cstool.appliance.verbs import appliance as verbs

    idle = verbs.drain(root, drained=not off, waits=wait)
    if as_json:
        print_json({"drained": not off, "idle": idle})
    elif off:
        print_line("Jobs are started again")
    else:
        print_line(f"No more jobs are started; {'none runs' if idle else 'some still run'}")


@command(
    appliance_app,
    "serve",
    "cstool appliance serve --port 8650",
    short_help="Show queue, jobs and their logs on a web page.",
)
def serve(
    host: Annotated[
        str | None, option("--host", "ADDRESS", "Address to listen at.", show_default="127.0.0.1, this host alone")
    ] = None,
    port: Annotated[
        int | None, option("--port", "N", "Port to listen at; 0 for any.", show_default="8650", min=0, max=65535)
    ] = None,
    token_file: Annotated[
        Path | None,
        option("--token_file", "FILE", "File with a token; its holders may cancel and label jobs."),
    ] = None,
    root: RootOption = None,
) -> None:
    """Serve a web page: queue, use of resources over time, and each job's phases, losses and log. Ctrl-C ends it."""
    from cstool.appliance.verbs.appliance import serve_page

    serve_page(root, host, port, token_file, say_of_a_job)


def _show(shown: "ShownAppliance", as_json: bool) -> None:
    """Print the state of the supervisor, the capacity and its used part [bytes], and the number of jobs."""
    if as_json:
        print_json({"folder": str(shown.folder), "shared_with": shown.shared_with, **asdict(shown.status)})
        return
    status = shown.status
    facts = {
        "Folder": str(shown.folder) + ("" if shown.shared_with is None else f", shared with group {shown.shared_with}"),
        "Supervisor": status.supervisor or "none; `cstool appliance start` starts one",
    }
    if status.drained:
        facts["Drained"] = "no more jobs are started; `cstool appliance drain --off` has them start again"
    facts["Back end"] = status.backend
    there, used = status.capacity, status.used
    if there is not None:
        facts["Cores"] = f"{len(used.cpus)} of {len(there.cpus)} in use"
        facts["Memory"] = f"{bytes_text(used.memory_bytes)} of {bytes_text(there.memory_bytes)} in use"
        facts["Disk"] = f"{bytes_text(used.disk_bytes)} of {bytes_text(there.disk_bytes)} in use"
        facts["Systems"] = f"{used.systems} of {there.systems} in use"
        facts["Compiles"] = f"{counted(there.compiles, 'job')} at a time"
    phases = {name: count for name, count in status.phases.items() if count}
    facts["Jobs"] = ", ".join(f"{count:,} {name}" for name, count in phases.items()) or "none"
    print_facts(facts)
