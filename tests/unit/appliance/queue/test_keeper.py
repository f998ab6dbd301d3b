"""A keeper: one attempt, begun once, watched, and its end recorded, whatever happens to either."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cstool.appliance.queue import attempt as attempts
from cstool.appliance.queue import keeper, records, watched_run
from cstool.appliance.queue.attempt import Attempt
from cstool.appliance.queue.groups import Groups
from cstool.appliance.queue.job import CANCEL, CANCEL_NOW, COMPILE, PREEMPT
from tests.patience import PATIENCE_S, wait_until
from tests.unit.appliance.queue.keepers import IGNORES, STOPS_WELL, KeptJob, is_there, python

MIB = 2**20
TAKES = "import time\nkept = bytearray({}) ; kept[::4096] = b'x' * len(kept[::4096])\nprint('has it', flush=True)\n"
"""takes some memory, all of its pages"""
TELLS = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM", flush=True))
print("ready", flush=True)
while True: time.sleep(0.01)
"""
COUNTS_LOOKS = """
import cstool.appliance.queue.watching as watching
real = watching.Tree.scan
def scan(self):
    open({!r}, "a").write("x")
    return real(self)
watching.Tree.scan = scan
"""
OFTEN = "import cstool.appliance.queue.watched_run as watched_run; watched_run.DISK_TICK_S = 0.01"
FULL = "import cstool.appliance.queue.records as records\nreal, left = records.write_end, [{}]\n"
FULL += "def write_end(*words):\n    left[0] -= 1\n    if left[0]: raise OSError(28, 'full')\n    real(*words)\n"
FULL += "records.write_end = write_end\nimport time; time.sleep = lambda seconds: None"
"""the end cannot be written so often"""


def ready(job: KeptJob, script: str = STOPS_WELL, before: str | None = None, **options) -> subprocess.Popen[bytes]:
    """Start a script, with what `start` cannot say where something runs before, and wait until it is ready."""
    kept = job.start(script, **options) if before is None else job.start_by_hand(script, before, **options)
    job.wait_for("ready")
    return kept


def wait_for_looks(job: KeptJob) -> None:
    looks = len(job.text("looks")) + 1
    wait_until(lambda: len(job.text("looks")) > looks, "it does not look")


def test_it_records_how_the_run_ended_and_how_much_it_took(job):
    end = job.run(TAKES.format(20 * MIB) + "time.sleep(0.05); raise SystemExit(7)")
    assert (end.exit_code, end.signal, end.why, end.asked) == (7, None, "", "")
    assert 20 * MIB < end.peak_bytes < 60 * MIB
    assert end.seconds >= 0.05
    found = job.look()
    assert found.boot_id == records.this_boot_id() != ""
    assert found.began_at is not None
    assert found.began_at <= end.at


def test_the_run_has_its_cores_its_variables_and_nothing_else(job, monkeypatch):
    monkeypatch.setenv("SECRET", "of the supervisor")
    core = max(os.sched_getaffinity(0))
    script = "import os, sys; print(os.sched_getaffinity(0), os.getcwd(), os.nice(0), os.getpid() == os.getsid(0))"
    script += "; print(sys.stdin.read() == '', sorted(os.environ.items())); print('to err', file=sys.stderr)"
    end = job.run(script, cpus=[core], memory_bytes=123456789, order={"environment": {"A": "ä", "PATH": "/p"}})
    assert end.exit_code == 0
    first, second = job.text().splitlines()
    assert first == f"{{{core}}} / {os.nice(0)} True"
    found = dict(eval(second.removeprefix("True ")))
    stated = {"A": "ä", "PATH": "/p", "CSTOOL_MEMORY": "123456789"}
    assert {key: found.pop(key) for key in stated} == stated
    assert found.keys() - {"LC_CTYPE"} == {"USER", "LOGNAME", "HOME", "SHELL", "LANG"}
    assert job.text("err") == "to err\n"


