"""A job as the queue keeps it: its order, its needs, its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

PRIORITIES = ("p1", "p2", "p3")
"""most urgent first, as the vendor's cluster_config.job_priority has them"""
USUAL_PRIORITY = "p2"

QUEUED, COMPILING, RUNNING = "QUEUED", "COMPILING", "RUNNING"
SUCCEEDED, FAILED, CANCELLED = "SUCCEEDED", "FAILED", "CANCELLED"
ACTIVE_PHASES = (QUEUED, COMPILING, RUNNING)
ENDED_PHASES = (SUCCEEDED, FAILED, CANCELLED)
PHASES = (*ACTIVE_PHASES, *ENDED_PHASES)
NEVER_FITS = "the job must fit the appliance"
"""how the reason of a job begins that needs more than there is"""
COMPILE, EXECUTE = "compile", "execute"
"""the two stages of a job; while it is QUEUED, the stage that it waits for"""

CANCEL, CANCEL_NOW, PREEMPT = "cancel", "cancel_now", "preempt"
"""requests to a running job: finish the step, save, end for good; end at once; finish, save, and wait again"""
REQUESTS = ("", PREEMPT, CANCEL, CANCEL_NOW)
"""no request, and the requests; each overrides the ones before it"""


@dataclass(frozen=True)
class Needs:
    """Limits of a job's use of the machine while it executes.

    Args:
        cores: cores, and lanes
        memory_bytes: memory of all its processes together [bytes]
        disk_bytes: largest growth of model_dir [bytes]
        systems: modelled CS-X systems, its num_csx
        seconds: its run time [s], estimated or stated; None: unknown
        limit_s: time limit [s]; None for no limit
        sources: field -> "stated", "estimated", "measured", or "capped" where the model is too large to estimate more
            than the limit of a job; for people
    """

    cores: int
    memory_bytes: int
    disk_bytes: int
    systems: int
    seconds: float | None = None
    limit_s: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def held(self) -> dict[str, int]:
        """The amounts that a job holds besides cores while it executes, by the names of the fields."""
        return {"memory_bytes": self.memory_bytes, "disk_bytes": self.disk_bytes, "systems": self.systems}


@dataclass(frozen=True)
class Capacity:
    """The capacity of an appliance; see `Needs`.

    Args:
        cpus: numbers of the host's cores that jobs are pinned to
        compiles: compile jobs at a time, beside the jobs that execute
    """

    cpus: tuple[int, ...]
    memory_bytes: int
    disk_bytes: int
    systems: int
    compiles: int = 1


@dataclass(frozen=True)
class JobOrder:
    """The order of a job. It is kept in the job's folder, `job.json`, and does not change.

    Args:
        typed: the command as it was typed
        program: words that start cstool, such as [python, -m, cstool]
        run_words: words after it that execute the job, without --lanes and --params
        compile_words: words after it that compile its model, without --params; empty where there is nothing to compile
        params: text of the params file, all trainers resolved, paths absolute
        params_file: where the params came from, for people
        working_dir: folder in which the command was typed; absolute
        environment: variables of the job, added to a login's
        model: its name
        mode: of the run
        model_dir: of the run; absolute
        compile_dir: folder of artifacts; absolute
        compile_key: the same for compiles that are the same; empty where there is nothing to compile
        max_steps: the step at which training ends, counted from step 0; None: unknown
        needs: see there
        priority: one of `PRIORITIES`
        labels: name -> value
        note: free text, one line
        preempts: whether running jobs of a lower priority may be stopped for it
        preemptible: whether it goes on, when it is started again, where it stopped
        max_restarts: largest number of restarts after crashes
        backend_options: options of the back end, such as options of sbatch
    """

    typed: tuple[str, ...]
    program: tuple[str, ...]
    run_words: tuple[str, ...]
    compile_words: tuple[str, ...]
    params: str
    params_file: str
    working_dir: Path
    environment: Mapping[str, str]
    model: str
    mode: str
    model_dir: Path
    compile_dir: Path
    compile_key: str
    max_steps: int | None
    needs: Needs
    priority: str = USUAL_PRIORITY
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    preempts: bool = False
    preemptible: bool = True
    max_restarts: int = 0
    backend_options: tuple[str, ...] = ()

    def command(self, stage: str, params: Path, lanes: int) -> list[str]:
        """Return the command of a stage, which reads the job's own copy of the params."""
        if stage == COMPILE:
            return [*self.program, *self.compile_words, "--params", str(params)]
        return [*self.program, *self.run_words, "--params", str(params), "--lanes", str(lanes)]

    def job(self, number: int, name: str, **others: Any) -> Job:
        """Return a job of this order, QUEUED for its first stage, with further fields."""
        shared = {each.name: getattr(self, each.name) for each in fields(Job) if hasattr(self, each.name)}
        return Job(number, name, **{**shared, "stage": COMPILE if self.compile_words else EXECUTE, **others})


