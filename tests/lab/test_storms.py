"""Short storms; `python -m tests.lab.memoryx_storms` has long ones."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("storm", ["kill --times 6", "fail --times 1", "soak --steps 36", "ranks --times 1 --ranks 3"])
def test_whatever_happens_the_bits_are_the_same(storm):
    command = [sys.executable, "-m", "tests.lab.memoryx_storms", *storm.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
