"""The section `model` of DPR: two encoders or one, of one width."""

from typing import Any

import pytest

ENCODER = {"hidden_size": 64, "num_heads": 4, "num_hidden_layers": 1, "max_position_embeddings": 64}
WIDE = {**ENCODER, "hidden_size": 128}
WHERE = "x.yaml:3: trainer.init.model "
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "must have q_encoder and ctx_encoder, or encoder alone"),
    ({"q_encoder": ENCODER}, "must have q_encoder and ctx_encoder, or encoder alone"),
    ({"q_encoder": ENCODER, "encoder": ENCODER}, "must have q_encoder and ctx_encoder, or encoder alone"),
    (
        {"q_encoder": ENCODER, "ctx_encoder": ENCODER, "use_biencoder": False},
        "must have encoder alone where use_biencoder is false",
    ),
    (
        {"q_encoder": ENCODER, "ctx_encoder": WIDE},
        "must have encoders of one hidden_size: of questions and contexts the product is taken, got 64 and 128",
    ),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_encoders_that_do_not_go_together_are_an_error(failure, keys, message):
    assert failure({"init.model": {"name": "dpr", **keys}}) == WHERE + message
