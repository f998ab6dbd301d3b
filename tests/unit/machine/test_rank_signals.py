"""What becomes of signals in a process that is a rank."""

import signal
import subprocess
import sys
import time

ABORTING = """
import ctypes, threading, time
from cstool.machine.ranks.signals import delay_aborts
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
