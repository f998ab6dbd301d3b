"""A mixture whose batches leave experts alone: the same bits in memory and in a file, on one rank and on several."""

from pathlib import Path

import pytest

from tests.end_to_end.memoryx_files import IN_FILE, run_small, small_params
from tests.end_to_end.runs import digest
from tests.memoryx_works import EXPERTS
from tests.thread_ranks import run_ranks

RARELY = {"init__memoryx": {**IN_FILE["init__memoryx"], "commit_steps": 4}}
LOOP = {"init__loop": {"max_steps": 12}, "init__checkpoint": {"steps": 12}}


@pytest.mark.parametrize("norm", [{}, {"init__precision": {}}], ids=["clipped", "not clipped"])
def test_bits_are_the_same_in_a_file_and_on_several_ranks(tmp_path, data, norm):
    changes = {**LOOP, **EXPERTS, **norm}
    expected = run_small(small_params(tmp_path / "ram", data, **changes))
    filed = run_small(small_params(tmp_path / "file", data, **changes, **RARELY))
    found = [filed, *(run_ranks(small_params(tmp_path / f"{n}", data, **changes, **RARELY), n) for n in (2, 3))]
    for result in found:
        assert result.losses == expected.losses
        assert digest(Path(result.checkpoints[-1])) == digest(Path(expected.checkpoints[-1]))
    # Updates that panels were owed were made together; on several ranks every panel is asked for in every step.
    assert filed.memoryx.idle_panels > filed.memoryx.idle_visits > 0
    told = f"{filed.memoryx.idle_panels:,} panels of experts alone that no token of a step chose"
    assert told in filed.memoryx.line()
