"""The parts of a checkpoint, as people write them."""

import pytest

from cstool.params import ALL_STATES, parse_states, written_states


@pytest.mark.parametrize(
    ("written", "states", "again"),
    [
        ("all", ALL_STATES, "all"),
        ("ALL", ALL_STATES, "all"),
        (["all"], ALL_STATES, "all"),
        ("model", {"model"}, "model"),
        (" optimizer , model", {"model", "optimizer"}, "model,optimizer"),
        (["dataloader"], {"dataloader"}, "dataloader"),
        ("dataloader,optimizer,model", ALL_STATES, "all"),
    ],
)
def test_parts_are_named_in_any_order_and_written_in_one(written, states, again):
    found = parse_states(written)
    assert found == states
    assert written_states(found) == again
    assert parse_states(again) == found


@pytest.mark.parametrize(
    ("written", "got"),
    [
        ("wheels", "wheels"),
        ("model,optimiser", "optimiser"),
        ("", "an empty name"),
        ("model,", "an empty name"),
        ([], "an empty name"),
        ("all,model", "all"),
        ("Model", "Model"),
    ],
)
def test_anything_else_is_refused(written, got):
    with pytest.raises(ValueError, match=f"^must be all or some of model, optimizer, dataloader, got {got}$"):
        parse_states(written)
