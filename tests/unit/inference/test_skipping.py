"""Zeros of activations that are skipped, against products with all of them: the same tokens; and their number."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cstool.inference.sampling import Sampling
from cstool.inference.skipping import ZeroSkipping
from cstool.inference.walk import Walk, Walks
from tests.models import FAMILIES
from tests.unit.inference.machines import PROMPTS, decoded, logits_of, one_token, walking

KEYS: dict[str, dict[str, Any]] = {
    "relu": {"nonlinearity": "relu"},
    "squared_relu": {"nonlinearity": "squared_relu"},
    "reglu": {**FAMILIES["llama"], "nonlinearity": "reglu"},
}


@contextmanager
def both(**settings: Any) -> Iterator[tuple[Walk, Walk]]:
    """A walk that skips zeros, and one that does not."""
    name, precision, threads = settings["name"], settings.get("precision", "float32"), settings.get("threads", 1)
    graph = one_token(layers=2, sequence=16, filter_size=32, **KEYS[name])
    with walking(graph, sequences=3, capacity=16, precision=precision, threads=threads) as (walk, _):
        twin = Walks(graph, walk.stream, walk.team, zeros=ZeroSkipping(is_on=False)).walk(3, 16)
        yield walk, twin


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", KEYS)
def test_logits_are_the_same_and_zeros_are_counted(name, precision):
    with both(name=name, precision=precision) as (walk, twin):
        for tokens in ([3], [1, 4, 1], [2, 7, 1, 8, 2, 8, 1, 8, 2]):
            np.testing.assert_array_equal(logits_of(walk, tokens), logits_of(twin, tokens))
        assert walk.zeros.share is not None
        assert 0.1 < walk.zeros.share < 0.9
        assert twin.zeros.share is None


@pytest.mark.parametrize("name", KEYS)
def test_a_team_skips_the_same_zeros(name, monkeypatch):
    monkeypatch.setattr("cstool.inference.team.WORTH_SHARING", 1)
    with both(name=name, threads=2) as (walk, twin):
        assert decoded(walk, PROMPTS, 5, Sampling(1.0)) == decoded(twin, PROMPTS, 5, Sampling(1.0))
        assert walk.zeros.share is not None


def test_functions_without_zeros_are_left_alone():
    with walking(one_token(layers=1, sequence=16), capacity=16) as (walk, _):
        logits_of(walk, [3])
        assert walk.zeros.share is None


@pytest.mark.parametrize("precision", ["int8", "float32"])
def test_weights_that_cannot_be_packed_are_left_alone(precision):
    # 24 is no multiple of 16; weights of 8 bits are summed up in another way.
    width = 24 if precision == "float32" else 32
    graph = one_token(layers=1, sequence=16, filter_size=width, nonlinearity="relu")
    with walking(graph, capacity=16, precision=precision) as (walk, _):
        logits_of(walk, [3])
        assert walk.zeros.share is None
