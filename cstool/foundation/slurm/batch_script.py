"""The batch script of a run: written once, kept, readable, and fit to be submitted by hand."""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import cstool
from cstool.foundation.errors import ClusterError
from cstool.foundation.launched import FLAGS_VARIABLE
from cstool.foundation.plain_text import has_controls, one_line

AHEAD_SHARE, AHEAD_S, USUAL_AHEAD_S = 0.05, (10, 300), 120
"""time between a run's stop and its time limit: share of the limit; at least and at most [s]; under the partition's own
limit [s]"""
PARTING_S = 60
"""time for ranks to end once one of them has [s]"""
_TIMES = (
    r"(?P<m>\d+)(:(?P<s>\d+))?",
    r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)",
    r"(?P<d>\d+)-(?P<h>\d+)(:(?P<m>\d+)(:(?P<s>\d+))?)?",
)
_SIMPLE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
"""a word without a special meaning for sbatch and the shell"""
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NO_LIMIT = ("infinite", "unlimited")


class BatchScript(ABC):
    """A batch script: options for sbatch, each with a comment, and the commands that it runs."""

    @property
    @abstractmethod
    def script(self) -> Path:
        """Path of the script."""

    def sbatch_options(self) -> list[str]:
        """Options for sbatch, also for its command line: there they win over `SBATCH_...` in the environment."""
        return [word for _, words in self._options() for word in words]

    def text(self) -> str:
        """The script."""
        header = []
        for comment, words in self._options():
            header += [f"# {line}" for line in comment] + [directive(words)]
        return "\n".join([*self._head(), "", *header, "", *self._body()]) + "\n"

    def _head(self) -> Iterator[str]:
        yield "#!/bin/bash"
        yield f"# Written by cstool {cstool.__version__} for:"
        yield f"#     {one_line(shlex.join(self._typed()))}"
        yield f"# It may be changed, and submitted by hand: sbatch {one_line(shlex.quote(str(self.script)))}"

    @abstractmethod
    def _typed(self) -> Sequence[str]:
        """The command that asked for it, for readers of the script."""

    @abstractmethod
    def _options(self) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield options of sbatch, each after the lines of a comment."""

    @abstractmethod
    def _body(self) -> Iterator[str]:
        """Yield its commands."""


@dataclass(frozen=True)
class BatchJob(BatchScript):
    """A job for a batch script.

    Args:
        name: name of the job
        typed: the command that asked for it, for readers of the script
        command: command of one rank
        flags: flags that asked for the job, for hints of the run on the next command
        working_dir: base of relative paths in the command; absolute
        folder: folder of script and logs; absolute
        nodes, ranks: their numbers; a node has at least one rank
        lanes: threads of a rank, and then cores; None for whole nodes
        partition, time: None for the cluster's defaults
        options: further options of sbatch, each as typed
        max_restarts: number of times that it is queued again by itself
        continues: whether the command goes on from the latest state in model_dir when it is run again
        pmi: interface by which srun connects the ranks (`pmi_of`); None for one rank, which needs none
    """

    name: str
    typed: Sequence[str]
    command: Sequence[str]
    flags: Sequence[str]
    working_dir: Path
    folder: Path
    nodes: int
    ranks: int
    lanes: int | None
    partition: str | None
    time: str | None
    options: Sequence[str]
    max_restarts: int
    continues: bool
    pmi: str | None

    @property
    def script(self) -> Path:
        """Path of the script."""
        return self.folder / "job.sh"

    def log(self, job: str, stream: str) -> Path:
        """Path of a job's "out" or "err"."""
        return self.folder / f"{job}.{stream}"

    def _typed(self) -> Sequence[str]:
        return self.typed

    def _options(self) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Yield options of sbatch, each after the lines of a comment."""
        yield (), [f"--job-name={self.name}"]
        per_node = math.ceil(self.ranks / self.nodes)
        ranks = f"{self.ranks} rank{'s' * (self.ranks > 1)} on {self.nodes} node{'s' * (self.nodes > 1)}"
        share = "nodes are theirs alone, with all cores and memory" if self.lanes is None else "a core for each lane"
        yield (
            (f"{ranks}; {share}.",),
            [
                *(f"--nodes={self.nodes}", f"--ntasks={self.ranks}", f"--ntasks-per-node={per_node}"),
                *(["--exclusive", "--mem=0"] if self.lanes is None else [f"--cpus-per-task={self.lanes}"]),
            ],
        )
        for name, value in (("partition", self.partition), ("time", self.time)):
            if value is not None:
                yield (), [f"--{name}={value}"]
        for option in self.options:
            yield (), shlex.split(option)
        yield ("Every node must have this folder and model_dir at the same path.",), [f"--chdir={self.working_dir}"]
        # sbatch takes %j for the number of the job, and %% for a percent sign.
        logs = str(self.folder).replace("%", "%%")
        yield (), [f"--output={logs}/%j.out", f"--error={logs}/%j.err", "--open-mode=append"]
        if self.continues:
            yield ("Where a node fails Slurm queues the job again, and the run goes on.",), ["--requeue"]
        else:
            yield ("A run that began again would not go on from where it was.",), ["--no-requeue"]
        yield (
            (
                "So many seconds before the time limit, and up to 60 more, Slurm signals this shell: a step, and a",
                "checkpoint, must take less.",
            ),
            [f"--signal=B:USR1@{ahead_s(self.time)}"],
        )

    def _body(self) -> Iterator[str]:
        yield f"max_restarts={self.max_restarts}  # how often the job is queued again by itself"
        yield "# What the run says to type next has these flags."
        yield f"export {FLAGS_VARIABLE}={shlex.quote(shlex.join(self.flags))}"
        yield _STOPPING
        yield from self._srun()
        yield _ENDING.replace("PARTING_S", str(PARTING_S))

    def _srun(self) -> Iterator[str]:
        if self.pmi is not None:
            yield "# srun starts the ranks, not mpirun: Slurm then knows, signals and ends each of them on each node."
            yield f"# By {self.pmi} it tells them of each other; `srun --mpi=list` says what there is."
        yield "# Where a rank dies the others say so, and end: they are not killed at once, nor left for ever."
        cores = ["--cpu-bind=none"] if self.lanes is None else [f"--cpus-per-task={self.lanes}"]
        mpi = [] if self.pmi is None else [f"--mpi={self.pmi}"]
        srun = ["srun", "--quiet", *mpi, *cores, "--kill-on-bad-exit=0", f"--wait={PARTING_S}"]
        lines = [srun, []]
        for word in self.command:
            if word.startswith("--") and len(lines[-1]) > 0:
                lines.append([])
            lines[-1].append(word)
        yield " \\\n    ".join(map(shlex.join, lines)) + " &"


_STOPPING = dedent("""\

    # MPI names the memory that ranks on one node share by job and step, and what ranks that were killed left there
    # would be in its way. So this step gets another number each time.
    restarts=${SLURM_RESTART_COUNT:-0}
    for ((step = 0; step < restarts; step++)); do srun --quiet --mpi=none --nodes=1 --ntasks=1 true; done

    # The ranks are signalled once they are there: they finish their step, save, and end with 130.
    stop() {
        again=yes stopped=$1
        until scontrol show step "$SLURM_JOB_ID.$restarts"; do
            kill -0 $! || return
            sleep 0.5
        done >/dev/null 2>&1
        scancel --quiet --signal="$2" "$SLURM_JOB_ID"
    }
    trap 'echo "job $SLURM_JOB_ID: its time limit is near" >&2; stop "its time limit" TERM' USR1
    trap 'stop "a signal" TERM' TERM
    trap 'stop "a signal" INT' INT
    """)

_ENDING = dedent("""\
    # A signal ends `wait`, but not srun.
    while again=; wait $!; code=$?; [ "$again" ]; do :; done
    trap "" USR1 TERM INT

    cut=
    case $code in
        0 | 1 | 2) ;; # done; the answer is no; something to mend
        *)
            if [ "$stopped" = "its time limit" ]; then cut=$stopped; fi
            if [ "$stopped" ]; then code=130; fi
            # Only a rank that died, or was ended after the others, ends in another way.
            if [ $code != 130 ]; then cut="a rank died" code=1; fi
            ;;
    esac
    if [ "$cut" ] && [ "$restarts" -lt $max_restarts ]; then
        way_on="the run goes on from its last commit or checkpoint"
        echo "restart $((restarts + 1)) of $max_restarts after $cut: $way_on" >&2
        scontrol requeue "$SLURM_JOB_ID"
    fi
    exit $code""")


def directive(words: Sequence[str]) -> str:
    r"""Return the line of a script with options for sbatch.

    sbatch is no shell: in single quotes, too, a backslash takes the next character as it is.

    >>> print(directive(["--exclusive", r"--chdir=/home/it's 100\%"]))
    #SBATCH --exclusive "--chdir=/home/it's 100\\%"

    Raises:
        ClusterError: an option has a line end, or another control character
    """
    for word in words:
        if has_controls(word):
            raise ClusterError(f"a batch script: must have options without control characters, got {word!r}")
    quoted = (word if _SIMPLE.fullmatch(word) else '"' + re.sub(r'(["\\])', r"\\\1", word) + '"' for word in words)
    return f"#SBATCH {' '.join(quoted)}"


def limit_s(time: str) -> int | None:
    """The seconds of a time limit in sbatch's notation; None for no limit.

    >>> limit_s("90"), limit_s("1:30"), limit_s("2:00:00"), limit_s("1-12"), limit_s("unlimited")
    (5400, 90, 7200, 129600, None)

    Raises:
        ClusterError: it is no time limit
    """
    if time.lower() in _NO_LIMIT:
        return None
    for form in _TIMES:
        if found := re.fullmatch(form, time, re.ASCII):
            seconds = sum(int(value) * _UNITS[unit] for unit, value in found.groupdict().items() if value)
            if seconds:
                return seconds
    raise ClusterError(
        f"--time: must be a time limit as sbatch takes it, got {time!r}",
        "90 or 1:30:00 is an hour and a half, 2-12 two days and a half; 1:30 is a minute and a half",
    )


def ahead_s(time: str | None) -> int:
    """Time between a run's stop and its time limit [s].

    >>> ahead_s("1"), ahead_s("60"), ahead_s("2-0"), ahead_s(None)
    (10, 180, 300, 120)
    """
    limit = None if time is None else limit_s(time)
    if limit is None:
        return USUAL_AHEAD_S
    return int(min(max(AHEAD_SHARE * limit, AHEAD_S[0]), AHEAD_S[1]))
