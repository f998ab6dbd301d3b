"""Which tokens make a sample, and in which order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.data import samples as samples_module
from cstool.training.data.samples import SampleFile, Samples, WriteSamples, shuffled

documents = st.lists(st.integers(0, 12), min_size=1, max_size=8)


class Kept:
    def __init__(self, lengths):
        self.document_tokens = np.array(lengths, np.int64)
        self.tokens = np.arange(1, self.document_tokens.sum() + 1)

    def read(self, start, stop):
        return self.tokens[start:stop]


def made(stream, has_ends, length, packing, seed=None):
    """Return all samples (n, 3, S) as lists."""
    table = Samples(stream.document_tokens, has_ends=has_ends, sequence_length=length, packing=packing)
    write = WriteSamples({"train": stream}, {"train": table}, seed)
    blocks = list(write._blocks(SampleFile("", "train", 0, table.count)))
    assert all(block.dtype == np.int32 for block in blocks)
    return [sample.tolist() for block in blocks for sample in block]


def cut_slowly(run, length):
    """Cut a run of tokens into samples, one by one."""
    out = []
    while len(run) > 1:
        inputs, labels = run[:-1][:length], run[1:][:length]
        padding = [0] * (length - len(inputs))
        out.append([inputs + padding, [1] * len(inputs) + padding, labels + padding])
        run = run[length:]
    return out


@given(lengths=documents, has_ends=st.booleans(), length=st.integers(2, 5), block=st.integers(1, 40))
def test_a_stream_is_cut_across_documents(lengths, has_ends, length, block):
    stream = Kept([n + has_ends for n in lengths])
    run = stream.tokens.tolist()[: len(stream.tokens) - has_ends]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples_module, "BLOCK_TOKENS", block)
        assert made(stream, has_ends, length, "stream") == cut_slowly(run, length)


@given(lengths=documents, length=st.integers(2, 5), block=st.integers(1, 40))
def test_each_document_starts_a_sample(lengths, length, block):
    stream, expected, begin = Kept(lengths), [], 0
    for count in lengths:
        expected += cut_slowly(stream.tokens.tolist()[begin : begin + count], length)
        begin += count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples_module, "BLOCK_TOKENS", block)
        assert made(stream, True, length, "documents") == expected


@given(lengths=documents, packing=st.sampled_from(["stream", "documents"]), seed=st.integers(0, 9))
def test_shuffled_samples_are_the_same_in_another_order(lengths, packing, seed):
    stream = Kept(lengths)
    straight, mixed = made(stream, True, 2, packing), made(stream, True, 2, packing, seed)
    assert sorted(straight) == sorted(mixed)
    assert mixed == [straight[i] for i in shuffled(np.arange(len(straight)), max(len(straight), 1), seed)]


@given(count=st.integers(1, 3000), seed=st.integers(0, 5), data=st.data())
def test_a_shuffle_is_a_permutation_whatever_part_of_it_is_asked_for(count, seed, data):
    whole = shuffled(np.arange(count), count, seed)
    assert sorted(whole.tolist()) == list(range(count))
    some = data.draw(st.lists(st.integers(0, count - 1), max_size=5))
    assert shuffled(np.array(some, np.int64), count, seed).tolist() == whole[some].tolist()


def test_each_seed_has_an_order_of_its_own_without_a_trace_of_the_order_before():
    assert len({tuple(shuffled(np.arange(100), 100, seed)) for seed in range(20)}) == 20
    order = shuffled(np.arange(10_000), 10_000, 1)
    assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.03
    assert np.count_nonzero(np.diff(order) == 1) < 10


def test_large_counts_are_shuffled_without_a_table():
    numbers = np.array([0, 1, 2**45], np.int64)
    order = shuffled(numbers, 2**45 + 1, 3)
    assert len(set(order.tolist())) == 3
    assert ((order >= 0) & (order <= 2**45)).all()
