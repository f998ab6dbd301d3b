"""How a supervisor is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cstool.appliance.queue.supervising import Ending

SIGNALS_IN_HANDLERS = """
import signal, sys
from cstool.appliance.queue.supervising import Ending

ending, left = Ending(), 30

def trace(frame, event, argument):
    global left
    if left:
        left -= 1
        signal.raise_signal(signal.SIGTERM)
    return trace

signal.signal(signal.SIGTERM, ending.tell)
sys.settrace(trace)
signal.raise_signal(signal.SIGTERM)
ending.wait(0.01)
sys.settrace(None)
print(ending.is_told, left < 30)
"""


def test_signals_that_come_while_others_are_taken():
    """`cstool appliance stop` tells the supervisor and its guard, which tells it too: two signals at once."""
    found = subprocess.run([sys.executable, "-c", SIGNALS_IN_HANDLERS], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.stderr) == ("True True\n", "")


@pytest.fixture
def ending():
    made = Ending()
    before = signal.signal(signal.SIGTERM, made.tell)
    yield made
    signal.signal(signal.SIGTERM, before)


def test_a_signal_ends_a_wait_and_those_after_it(ending):
    ending.wait(0.001)
    assert not ending.is_told
    threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGTERM)).start()
    began = time.monotonic()
    for _ in range(2):
        ending.wait(60)
        assert ending.is_told
    assert time.monotonic() - began < 60
