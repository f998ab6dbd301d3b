"""What becomes of signals in a process that is a rank."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from cstool.foundation.launched import STOPS, end_by_signals
from cstool.training.machine.ranks.launching import _stop
from cstool.training.machine.ranks.signals import collected_signals

ABORTING = """
import ctypes, threading, time
from cstool.training.machine.ranks.signals import delay_aborts
delay_aborts()
threading.Thread(target=ctypes.CDLL(None).abort).start()
time.sleep(0.5)
print("still here", flush=True)
"""


def test_who_aborts_leaves_others_the_time_to_say_why():
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", ABORTING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGABRT, "still here\n")
    assert time.monotonic() - began >= signal.SIGABRT - 1


@pytest.fixture
def handlers() -> Iterator[None]:
    """The handlers of a process that has just begun, and at the end those of the tests again."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("by_srun", [False, True])
@pytest.mark.usefixtures("handlers")
def test_before_a_run_begins_signals_interrupt_a_rank_and_sigusr1_is_left_to_mpirun(monkeypatch, by_srun):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS" if by_srun else "PMI_SIZE", "2")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_by_signals()
    found = {number.name: signal.getsignal(number) for number in STOPS}
    assert found == {
        **dict.fromkeys(["SIGINT", "SIGTERM"], signal.default_int_handler),
        "SIGHUP": signal.SIG_IGN,  # as under nohup
        "SIGUSR1": signal.default_int_handler if by_srun else signal.SIG_IGN,
    }


@pytest.mark.usefixtures("handlers")
def test_the_launcher_collects_all_that_stop_a_run():
    with collected_signals() as came:
        for number in STOPS:
            signal.raise_signal(number)
    assert came == [*STOPS]


def test_what_an_exit_code_says_of_signals():
    assert [_stop(code) for code in (143, 129, 138, 130, 137, 2)] == [
        "SIGTERM",
        "SIGHUP",
        "SIGUSR1",
        "a signal",
        None,
        None,
    ]
