"""The numbers of a run: written by the simulation, read again."""

import json

import pytest

from cstool.csl.fabric.stats import read_stats, stats_document
from cstool.foundation.errors import CstoolError
from tests.contract.refusal import refusal
from tests.unit.csl.fabric.engines import simulate  # noqa: F401
from tests.unit.csl.fabric.waits import sender_and_receiver


def test_what_a_simulation_counted_is_read_again(tmp_path, simulate):  # noqa: F811
    simulation = simulate(sender_and_receiver(5))
    assert simulation.run_until() is False
    path = tmp_path / "sim_stats.json"
    path.write_text(json.dumps(stats_document(simulation)))
    stats = read_stats(path)
    assert (stats.arch, stats.width, stats.height, stats.cycles) == ("wse2", 2, 1, simulation.events.now)
    assert (stats.pes["sent"].tolist(), stats.pes["received"].tolist()) == ([[5, 0]], [[0, 5]])
    assert stats.links["EAST"].tolist() == [[5, 0]]
    assert stats.links["RAMP"].tolist() == [[0, 5]]
    assert stats.hottest() == (0, 0, "EAST", 5)
    assert stats.pes["tasks"].tolist() == [[1, 1]]
    assert 0 < stats.busy_share.min() <= stats.busy_share.max() <= 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "width": 2, "height": 1}'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "sim_stats.json"
    path.write_text(text)
    with refusal(CstoolError, f"{path}: must be a sim_stats.json as this version writes it, it is not"):
        read_stats(path)


def test_a_missing_file_is_an_error_that_says_how_to_get_one(tmp_path):
    path, hint = tmp_path / "none.json", "a run writes it at its end: `cstool fabric run DIR`"
    with refusal(CstoolError, f"{path}: cannot be read, got: No such file or directory", hint):
        read_stats(path)


def test_what_has_not_ended_counts_as_far_as_it_came(simulate):  # noqa: F811
    simulation = simulate(sender_and_receiver(5, 7))
    assert simulation.run_until() is False
    document = stats_document(simulation)
    assert document["pes"]["elements"] == [5, 5]
    assert document["pes"]["busy"][1] > 5
