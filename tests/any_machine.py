"""Run the tests as they would run elsewhere: on other CPUs, as another user, in odd surroundings.

    python -m tests.any_machine
    python -m tests.any_machine haswell+avx2 busy -- tests/unit/training/kernels -n 0

An argument is a run: settings with `+` between them. Without any, three runs have every setting once. What follows
`--` goes to pytest in place of what `make test` gives it. For each run it prints what passed and failed, and the
seconds of wall and CPU; it ends with 1 if anything failed. The project is copied first, as git knows it, so nothing is
left behind in it.

`user` and `read_only_home` need root, to be somebody else, and setpriv (util-linux).
"""

import argparse
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).parents[1]
SOMEBODY = "daemon"
"""not nobody: that number stands for users without one, whom the page does not trust"""
AVX2 = "+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+cx16,+sahf"


@dataclass(frozen=True)
class Setting:
    """What is otherwise than on the machine as it is.

    Args:
        about: in words
        environment: variables of the run
        shell: what a shell does before the run
        other_user: whether the run is somebody else's, who is not root
        read_only_home: whether nothing can be written in HOME
        busy_loops: how many processes compute beside it
    """

    about: str
    environment: dict[str, str] = field(default_factory=dict)
    shell: str = ""
    other_user: bool = False
    read_only_home: bool = False
    busy_loops: int = 0


SETTINGS = {
    "haswell": Setting("products of OpenBLAS for AVX2, of Intel's", {"OPENBLAS_CORETYPE": "Haswell"}),
    "skylakex": Setting("products of OpenBLAS for AVX-512", {"OPENBLAS_CORETYPE": "SkylakeX"}),
    "zen": Setting("products of OpenBLAS for AVX2, of AMD's", {"OPENBLAS_CORETYPE": "Zen"}),
    # A name alone would leave the compiler the features of this CPU.
    "avx2": Setting(
        "kernels compiled for AVX2, oneDNN held to it",
        {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": AVX2, "ONEDNN_MAX_CPU_ISA": "AVX2"},
    ),
    "signals": Setting("SIGINT and SIGPIPE are ignored, as in the background of a script", shell="trap '' INT PIPE; "),
    "umask": Setting("new files are for their owner alone", shell="umask 077; "),
    "locale": Setting("another time zone, no UTF-8", {"TZ": "Pacific/Chatham", "LC_ALL": "C"}),
    "user": Setting("somebody who is not root", other_user=True),
    "read_only_home": Setting("nothing can be written in HOME", other_user=True, read_only_home=True),
    "busy": Setting("two busy loops beside it", busy_loops=2),
}
RUNS = ("haswell+avx2+umask+signals", "skylakex+user+locale", "zen+read_only_home+busy")
"""together they have every setting"""
AS_MAKE_TEST = ("-n", "2", "--dist", "worksteal", "-m", "not lab")


@dataclass(frozen=True)
class Outcome:
    """Of a run of pytest.

    Args:
        code: its exit code
        summary: its last line, without the time
        failed: its lines on tests that failed
        wall_s, cpu_s: what it took; the CPU with all processes under it
    """

    code: int
    summary: str
    failed: tuple[str, ...]
    wall_s: float
    cpu_s: float


def run(settings: Sequence[Setting], pytest: Sequence[str], folder: Path) -> Outcome:
    """Run pytest in a copy of the project, in a folder of its own.

    Args:
        settings: which hold together
        pytest: its arguments
        folder: which is there and empty
    """
    project, home = folder / "project", folder / "home"
    copy_project(project)
    for name in ("home", "temporary", "cache"):
        (folder / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"HOME": str(home), "TMPDIR": str(folder / "temporary"), "PYTHONPATH": str(project)}
    # Else nothing that was compiled could be kept, and every process would compile its kernels again.
    environment["CSTOOL_CACHE_DIR"] = str(folder / "cache")
    for setting in settings:
        environment |= setting.environment
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *pytest]
    command = ["sh", "-c", "".join(setting.shell for setting in settings) + 'exec "$@"', "sh", *command]
    if any(setting.other_user for setting in settings) and os.getuid() == 0:
        command = [*_as_somebody(folder), *command]
    if any(setting.read_only_home for setting in settings):
        home.chmod(0o555)
    with _busy(sum(setting.busy_loops for setting in settings)), (folder / "log").open("w+", encoding="utf-8") as log:
        began = time.monotonic()
        process = subprocess.Popen(
            command, cwd=project, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.monotonic() - began
        log.seek(0)
        lines = log.read().splitlines() or [""]
    failed = tuple(line for line in lines if re.match(r"(FAILED|ERROR) ", line))
    # An argument such as `-qq` leaves none.
    counts = [line for line in lines if re.search(r"\d+ \w+.* in [\d.]+s", line)] or [f"exit code {process.returncode}"]
    summary = re.sub(r" in [\d.]+s.*", "", counts[-1]).strip("= ")
    return Outcome(process.returncode, summary, failed, wall_s, used.ru_utime + used.ru_stime)


def copy_project(folder: Path) -> None:
    """Copy the files that git knows, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, folder / name, follow_symlinks=False)


def _as_somebody(folder: Path) -> list[str]:
    """Give a folder to somebody who is not root, and return the beginning of a command of theirs."""
    other = pwd.getpwnam(SOMEBODY)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, other.pw_uid, other.pw_gid, follow_symlinks=False)
    command = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
    # By way of a shell, since what setpriv itself starts may still be found with root's rights.
    tried = subprocess.run(
        [*command, "sh", "-c", f"exec {shlex.quote(sys.executable)} -c ''"], cwd="/", capture_output=True, check=False
    )
    if tried.returncode:
        # A Python in a folder that is root's alone: let them read what root can, and write what they themselves can.
        command += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return command


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Have so many processes compute for nothing."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests in every setting that was asked for, and print a line for each."""
    about = "\n".join(f"  {name:14} {setting.about}" for name, setting in SETTINGS.items())
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog=f"settings:\n{about}\n\nwithout any: {', '.join(RUNS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", metavar="SETTING", help="what holds, with + between several")
    words = list(sys.argv[1:] if arguments is None else arguments)
    at = words.index("--") if "--" in words else len(words)
    runs, pytest = parser.parse_args(words[:at]).runs or RUNS, words[at + 1 :] or AS_MAKE_TEST
    chosen = {run: run.split("+") for run in runs}
    for name in (name for names in chosen.values() for name in names):
        if name not in SETTINGS:
            parser.error(f"must be one of {', '.join(SETTINGS)}, got {name}")
        if SETTINGS[name].other_user and not (os.getuid() == 0 and shutil.which("setpriv")):
            parser.error(f"{name} needs root and setpriv")
    code = 0
    for name, settings in chosen.items():
        folder = Path(tempfile.mkdtemp(prefix="any_machine."))
        folder.chmod(0o755)
        outcome = run([SETTINGS[setting] for setting in settings], pytest, folder)
        took = f"{outcome.wall_s:.0f} s, {outcome.cpu_s:.0f} s of CPU"
        print(f"{name}: {outcome.summary}; {took}", *outcome.failed, sep="\n  ", flush=True)
        if outcome.code:
            code = 1
            print(f"  {folder}/log has it all", flush=True)
        else:
            shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
