"""The parts of a checkpoint, as people write them."""

import pytest

from cstool.model.params import ALL_STATES, parse_states, written_states


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


REFUSED = [("wheels", "wheels"), ("model,optimiser", "optimiser"), ("all,model", "all"), ("Model", "Model")]


@pytest.mark.parametrize(("written", "got"), [*REFUSED, ("", ""), ("model,", ""), ([], "")])
def test_anything_else_is_refused(written, got):
    rule = f"^must be all or some of model, optimizer, dataloader, got {got or 'an empty name'}$"
    with pytest.raises(ValueError, match=rule):
        parse_states(written)
