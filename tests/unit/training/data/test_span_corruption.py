"""Spans that are taken out of texts."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.random_keys import key_of, philox4x32
from cstool.training.data.span_corruption import SpanCorruption, noise_of, span_lengths
from tests.reference.pair_cases import PLACE

VOCAB = 1000


def slow_twin(seed: int, tokens: list[int], sample: int, epoch: int) -> tuple[list[int], list[int]]:
    """Take spans out of one sample, token by token; return its inputs and targets."""

    def draw(place: int) -> list[int]:
        counter = np.array([[sample % 2**32, sample // 2**32, epoch, place]], np.uint32)
        return philox4x32(counter, key_of(seed, "corrupted spans"))[0].tolist()

    def runs(items: int, count: int, word: int) -> list[int]:
        cuts = sorted(sorted(range(items - 1), key=lambda place: draw(place)[word])[: count - 1])
        edges = [0, *(cut + 1 for cut in cuts), items]
        return [stop - start for start, stop in zip(edges, edges[1:], strict=False)]

    if len(tokens) == 1:
        return tokens, [VOCAB - 1]
    noise = min(max(round(0.15 * len(tokens)), 1), len(tokens) - 1)
    spans = max(round(noise / 3), 1)
    inputs, targets, rest = [], [], list(tokens)
    for number, (kept, taken) in enumerate(
        zip(runs(len(tokens) - noise, spans, 0), runs(noise, spans, 1), strict=True), 1
    ):
        sentinel = VOCAB - number
        inputs += [*rest[:kept], sentinel]
        targets += [sentinel, *rest[kept : kept + taken]]
        rest = rest[kept + taken :]
    return inputs, targets


def corrupted(seed: int, texts: list[list[int]], samples: list[int], epoch: int = 0) -> list[tuple[list, list]]:
    how = SpanCorruption(VOCAB, seed)
    masks = how.noise_masks(np.array([len(text) for text in texts]), np.array(samples, np.int64), epoch)
    pairs = (how.corrupted(np.array(text), mask[: len(text)]) for text, mask in zip(texts, masks, strict=True))
    return [(source.tolist(), target.tolist()) for source, target in pairs]


TEXTS = st.lists(st.integers(1, 90), min_size=1, max_size=4)


@given(TEXTS, st.integers(0, 2**40), st.integers(0, 9), st.integers(0, 3))
def test_spans_are_those_of_the_slow_twin(lengths, first, seed, epoch):
    texts = [[100 + (place * 7 + length) % 800 for place in range(length)] for length in lengths]
    samples = [first + number for number in range(len(texts))]
    expected = [slow_twin(seed, text, sample, epoch) for text, sample in zip(texts, samples, strict=True)]
    assert corrupted(seed, texts, samples, epoch) == expected


def test_who_reads_with_whom_changes_nothing():
    texts = [list(range(length)) for length in (60, 9, 33, 90)]
    together = corrupted(1, texts, [3, 2**33, 8, 0])
    assert together == [corrupted(1, [text], [sample])[0] for text, sample in zip(texts, [3, 2**33, 8, 0], strict=True)]
    assert together != corrupted(1, texts, [3, 2**33, 8, 0], epoch=1)
    assert together != corrupted(2, texts, [3, 2**33, 8, 0])


def test_every_way_to_cut_is_as_likely_as_any_other():
    how = SpanCorruption(VOCAB, 1)
    count = 3000
    masks = how.noise_masks(np.full(count, 30), np.arange(count), 0)  # 4 tokens of noise in 1 span: one way
    assert len({tuple(mask) for mask in masks.tolist()}) == 1
    masks = how.noise_masks(np.full(count, 34), np.arange(count), 0)  # 5 in 2 spans: 4 ways, among 28
    ways, counts = np.unique(masks, axis=0, return_counts=True)
    assert len(ways) == 4 * 28
    expected = count / len(ways)
    assert ((counts - expected) ** 2 / expected).sum() < 111 + 5 * np.sqrt(2 * 111)  # chi squared, five sigma


def test_lengths_are_those_of_the_vendor():
    recorded = json.loads(PLACE.read_text())["lengths"]
    found = {asked: [lengths.raw, lengths.targets] for asked in recorded if (lengths := span_lengths(int(asked)))}
    assert found == recorded


@given(st.integers(4, 2000))
def test_no_text_outgrows_its_inputs_and_targets(sequence_length):
    lengths = span_lengths(sequence_length)
    for length in range(2, lengths.raw + 1):
        noise, spans = noise_of(length)
        assert 1 <= spans <= noise < length
        assert spans <= length - noise
        assert length - noise + spans <= sequence_length
        assert noise + spans + 1 <= lengths.targets
        assert spans <= lengths.spans


@pytest.mark.parametrize(("length", "expected"), [(2, (1, 1)), (10, (2, 1)), (34, (5, 2)), (568, (85, 28))])
def test_fifteen_of_a_hundred_are_noise(length, expected):
    assert noise_of(length) == expected
