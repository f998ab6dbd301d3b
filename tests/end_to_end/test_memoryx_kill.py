"""`cstool run --memoryx file` that is killed goes on from its last commit, with the bits of one that was not.

`python -m tests.kill_memoryx` does it a thousand times, also in the middle of whatever the disk is asked for.
"""

import random
from pathlib import Path

import pytest

from tests.end_to_end.memoryx_files import IN_FILE, run_small, small_params
from tests.end_to_end.runs import digest, latest_bits
from tests.kill_memoryx import kill_command
from tests.memoryx_works import VARIANTS

STEPS = 150
LOOP = {"init__loop": {"max_steps": STEPS}, "init__checkpoint": {"steps": STEPS}}
EVERY_THIRD = {"init__memoryx": {**IN_FILE["init__memoryx"], "commit_steps": 3}}


@pytest.mark.parametrize(
    ("changes", "in_file"),
    [
        ({}, IN_FILE),
        (VARIANTS["rigl, not clipped"], EVERY_THIRD),
        (VARIANTS["mixture, not clipped"], EVERY_THIRD),
        (VARIANTS["sparse mixture"], EVERY_THIRD),
    ],
    ids=["clipped", "sparse", "mixture", "sparse mixture"],
)
def test_killed_five_times_it_ends_with_the_bits_of_the_straight_run(tmp_path, data, changes, in_file):
    small = {**LOOP, **changes, "init__model__num_hidden_layers": 1}
    straight = run_small(small_params(tmp_path / "straight", data, **small))
    kill_command(small_params(tmp_path / "killed", data, **small, **in_file), 5, random.Random(1))
    assert latest_bits(tmp_path / "killed" / "model_dir") == digest(Path(straight.checkpoints[-1]))
