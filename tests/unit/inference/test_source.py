"""Encoder-decoders that answer: what the decoder tells of a source is what it would be in training."""

from collections.abc import Sequence

import numpy as np
import pytest

from cstool.inference.sampling import Beams
from cstool.inference.source import parts_of, walk_from
from cstool.inference.walk import Walk, Walks
from cstool.model.graphs import SampleForm, build_graph
from cstool.model.ir import Graph
from tests.models import ENCODER_DECODERS, TARGETS, encoder_decoder_params
from tests.reference import models as reference
from tests.unit.inference.machines import logits_of, made, walking
from tests.unit.inference.test_beams import at_end, found, slow_search
from tests.unit.inference.test_walk import LOSS, losses

SOURCES = ([9, 7, 5, 2, 3, 0, 0, 4], [0, 1, 8, 7], [10, 5, 6, 10, 8])
START = [[0]]
NARROW = ("t5, gates, untied", "transformer")
"""those whose weights are bfloat16 in `make test`, too"""


def one_token(name: str) -> Graph:
    """An encoder-decoder as inference builds it: of one token on either side."""
    return build_graph(encoder_decoder_params(**{"layers": 2, **ENCODER_DECODERS[name]}), SampleForm(1, targets=1))


def lent(walk: Walk) -> Walks:
    return Walks(walk.graph, walk.stream, walk.team)


def check_loss(name: str, sources: Sequence[Sequence[int]], sequence: int, precision: str = "float32") -> None:
    """Compare the loss of random targets of one of some sources with that of the slow twin."""
    ids, labels = np.random.default_rng(5).integers(0, 11, (2, TARGETS)).astype(np.int32)
    with walking(one_token(name), precision=precision) as (walk, weights):
        target = walk_from(lent(walk), sources, 1, TARGETS)
        slots = [target.memory.open(source) for source in range(sequence + 1)]
        logits = logits_of(target, ids.tolist(), slot=slots[sequence])
    source = np.array([sources[sequence]])
    batch = {"input_ids": source, "attention_mask": np.ones_like(source), "decoder_input_ids": ids[None]}
    batch |= {"labels": labels[None], "mask": np.ones((1, TARGETS))}
    params = encoder_decoder_params(**{"layers": 2, **ENCODER_DECODERS[name]})
    whole = build_graph(params, SampleForm(source.shape[1], targets=TARGETS))
    expected = reference.loss(whole, weights, batch, 3, None, [1.0])
    assert losses(logits, labels).sum() == pytest.approx(expected, rel=LOSS[precision])


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "float32") for name in ENCODER_DECODERS),
        *((name, "bfloat16") for name in NARROW),
        *(pytest.param(name, "bfloat16", marks=pytest.mark.lab) for name in ENCODER_DECODERS if name not in NARROW),
    ],
)
def test_logits_give_the_loss_of_the_slow_twin(name, precision):
    check_loss(name, SOURCES, 1, precision)


@pytest.mark.parametrize("name", ["t5", "t5, alibi"])
def test_sources_may_be_much_longer_than_targets(name):
    check_loss(name, [list(range(10)) * 4, [3]], 0)
    check_loss(name, [list(range(10)) * 4, [3]], 1)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_tokens_depend_on_their_source_alone(name, tmp_path, monkeypatch):
    with walking(one_token(name), threads=2) as (walk, _):
        model, count = lent(walk), TARGETS - 1
        together = walk_from(model, SOURCES, 1, TARGETS)
        tokens = made(together, START * 3, count)
        assert made(together, START * 3, count, uses_cache=False) == tokens
        assert [made(walk_from(model, [source], 1, TARGETS), START, count)[0] for source in SOURCES] == tokens
        monkeypatch.setattr("cstool.inference.passes.PASS_ROWS", 9)
        by_turns = walk_from(model, SOURCES, 1, TARGETS)
        assert by_turns.passes == 2
        assert made(by_turns, START * 3, count) == tokens
    with walking(one_token(name), file=tmp_path / "weights") as (walk, _):
        assert made(walk_from(lent(walk), SOURCES, 1, TARGETS), START * 3, count) == tokens


@pytest.mark.parametrize("name", ["t5", "transformer"])
def test_beams_of_a_source_share_what_the_encoder_made(name):
    beams = Beams(3, 0.5)
    with walking(one_token(name)) as (walk, _):
        model = lent(walk)
        together = walk_from(model, SOURCES, beams.count, TARGETS)
        best = found(together, START * 3, TARGETS - 1, beams, finish=at_end)
        assert best == found(together, START * 3, TARGETS - 1, beams, finish=at_end, uses_cache=False)
        for k, source in enumerate(SOURCES):
            (alone,) = found(walk_from(model, [source], beams.count, TARGETS), START, TARGETS - 1, beams, finish=at_end)
            assert alone[1:] == best[k][1:]
            tokens, score = slow_search(walk_from(model, [source], 1, TARGETS), START[0], TARGETS - 1, beams, at_end)
            assert (best[k].tokens, best[k].score) == (tokens, pytest.approx(score, rel=1e-12))


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_each_part_has_every_op_once_and_the_second_reads_keys_and_values_alone(name):
    graph = one_token(name)
    source, target = parts_of(graph)
    assert sorted(op.name for part in (source, target) for op in part.ops) == sorted(op.name for op in graph.ops)
    of_source = {output for op in source.ops for output in op.outputs}
    shared = [tensor.name for tensor in target.inputs if tensor.name in of_source]
    layers = {name.split("layers.")[1].split(".")[0] for name in shared}
    assert len(shared) == 2 * len(layers)
    assert all("multihead_attn.proj_" in name for name in shared)
    assert {weight for part in (source, target) for weight in part.weights} == set(graph.weights)