@dataclass(frozen=True)
class Job:
    """A row of the queue; a new job has the defaults.

    Args:
        number: counts up in the order of submission; clocks play no part
        name: wsjob- and 22 letters or digits
        user, user_id: the submitter
        digest: SHA-256 of `job.json`, in hexadecimal digits
        backend: "local" or "slurm"; backend_id: the back end's name of the job, "" where it has no other name
        model, mode, params_file, model_dir, compile_key, max_steps, needs: as of `JobOrder`
        priority, preempts, preemptible, max_restarts: as of `JobOrder`
        labels, note: may change
        phase: one of `PHASES`
        stage: `COMPILE` or `EXECUTE`
        reason: why it waits, or how it ended; one line
        asked: "" or the request to stop it: `CANCEL`, `CANCEL_NOW`, `PREEMPT`
        attempt: number of starts of its present stage; 0 before
        restarts: number of restarts that count for max_restarts
        cpus: cores that it has now, or had last
        submitted_at, started_at, ended_at: by the clock [s since 1970]; started: first execution; None before
        exit_code: of its last process; None before
        expected_start, expected_end: [s since 1970]; None: unknown
        peak_bytes: most memory that it was seen to take [bytes]; 0 before
    """

    number: int
    name: str
    user: str = ""
    user_id: int = 0
    digest: str = ""
    backend: str = "local"
    backend_id: str = ""
    model: str = ""
    mode: str = ""
    params_file: str = ""
    model_dir: Path = Path()
    compile_key: str = ""
    max_steps: int | None = None
    needs: Needs = Needs(0, 0, 0, 0)
    priority: str = USUAL_PRIORITY
    preempts: bool = False
    preemptible: bool = True
    max_restarts: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    phase: str = QUEUED
    stage: str = EXECUTE
    reason: str = ""
    asked: str = ""
    attempt: int = 0
    restarts: int = 0
    cpus: tuple[int, ...] = ()
    submitted_at: float = 0.0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    expected_start: float | None = None
    expected_end: float | None = None
    peak_bytes: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for good."""
        return self.phase in ENDED_PHASES

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to end, for any reason."""
        return bool(self.asked)

    @property
    def never_starts(self) -> bool:
        """Whether it waits in vain: the appliance has less than it needs, unless it is started with more."""
        return self.phase == QUEUED and self.reason.startswith(NEVER_FITS)


SUBMITTED, COMPILE_STARTED, COMPILE_SHARED, COMPILED = "submitted", "compile_started", "compile_shared", "compiled"
STARTED, STOP_ASKED, PREEMPTED, CRASHED, RESTARTS = "started", "stop_asked", "preempted", "crashed", "restarts"
JOB_SUCCEEDED, JOB_FAILED, JOB_CANCELLED, LABELLED = "succeeded", "failed", "cancelled", "labelled"
SUPERVISOR_STARTED, SUPERVISOR_STOPPED = "supervisor_started", "supervisor_stopped"
DRAINED, UNDRAINED = "drained", "undrained"
PHASE_AFTER = {
    SUBMITTED: QUEUED,
    COMPILE_STARTED: COMPILING,
    COMPILE_SHARED: QUEUED,
    COMPILED: QUEUED,
    STARTED: RUNNING,
    PREEMPTED: QUEUED,
    CRASHED: QUEUED,
    RESTARTS: QUEUED,
    JOB_SUCCEEDED: SUCCEEDED,
    JOB_FAILED: FAILED,
    JOB_CANCELLED: CANCELLED,
}
"""kind of an event -> phase of its job from then on; events of other kinds change no phase"""
EVENT_KINDS = (
    *PHASE_AFTER,
    *(STOP_ASKED, LABELLED, SUPERVISOR_STARTED, SUPERVISOR_STOPPED, DRAINED, UNDRAINED),
)


@dataclass(frozen=True)
class Event:
    """An event, written in one transaction with the change of its job.

    Args:
        number: counts up in the order of events; clocks play no part
        at: by the clock of the host, but never before the event that came before it [s since 1970]
        job: name; "" for events of the appliance
        kind: one of `EVENT_KINDS`
        text: for people, one line
        data: for programs; STARTED and COMPILE_STARTED have attempt, cpus, memory_bytes, disk_bytes, systems; SUBMITTED
            has stage, priority, cores, memory_bytes, disk_bytes, systems, seconds, limit_s
    """

    number: int
    at: float
    job: str
    kind: str
    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Stay:
    """A job was in a phase, from then to then [s since 1970]; end: None while it is. Cores: of the stages alone."""

    phase: str
    begin: float
    end: float | None = None
    cpus: tuple[int, ...] = ()


def stays(events: Iterable[Event]) -> list[Stay]:
    """Return the phases of a job, one after the other, from its events."""
    found: list[Stay] = []
    for event in events:
        phase = PHASE_AFTER.get(event.kind)
        if phase is None or (found and found[-1].phase == phase):
            continue
        if found:
            found[-1] = replace(found[-1], end=event.at)
        cpus = event.data.get("cpus") if phase in (COMPILING, RUNNING) else ()
        found.append(Stay(phase, event.at, None, tuple(cpus) if isinstance(cpus, list | tuple) else ()))
    return found
