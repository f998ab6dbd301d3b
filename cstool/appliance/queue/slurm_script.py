"""The batch script of a job: kept in its folder, readable, and as good when it is submitted by hand."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cstool.appliance.queue.job import COMPILE, EXECUTE, JobOrder
from cstool.appliance.queue.job_folder import JobFolder
from cstool.foundation.plain_text import one_line
from cstool.foundation.safe_python import python
from cstool.foundation.slurm.batch_script import BatchScript

NICE = {"p1": 0, "p2": 1000, "p3": 2000}
"""decrease of a job's priority. Users may only lower theirs (`man sbatch`, --nice): p1 is the usual one"""
WATCHING_BYTES = 2**26
"""memory of the processes that watch a job, beside its own [bytes]"""
AHEAD_S = 60
"""time between the notice to a job and Slurm's time limit; up to 60 s more (`man sbatch`, --signal) [s]"""
AROUND_S = 600
"""time that is added to a job's limit in Slurm, for its compile, and to save at the end [s]"""
LONGEST_COMMENT = 500
_MIB = 2**20


@dataclass(frozen=True)
class JobScript(BatchScript):
    """The batch script of a job.

    Args:
        folder: of the job
        order: of the job
        digest: of the order
    """

    folder: JobFolder
    order: JobOrder
    digest: str

    @property
    def place(self) -> Path:
        """The folder of all files of Slurm and the batch job."""
        return slurm_folder(self.folder)

    @property
    def script(self) -> Path:
        """Where the script is kept."""
        return self.place / "job.sh"

    def _typed(self) -> Sequence[str]:
        return self.order.typed

    def _head(self) -> Iterator[str]:
        yield from super()._head()
        yield "# The run then goes on from its latest state; a job that has ended stays so in the queue."

    def _options(self) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield options of sbatch, each after the lines of a comment."""
        order, needs = self.order, self.order.needs
        yield (), [f"--job-name={self.folder.name}"]
        memory = math.ceil((needs.memory_bytes + WATCHING_BYTES) / _MIB)
        yield (
            ("A core for each lane. Of the memory, 64 MiB are for what watches the job, the rest is its own.",),
            ["--nodes=1", "--ntasks=1", f"--cpus-per-task={needs.cores}", f"--mem={memory}M"],
        )
        if needs.limit_s is not None:
            minutes = math.ceil((needs.limit_s + AROUND_S) / 60)
            yield (
                (f"The job stops itself {needs.limit_s:g} s after it began; the rest is to compile, and to save.",),
                [f"--time={minutes}"],
            )
        yield (
            (f"{order.priority}: users may lower their priority, not raise it, so p1 has the usual one.",),
            [f"--nice={NICE[order.priority]}"],
        )
        if comment := comment_of(order):
            yield (), [f"--comment={comment}"]
        yield (
            ("Every node must have this folder, that of the job, and model_dir, at the same path.",),
            [f"--chdir={order.working_dir}"],
        )
        # sbatch takes %j for the number of the job, and %% for a percent sign.
        log = f"{str(self.place).replace('%', '%%')}/%j.log"
        yield (), [f"--output={log}", f"--error={log}", "--open-mode=append"]
        if order.preemptible:
            yield ("Where a node fails, or Slurm needs it, the job is queued again, and goes on.",), ["--requeue"]
        else:
            yield ("A run that began again would not go on from where it was.",), ["--no-requeue"]
        yield (
            ("So many seconds before the time limit, and up to 60 more: a step, and a checkpoint, must take less.",),
            [f"--signal=B:USR1@{AHEAD_S}"],
        )
        for option in order.backend_options:
            yield (), shlex.split(option)

    def _body(self) -> Iterator[str]:
        params, lanes = self.folder.params_file, self.order.needs.cores
        yield "# This compiles, then executes, and starts again what crashed:"
        for stage in (COMPILE,) * bool(self.order.compile_words) + (EXECUTE,):
            yield f"#     {one_line(shlex.join(self.order.command(stage, params, lanes)))}"
        words = python("-m", "cstool.appliance.queue.slurm_node", str(self.folder.path), self.digest)
        yield f"exec {shlex.join(words)}"


def slurm_folder(folder: JobFolder) -> Path:
    """The folder, below the job's, of all files of Slurm and the batch job."""
    return folder.path / "slurm"


def comment_of(order: JobOrder) -> str:
    """The comment for Slurm: a job's labels and note, for `squeue --Format=comment` and sacct; empty for nothing.

    Everybody on the cluster may read it.
    """
    labels = ",".join(f"{key}={value}" for key, value in order.labels.items())
    return "; ".join(filter(None, (labels, order.note)))[:LONGEST_COMMENT]
