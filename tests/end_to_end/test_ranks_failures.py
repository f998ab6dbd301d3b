"""Runs in several processes: one that dies, signals, restarts, and whatever is asked of them that cannot be."""

import os
import random
import re
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import cstool
from tests.end_to_end.ranks import CSTOOL, MPIRUN, Command, Said, by_mpirun, committed, launched, run
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import DROPOUT, LONGER, gpt_params, latest_bits, write_text
from tests.patience import wait_until
from tests.thread_ranks import run_ranks

LOOP = {**LONGER, "init__memoryx": {"store": "file"}}
SYSTEMS = {"init__backend": {"cluster_config": {"num_csx": 4}}}
HOST = socket.gethostname()
LAB, RANKS = pytest.mark.lab, pytest.mark.takes("whole runs on two ranks, which are processes")
MAIN = "import sys; from cstool.cli import main; sys.exit(main())"
WAY_ON = "hint: the same command goes on from the last commit or checkpoint\n"
DIED = (
    rf"error: rank {{rank}} on {re.escape(HOST)}: must last as long as the run, it died "
    r"(before the first step|in step \d+(, after the op of [\w.]+)?)\n" + WAY_ON
)


@pytest.fixture(scope="module")
def straight(undisturbed) -> str:
    return undisturbed(**LONGER, **DROPOUT)


@pytest.fixture
def file(tmp_path, data) -> Path:
    return gpt_params(tmp_path, data, **LOOP, **DROPOUT, **SYSTEMS)


def wait_for_commit(file: Path, step: int) -> None:
    wait_until(lambda: committed(file.parent / "model_dir") >= step, f"no commit of step {step}")


def struck(file: Path, rank: int | None, number: int, step: int = 1, words: Sequence[str] = ()) -> Said:
    """What came of a run of which a rank, or what started it, got a signal after a step was committed."""
    with Command(*(words or launched(file))) as command:
        wait_for_commit(file, step)
        time.sleep(random.uniform(0, 0.1))
        os.kill(command.process.pid if rank is None else command.rank(rank), number)
        return command.wait()


def patched(code: str, file: Path) -> Sequence[str]:
    """The command that starts two ranks, which first do something else."""
    return (sys.executable, "-c", f"{code}\n{MAIN}", *launched(file)[len(CSTOOL) :])


@RANKS
def test_after_a_rank_died_the_run_goes_on_with_the_same_bits(file, straight):
    """The other ends soon, and says so. It goes on in threads here; `tests.lab.kill_ranks` types the same command."""
    said = struck(file, 0, signal.SIGKILL, 4)
    assert said.exit_code == 1, said.errors
    assert re.fullmatch(DIED.format(rank=0), said.errors), said.errors
    run_ranks(file, 2)
    assert latest_bits(file.parent / "model_dir") == straight


ABORTING = """
import ctypes, os, threading, time

def abort():
    while not os.path.exists({file!r}):
        time.sleep(0.001)
    ctypes.CDLL(None).abort()

if os.environ.get("PMI_RANK") == "0":
    threading.Thread(target=abort, daemon=True).start()
"""


