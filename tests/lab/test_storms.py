"""Short storms; `python -m tests.lab.memoryx_storms` and `python -m tests.lab.kill_ranks` have long ones."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "storm",
    [
        "memoryx_storms kill --times 6",
        "memoryx_storms fail --times 2",
        "memoryx_storms soak --steps 60",
        "kill_ranks --times 2",
    ],
)
def test_whatever_happens_the_bits_are_the_same(storm):
    name, *words = storm.split()
    done = subprocess.run(
        [sys.executable, "-m", f"tests.lab.{name}", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