def test_a_compile_gets_out_of_the_way(job):
    assert job.run("import os; print(os.nice(0))", stage=COMPILE).exit_code == 0
    assert (job.text("compile"), job.text()) == (f"{min(os.nice(0) + 10, 19)}\n", "")


def test_where_the_working_folder_is_gone_it_starts_in_its_own(job, tmp_path):
    assert job.run("import os; print(os.getcwd())", order={"working_dir": tmp_path / "gone"}).exit_code == 0
    assert job.text() == f"{job.folder.path}\n"


@pytest.mark.parametrize(
    ("script", "cpus", "said"),
    [
        (["/not/there"], [], "/not/there: must be a program that can be started, got: No such file or directory"),
        ("", [1000], "cores [1000]: must be there for this job, got: Invalid argument"),
    ],
)
def test_what_is_not_there_is_for_the_user_to_mend(job, script, cpus, said):
    assert job.run(script, cpus=cpus).exit_code == 2
    assert job.text("err") == f"error: {said}\n"


def test_without_an_order_it_touches_nothing(job):
    words = [sys.executable, "-m", "cstool.appliance.queue.keeper", str(job.folder.path), "execute", "1"]
    done = subprocess.run(words, input=b"", capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (keeper.NOT_BEGUN, b"")
    assert done.stderr == b"must get an order, got: JSONDecodeError('Expecting value: line 1 column 1 (char 0)')\n"
    assert os.listdir(job.folder.path) == []
    assert job.look().state == attempts.ABSENT


def test_it_is_light():
    program = "import sys; sys.path.append(sys.argv[1]); import cstool.appliance.queue.keeper; print(*sys.modules)"
    root = str(Path(keeper.__file__).parents[3])
    modules = {*subprocess.run([*python(program), root], capture_output=True, text=True, check=True).stdout.split()}
    parts = "keeper records run_start watched_run watching"
    assert {name for name in modules if name.startswith("cstool.appliance.queue.")} == {
        f"cstool.appliance.queue.{p}" for p in parts.split()
    }
    assert not modules & {
        "subprocess",
        "dataclasses",
        "logging",
        "pathlib",
        "sqlite3",
        "socket",
        "cstool.foundation.errors",
    }


def test_of_several_keepers_one_begins_the_attempt(job):
    script = f"open({str(job.folder.path / 'runs')!r}, 'a').write('x')\n{STOPS_WELL}"
    keepers = [job.start(script) for _ in range(4)]
    job.wait_for("ready")
    wait_until(lambda: sum(one.poll() is None for one in keepers) == 1, "more than one keeper stays")
    assert sorted(one.poll() or 0 for one in keepers) == [0, *[attempts.HELD] * 3]
    assert {one.trouble() for one in keepers} == {None}
    job.ask(CANCEL)
    wait_until(lambda: all(one.poll() is not None for one in keepers), "keepers stay")
    assert job.look().state == attempts.ENDED
    before = {path: path.stat().st_mtime_ns for path in job.folder.path.rglob("*")}
    assert job.start(script).wait(PATIENCE_S) == attempts.HELD
    assert {path: path.stat().st_mtime_ns for path in job.folder.path.rglob("*")} == before
    assert job.text("runs") == "x"


def test_no_attempt_begins_while_another_one_of_the_job_lives(job):
    ready(job)
    assert job.start("", attempt=2).wait(PATIENCE_S) == attempts.HELD
    assert (job.look(2).state, job.look(1).state) == (attempts.BEGINNING, attempts.ALIVE)
    assert not Attempt(job.folder, "execute", 2).path.exists()


def test_without_its_keeper_a_run_finishes_its_step_and_is_found_dead(job, tmp_path):
    goes_on = tmp_path / "goes_on"
    script = f"""
import os, signal, sys, time
def finish(*_):
    print("SIGTERM", flush=True)
    while not os.path.exists({str(goes_on)!r}): time.sleep(0.01)
    sys.exit(130)
signal.signal(signal.SIGTERM, finish)
print("ready", flush=True)
while True: time.sleep(0.01)
"""
    killed = ready(job, script)
    run = job.run_process()
    killed.kill()
    killed.wait()
    job.wait_for("SIGTERM")
    assert job.look().state == attempts.ALIVE
    assert job.start("", attempt=2).wait(PATIENCE_S) == attempts.HELD
    goes_on.touch()
    wait_until(lambda: not is_there(run), "it does not stop")
    wait_until(lambda: job.look().state == attempts.DEAD, "it is not found dead")
    assert job.look().boot_id == records.this_boot_id()
    assert job.run("print('again')", attempt=2).exit_code == 0


def test_what_a_run_leaves_behind_is_ended(job):
    left = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(os.getpid(), flush=True)"
    command = f"[{sys.executable!r}, '-S', '-c', '{left}; time.sleep(600)']"
    script = f"import os, subprocess\nif os.fork() == 0: os.setsid(), subprocess.Popen({command}).wait(0.3)"
    job.start_by_hand(script, "import cstool.appliance.queue.watched_run as watched_run; watched_run._LEFT_S = 0.2")
    assert job.end().exit_code == 0
    assert not is_there(int(job.text()))


@pytest.mark.parametrize("what", [PREEMPT, CANCEL, "a signal to its keeper"])
def test_asked_to_stop_it_does_so_after_its_step(job, what):
    kept = ready(job)
    kept.send_signal(signal.SIGTERM) if what not in (PREEMPT, CANCEL) else job.ask(what)
    end = job.end()
    asked = what if what in (PREEMPT, CANCEL) else ""
    assert (end.exit_code, end.signal, end.why, end.asked) == (130, None, "", asked)
    assert job.text() == "ready\nSIGTERM\n"


def test_it_is_told_once_and_what_it_was_asked_for_becomes_no_less(job):
    assert [*watched_run._REQUESTS] == ["", PREEMPT, CANCEL, CANCEL_NOW]
    ready(job, TELLS, COUNTS_LOOKS.format(str(job.folder.path / "looks")))
    place = records.open_folder(Attempt(job.folder, "execute", 1).path)
    for what in (PREEMPT, CANCEL, CANCEL, PREEMPT, "nonsense", ["cancel_now"]):
        records.write_record(place, records.STOP, {"asked": what})
        wait_for_looks(job)
    os.close(place)
    os.kill(job.run_process(), signal.SIGKILL)
    end = job.end()
    assert (end.exit_code, end.signal, end.why, end.asked) == (None, signal.SIGKILL, "", CANCEL)
    assert job.text() == "ready\nSIGTERM\n"


def test_asked_for_more_it_is_killed(job):
    ready(job, TELLS)
    job.ask(CANCEL)
    job.wait_for("SIGTERM")
    job.ask(CANCEL_NOW)
    end = job.end()
    assert (end.exit_code, end.signal, end.asked) == (None, signal.SIGKILL, CANCEL_NOW)


FORKS = "import os, time\nfor _ in range(3):\n    if os.fork() == 0: exec({!r})\ntime.sleep(600)"


@pytest.mark.parametrize(
    ("script", "budget"),
    [
        (TAKES.format(200 * MIB) + "time.sleep(600)", 100 * MIB),
        (FORKS.format(TAKES.format(60 * MIB) + "time.sleep(600)"), 120 * MIB),
    ],
)
def test_more_memory_than_its_budget_in_one_process_or_in_all_ends_it_alone(job, script, budget):
    job.start(script, memory_bytes=budget)
    end = job.end()
    assert (end.exit_code, end.signal, end.why) == (None, signal.SIGKILL, attempts.MEMORY)
    assert end.peak_bytes > budget
    assert (job.look().memory_guard, job.holders()) == ("watch", [])


def test_what_its_processes_share_counts_once(job):
    script = TAKES.format(60 * MIB) + (
        "import os\nparent = os.getpid()\nfor _ in range(3):\n    if os.fork() == 0:\n"
        "        while os.getppid() == parent: time.sleep(0.01)\n        os._exit(0)\ntime.sleep(0.3)"
    )
    end = job.run(script, memory_bytes=120 * MIB)
    assert (end.exit_code, end.why) == (0, "")
    assert 60 * MIB < end.peak_bytes < 100 * MIB


def test_more_on_the_disk_than_its_budget_stops_it(job):
    job.model_dir.mkdir()
    (job.model_dir / "before").write_bytes(bytes(3 * MIB))
    grows = f"open({str(job.model_dir / 'grown')!r}, 'wb').write(bytes({2 * MIB}))\n"
    watched = {"model_dir": str(job.model_dir), "disk_bytes": 3 * MIB}
    job.start_by_hand(f"{grows}import time; time.sleep(0.1)", OFTEN, **watched)
    assert job.end().why == ""
    job.start_by_hand(
        STOPS_WELL.replace("while", grows.replace("grown", "more") + "while"), OFTEN, attempt=2, **watched
    )
    end = job.end(2)
    assert (end.exit_code, end.why) == (130, attempts.DISK)  # together with what the first attempt wrote


def test_a_run_that_does_not_stop_for_its_budget_is_killed(job):
    job.model_dir.mkdir()
    grows = f"open({str(job.model_dir / 'grown')!r}, 'wb').write(bytes({MIB}))\n"
    script = IGNORES.replace("while", f"{grows}while")  # grown once it ignores
    job.start_by_hand(script, OFTEN, model_dir=str(job.model_dir), disk_bytes=1000, grace_s=0.05)
    end = job.end()
    assert (end.signal, end.why) == (signal.SIGKILL, attempts.DISK)


def test_its_time_is_over_whatever_the_clock_says(job):
    backwards = "import time; now = iter(range(2_000_000_000, 0, -1000)); time.time = lambda: float(next(now))"
    job.start_by_hand(STOPS_WELL, backwards, limit_s=0.2)
    end = job.end()
    assert (end.exit_code, end.signal) in ((130, None), (None, signal.SIGTERM))  # as far as it had come
    assert end.why == attempts.TIME
    assert end.seconds >= 0.2
    assert end.at < (job.look().began_at or 0)


@pytest.fixture
def clock(job):
    """What has the clock of a keeper jump once a file is there, and its looks counted; and the file."""
    over = job.folder.path / "over"
    jumps = f"import os, time; real_s = time.monotonic; over = {str(over)!r}\n"
    jumps += "time.monotonic = lambda: real_s() + 1000.0 * os.path.exists(over)\n"
    return jumps + COUNTS_LOOKS.format(str(job.folder.path / "looks")), over


def test_time_that_ends_while_it_stops_is_no_reason(job, clock, tmp_path):
    goes_on = tmp_path / "goes_on"
    script = TELLS.replace("while True:", f"import os\nwhile not os.path.exists({str(goes_on)!r}):")
    ready(job, script, clock[0], limit_s=500.0)
    job.ask(PREEMPT)
    job.wait_for("SIGTERM")
    clock[1].touch()
    wait_for_looks(job)
    goes_on.touch()
    end = job.end()
    assert (end.exit_code, end.asked, end.why) == (0, PREEMPT, "")
    assert end.seconds > 500.0


def test_time_that_ends_while_it_stops_is_a_reason_when_it_goes_on(job, clock):
    ready(job, IGNORES, clock[0], limit_s=500.0, grace_s=0.05)
    job.ask(PREEMPT)
    wait_for_looks(job)
    clock[1].touch()
    end = job.end()
    assert (end.signal, end.asked, end.why) == (signal.SIGKILL, PREEMPT, attempts.TIME)


def test_the_group_of_a_job_says_that_its_memory_was_too_little(job, tmp_path):
    events = tmp_path / "group" / "memory.events"
    events.parent.mkdir()
    events.write_text("low 0\noom 0\noom_kill 0\n")
    ready(job, IGNORES, "", group=str(events.parent), memory_bytes=1)
    assert job.look().memory_guard == "cgroup"
    events.write_text("low 0\noom 1\noom_kill 1\n")
    end = job.end()
    assert (end.signal, end.why) == (signal.SIGKILL, attempts.MEMORY)


def test_where_groups_can_be_made_the_keeper_and_its_run_are_in_one_and_the_kernel_guards(job, tmp_path):
    stale = tmp_path / "cstool-job-stale"
    stale.mkdir()
    kept = job.start(TAKES.format(30 * MIB), groups=Groups(tmp_path), cpus=[0], memory_bytes=9 * MIB)
    assert job.end().why == ""  # the files of this group do nothing
    assert job.look().memory_guard == "cgroup"
    group = tmp_path / "cstool-job-wsjob-one-execute-1"
    assert (group / "cgroup.procs").read_text() == f"{kept.pid}\n"
    assert (group / "memory.max").read_text() == f"{9 * MIB}\n"
    assert not stale.exists()


def test_where_a_group_cannot_be_made_the_keeper_guards(job, tmp_path):
    job.start(TAKES.format(30 * MIB) + "time.sleep(600)", groups=Groups(tmp_path / "none"), memory_bytes=9 * MIB)
    assert job.end().why == attempts.MEMORY
    assert job.look().memory_guard == "watch"


def test_logs_begin_anew_and_the_text_before_is_kept(job):
    script = "import time\nfor n in range(40): print('x' * 99, n, flush=True); time.sleep(0.002)"
    job.start_by_hand(script, log_limit_bytes=1000)
    assert job.end().exit_code == 0
    kept = job.text("out.1") + job.text("out")
    assert 1000 < len(job.text("out.1")) < 4000
    assert len(job.text()) <= 1000
    assert kept.endswith(f"{'x' * 99} 39\n")
    numbers = [int(line.split()[1]) for line in kept.splitlines()]
    assert numbers == [*range(numbers[0], 40)]


@pytest.fixture
def job_on_a_disk(make_disk):
    disk = make_disk(256 * 1024)
    with KeptJob(disk.place / "wsjob-full") as job:
        yield job, disk


def test_on_a_full_disk_the_end_is_recorded_all_the_same(job_on_a_disk):
    job, disk = job_on_a_disk
    ready(job)
    disk.fill()
    os.kill(job.run_process(), signal.SIGTERM)
    end = job.end()
    assert (end.exit_code, end.why) == (130, attempts.FULL)


def test_on_a_full_disk_an_attempt_does_not_begin_and_nothing_is_left_of_it(job_on_a_disk):
    job, disk = job_on_a_disk
    disk.fill()
    kept = job.start("print('ran')")
    assert (kept.wait(PATIENCE_S), kept.trouble()) == (keeper.NOT_BEGUN, "No space left on device")
    assert job.look().state == attempts.ABSENT
    (disk.place / "filler").unlink()
    assert job.run("print('ran')").exit_code == 0


def test_an_end_that_cannot_be_written_is_tried_again_until_it_leaves_a_dead_attempt(job):
    job.start_by_hand("", FULL.format(3))
    assert job.end().exit_code == 0
    assert job.start_by_hand("", FULL.format(0), attempt=2, record_s=0.0).wait(PATIENCE_S) == keeper.NOT_RECORDED
    assert job.look(2).state == attempts.DEAD


def test_trouble_while_it_looks_does_not_end_the_keeper(job):
    enough = job.folder.path / "enough"
    fails = (
        f"import os\n    if not os.path.exists({str(enough)!r}): raise OSError(24, 'Too many open files')\n    return"
    )
    ready(job, STOPS_WELL, COUNTS_LOOKS.format("/dev/null").replace("return", fails))
    job.ask(CANCEL)
    job.wait_for("SIGTERM")
    enough.touch()
    assert job.end().exit_code == 130


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_of_somebody_else_is_refused(job):
    os.chown(job.folder.path, 65534, 65534)
    kept = job.start("print('ran')")
    assert kept.wait(PATIENCE_S) == keeper.NOT_BEGUN
    assert kept.trouble() == "a job runs as the owner of its folder"