@LAB
def test_where_mpi_aborts_for_a_rank_that_died_rank_0_still_says_so(file, tmp_path):
    """As it may where it was just reading from that one's memory."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(ABORTING.format(file=str(tmp_path / "now")))
    folders = str(tmp_path / "site"), str(Path(cstool.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    with Command(*launched(file), environment=environment) as command:
        wait_for_commit(file, 1)
        os.kill(command.rank(1), signal.SIGKILL)
        (tmp_path / "now").touch()
        said = command.wait()
    assert said.exit_code == 1
    # What rank 1 was at is known to rank 0, and not to the launcher.
    assert re.fullmatch(DIED.format(rank=1), said.errors), said.errors
    assert " in step " in said.errors


@LAB
def test_the_launcher_starts_a_run_again_after_a_rank_died(file, straight):
    with Command(*launched(file, "--max_restarts", "2")) as command:
        for step in (1, 4):
            wait_for_commit(file, step)
            os.kill(command.rank(1), signal.SIGKILL)
            if step == 1:
                wait_for_commit(file, 3)
        said = command.wait()
    again = "restart {} of 2: the run goes on from its last commit or checkpoint\n"
    expected = "".join(DIED.format(rank=1) + again.format(count) for count in (1, 2))
    assert re.fullmatch(expected, said.errors), said.errors
    assert said.exit_code == 0
    assert latest_bits(file.parent / "model_dir") == straight


@RANKS
@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("rank", signal.SIGTERM),
        *(pytest.param(where, signal.SIGINT, marks=LAB) for where in ("mpirun", "rank")),
        pytest.param("launcher", signal.SIGTERM, marks=LAB),
    ],
)
def test_a_signal_finishes_the_step_and_saves_wherever_it_comes(file, where, number):
    words = by_mpirun(file) if where == "mpirun" else launched(file)
    said = struck(file, 1 if where == "rank" else None, number, words=words)
    assert said.exit_code == 130
    errors = said.errors.replace("[mpiexec@" + HOST + "] Sending Ctrl-C to processes as requested\n", "")
    assert errors.replace("[mpiexec@" + HOST + "] Press Ctrl-C again to force abort\n", "") == (
        f"interrupted: stopped by {number.name} after step {committed(file.parent / 'model_dir')}; "
        f"it is committed in {file.parent / 'model_dir' / 'memoryx_1_of_2.h5'}\n"
        "hint: the same command continues from there\n"
    )


ASIDE = "import os, signal; STRIKES = os.environ.get('PMI_RANK') == '1'; "
STRIKE = "STRIKES and os.kill(os.getpid(), signal.SIGTERM)"
BEGINS = f"""
import cstool.training.machine.ranks.mpi_start as start
def begin(mpi, begins=start._begin):
    {STRIKE}
    begins(mpi)
start._begin = begin
"""


@RANKS
@pytest.mark.parametrize(
    ("strikes", "errors"),
    [
        (STRIKE, f"interrupted: rank 1 on {HOST}: stopped by SIGTERM before the run began\n"),
        pytest.param(BEGINS, "interrupted\n", marks=LAB),
    ],
    ids=["as its program is read", "as MPI begins"],
)
def test_a_rank_that_is_stopped_before_the_run_began_is_an_interruption(file, strikes, errors):
    said = run(*patched(ASIDE + strikes, file))
    assert (said.exit_code, said.errors, said.output) == (130, errors, "")


@LAB
def test_a_rank_that_says_nothing_is_given_up(file):
    patient = patched("import cstool.training.machine.ranks.mpi as mpi; mpi.SILENT_S = 8.0", file)
    said = struck(file, 1, signal.SIGSTOP, words=patient)
    assert said.exit_code == 1
    assert re.fullmatch(
        rf"error: rank 1 on {re.escape(HOST)}: must be heard of every 8 s, it has been silent for \d+ s, "
        r"in step \d+(, after the op of [\w.]+)?\n" + WAY_ON,
        said.errors,
    ), said.errors


@LAB
def test_where_the_rank_that_was_to_say_it_dies_too_the_launcher_does(file):
    """Rank 1 is killed as it is about to print that rank 0 died."""
    silent = (
        "import os; from cstool.foundation.terminal import report; "
        "from cstool.foundation.launched import is_launched; "
        "report.print_error = (lambda *_, **__: os.kill(os.getpid(), 9)) if is_launched() else report.print_error"
    )
    said = struck(file, 0, signal.SIGKILL, words=patched(silent, file))
    assert said.errors == f"error: rank 0 on {HOST}: must last as long as the run, it died\n{WAY_ON}"
    assert said.exit_code == 1


LATE = """
import os
import cstool.training.machine.ranks.mpi as mpi
def work_on(self, whole=mpi.MpiLink._work_on):
    whole(self)
    if self.rank == 1:
        os.kill(os.getpid(), 9)
mpi.MpiLink._work_on, mpi.SILENT_S = work_on, 3.0
"""


@LAB
def test_a_rank_that_dies_after_its_goodbye_keeps_nobody(file, straight):
    said = run(*patched(LATE, file))
    assert (said.exit_code, said.errors) == (0, "")
    assert latest_bits(file.parent / "model_dir") == straight


EARLY = """
from cstool.foundation.errors import ClusterError
from cstool.training.machine.ranks.mpi import MpiLink
link, heard = MpiLink(), []
link._inboxes[0, "over"].put("early")
link.fail(ClusterError("the link broke after that"))
link.listen("over", lambda sender, body, arrays: heard.append(body))
link.close()
print(heard)
"""


@LAB
def test_what_came_before_a_link_broke_is_heard_and_nothing_else():
    assert run(sys.executable, "-c", EARLY).output == "['early']\n"


UNREADABLE = "cannot be read or written, got: Not a directory"


@RANKS
@pytest.mark.parametrize(
    ("fails", "said", "traceback"),
    [
        ("{}['lost']", "KeyError: 'lost'", True),
        pytest.param("open('/dev/null/no')", f"/dev/null/no: {UNREADABLE}", False, marks=LAB),
    ],
)
def test_what_goes_wrong_at_another_rank_is_told_and_a_bug_with_its_traceback(file, fails, said, traceback):
    failing = f"import cstool.training.machine.ranks.worker as worker; worker.Worker._go = lambda self, go: {fails}"
    found = run(*patched(failing, file))
    assert found.exit_code == 2
    assert found.errors.endswith(f"error: rank 1 on {HOST}: {said}\n")
    assert found.errors.count("Traceback (most recent call last):") == traceback
    assert (found.errors.count("\n") == 1) is not traceback


@LAB
def test_where_the_launcher_dies_the_run_saves_and_ends(file, straight):
    struck(file, None, signal.SIGKILL)
    run(*launched(file))
    assert latest_bits(file.parent / "model_dir") == straight


MANY = "trainer.init.seed=many"
GRAINS = "trainer.fit.train_dataloader"
FEW = "error: num_csx: must be at least the number of processes (2), got 1\nhint: --num_csx 2, or fewer processes\n"
ALIKE = "hint: every host needs the same cstool, the same params file and the same data\n"


def refused(*words: str, environment: dict[str, str] | None = None) -> str:
    """Run a command that has exit code 2, and prints nothing but an error."""
    said = run(*words, environment=environment)
    assert said.exit_code == 2, said
    return said.errors


TWICE = (
    "error: --launch mpi: must be typed where no launcher started the process, got one of 2\n"
    "hint: without --launch the processes find each other\n"
)


@RANKS
@pytest.mark.parametrize(
    ("start", "flags", "said"),
    [
        (by_mpirun, f"--set {MANY}", None),
        (by_mpirun, "--launch mpi", TWICE),
        *(pytest.param(by_mpirun, flags, None, marks=LAB) for flags in ("--lane 2", "--lanes no")),
        *(pytest.param(start, "--num_csx 1", FEW, marks=LAB) for start in (by_mpirun, launched)),
        pytest.param(launched, f"--set {MANY}", None, marks=LAB),
    ],
)
def test_what_is_wrong_is_said_once(cstool, file, start, flags, said):
    """By one of the processes, as one that is alone says it."""
    expected = said or cstool("run", "-p", file, *flags.split()).stderr
    assert refused(*start(file, *flags.split())).replace(str(file.parent), "TMP") == expected


@LAB
def test_each_process_needs_a_grain(file):
    assert refused(*launched(file, "--num_csx", "8", "--set", f"{GRAINS}.batch_size=16", ranks=5)) == (
        f"error: {file}: {GRAINS}: must have at least as many grains to a batch as there are processes (5), got 4\n"
        "hint: a larger batch_size, or fewer processes\n"
    )


SETS = "import pathlib; import cstool.training.data.loaders as sets; opened = sets.open_dataset; "
SAMPLES = r"the samples of trainer\.fit\.train_dataloader must be as rank 0 has it, "
VERSION = rf"the version of cstool must be as rank 0 has it, {re.escape(cstool.__version__)}, got 0\.0\.1"
OTHER = {
    "params": ("import sys; sys.argv += ['--set', 'trainer.init.seed=2']",
               r"the params must be as rank 0 has it, [0-9a-f]{16}, got [0-9a-f]{16}"),
    "data": (f"{SETS}sets.open_dataset = lambda kind, _, **named: opened(kind, [pathlib.Path(OTHER)], **named)",
             rf"{SAMPLES}60 [0-9a-f]{{16}}, got 60 [0-9a-f]{{16}}"),
    "version": ("import cstool; cstool.__version__ = '0.0.1'", VERSION),
}  # fmt: skip
"""what rank 1 alone does before it begins: another disk may be behind the same path"""


@RANKS
@pytest.mark.parametrize("what", ["params", pytest.param("data", marks=LAB), pytest.param("version", marks=LAB)])
def test_ranks_that_do_not_have_the_same(file, what):
    """The one that is through first gets no more words of the other, be they so many: MPI would end with an error."""
    first, message = OTHER[what]
    other = write_text(file.parent / "other" / "train", 60, seed=1)
    program = f"import cstool.training.machine.ranks.mpi as mpi; mpi.BEAT_S = 0.0005; {MAIN}"
    programs = program, f"{first.replace('OTHER', repr(str(other)))}; {program}"
    python = [("-n", "1", sys.executable, "-c", each, "run", "-p", str(file), "--lanes", "1") for each in programs]
    errors = refused(MPIRUN, *python[0], ":", *python[1])
    assert re.fullmatch(rf"error: rank 1: {message}\n{ALIKE}", errors), errors
    assert not list((file.parent / "model_dir").glob("*.mdl"))


NO_MPI, IN_LAB = "ImportError('No module named mpi4py')", "RuntimeError('cannot load MPI library')"
INSTALLS = "pip install 'cstool[mpi]' installs mpi4py and MPICH"


@pytest.mark.parametrize("raised", [NO_MPI, pytest.param(IN_LAB, marks=LAB)])
def test_there_is_no_mpi(file, raised):
    package = file.parent / "site" / "mpi4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("class rc: pass\n")
    (package / "MPI.py").write_text(f"raise {raised}\n")
    path = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    got = raised.replace("('", ": ").removesuffix("')")
    expected = error(f"--transport mpi: needs MPI, got {got}", INSTALLS)
    assert refused(*launched(file), environment={"PYTHONPATH": path}) == expected


@LAB
def test_a_launcher_of_another_mpi(file):
    """Each process believes that it is alone."""
    places = ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank} for rank in ("0", "1"))
    errors = [refused(*CSTOOL, "run", "-p", str(file), environment=place) for place in places]
    assert re.fullmatch(
        r"error: --transport mpi: the launcher must belong to the MPI of this Python \(.+\); it started 2 processes, "
        r"of which this MPI sees 1\n"
        r"hint: the mpirun beside this Python does, as `--launch mpi` uses it\n",
        errors[0],
    ), errors
    assert errors[1] == ""


def test_no_mpirun(cstool, file, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    expected = error("--launch mpi: needs mpirun, found none beside this Python or on PATH", INSTALLS)
    assert cstool("run", "-p", file, "--launch", "mpi", "--ranks", "2") == (2, "", expected)


APART = rows("""\
--ranks 2 => --ranks: must go with --launch mpi or slurm, got it alone
--max_restarts 2 => --max_restarts: must go with --launch mpi or slurm, got it alone
--launch mpi --ranks 0 => --ranks: must be at least 1, got 0
--launch mpi --max_restarts -1 => --max_restarts: must be at least 0, got -1
--launch mpi --transport in_process => --launch mpi: must not be with --transport in_process, got both
    hint: one process needs no launch
--launch mpi --max_restarts 1 --num_steps 3 => --max_restarts: must not be with num_steps, got 3
    hint: it counts from where a run begins; max_steps counts from step 0
--launch mpi --max_restarts 1 --checkpoint_path a.mdl =>
    --max_restarts: must not be with --checkpoint_path or --load_checkpoint_states, got both
    hint: a restart goes on from the latest state in model_dir
--launch mpi --mode infer --max_restarts 2 =>
    --max_restarts: must go with a mode that trains or evaluates, got --mode infer
--launch slurm --mode infer => --launch slurm: must be for training or evaluation, got --mode infer
    hint: salloc, and srun within it, have a model answer
""")


@pytest.mark.parametrize(("flags", "message"), APART)
def test_flags_that_do_not_go_together(cstool, file, flags, message):
    assert cstool("run", "-p", file, *flags.split()) == (2, "", error(message))
