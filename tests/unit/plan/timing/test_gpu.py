"""Steps on GPUs: times by hand, a pipeline beside its schedule, memory beside the paper's, files that are wrong."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cstool
from cstool.foundation.errors import ParamsError
from cstool.plan.timing.gpu import GpuModel, Split, best_split, load_gpu, split_step
from cstool.plan.timing.gpu.layer import head_s, kept_bytes, layer_times
from cstool.plan.timing.gpu.step import memory_bytes, splits

A100 = load_gpu("a100")
GPT3 = GpuModel(12288, 96, 96, 12288, 49152, False, 51200, 2048, 174_600_000_000)
SMALL = GpuModel(1024, 24, 16, 1024, 4096, False, 50000, 1024, 350_000_000)


def test_a_product_takes_its_operations_and_its_bytes_and_an_all_reduce_two_halves_of_a_ring():
    """128 GFLOP at 95 % of 312 TFLOP/s are 431.8 us; 100 MB at 90 % of 2,039 GB/s 54.5 us."""
    assert A100.product_s(128e9, 100e6) == pytest.approx(128e9 / (0.95 * 312e12) + 100e6 / (0.9 * 2039e9))
    assert A100.product_s(128e9, 100e6) == pytest.approx(486.3e-6, rel=1e-3)
    # Of 16 MB over 8 GPUs 2 x 14 MB are sent, at 180 GB/s.
    assert A100.near.allreduce_s(16e6, 8) == pytest.approx(2 * 14e6 / 180e9 + 1e-6)
    assert A100.near.allreduce_s(16e6, 1) == 0


def schedule_1f1b(stages: int, micro_batches: int) -> int:
    """Beats of a pipeline, forward one and backward one, task by task: each stage prefers what goes backward."""
    done_f, done_b = [0] * stages, [0] * stages
    beat = 0
    while done_b[0] < micro_batches:
        before_f, before_b = done_f[:], done_b[:]
        for stage in range(stages):
            in_flight = before_f[stage] - before_b[stage]
            comes_back = before_b[stage + 1] if stage + 1 < stages else before_f[stage]
            comes = before_f[stage - 1] if stage else micro_batches
            if before_b[stage] < comes_back:
                done_b[stage] += 1
            elif before_f[stage] < min(comes, micro_batches) and in_flight < stages - stage:
                done_f[stage] += 1
        beat += 1
    return beat


@given(st.integers(1, 8), st.integers(1, 20))
def test_a_pipeline_fills_and_drains(stages, micro_batches):
    """A micro-batch forward and backward is two beats; p - 1 of them more than there are."""
    assert schedule_1f1b(stages, micro_batches) == 2 * (micro_batches + stages - 1)
    step = split_step(A100, SMALL, micro_batches, Split(1, stages, 1, 1))
    assert step.bubble == pytest.approx((stages - 1) / (micro_batches + stages - 1))


def test_activations_are_those_of_the_paper():
    """s b h (34 + 5 a s / h) / t."""
    elements = 2048 * 12288 / 8
    assert kept_bytes(GPT3, 1, 8, "none") == pytest.approx(elements * (34 + 5 * 96 * 2048 / 12288))
    assert kept_bytes(GPT3, 1, 8, "attention") == pytest.approx(34 * elements)
    assert kept_bytes(GPT3, 1, 8, "all") == pytest.approx(2 * elements)
    # Equation 2 of Korthikanti et al.: s b h (10 + 24 / t), where sequences are not shared.
    assert kept_bytes(GPT3, 1, 8, "attention", False) == pytest.approx(8 * elements * (10 + 24 / 8))
    assert kept_bytes(GPT3, 1, 8, "all", False) == pytest.approx(16 * elements)


@given(
    st.sampled_from(["flops", "vector_flops", "memory_bytes_per_s"]),
    st.floats(1, 10),
    st.sampled_from(list(splits(A100, GPT3, 64, 64))),
)
def test_faster_parts_are_never_slower_and_nothing_is_faster_than_the_tensor_cores(part, factor, split):
    step_s = split_step(A100, GPT3, 64, split).step_s
    assert step_s * 64 * A100.flops > 64 * GPT3.sample_flops()
    faster = replace(A100, **{part: factor * getattr(A100, part)})
    links = replace(A100, near=replace(A100.near, bytes_per_s=factor * A100.near.bytes_per_s))
    for gpu in (faster, links):
        assert split_step(gpu, GPT3, 64, split).step_s <= step_s * (1 + 1e-12)


def test_the_best_split_fits_and_is_the_fastest_of_those_that_do():
    best = best_split(A100, SMALL, 32, 8)
    assert best is not None
    every = [split_step(A100, SMALL, 32, split) for split in splits(A100, SMALL, 32, 8)]
    fits = [step for step in every if step.memory_bytes <= A100.memory_bytes - 4e9]
    assert best.step_s == min(step.step_s for step in fits)
    assert all(step.split.gpus == 8 for step in every)
    assert best_split(A100, GPT3, 8, 8) is None


def test_sequences_that_are_not_shared():
    """Sums of two products are all-reduced forward, and two backward; norms and residuals are computed by each GPU."""
    shared, whole = (layer_times(A100, GPT3, 1, 8, shares) for shares in (True, False))
    assert whole.talk == pytest.approx(2 * A100.near.allreduce_s(2 * 2048 * 12288, 8))
    assert whole.talk_again == 0
    assert whole.forward > shared.forward
    assert whole.backward > shared.backward
    assert whole.attention == shared.attention
    alone = layer_times(A100, GPT3, 1, 1, True)
    assert layer_times(A100, GPT3, 1, 1, False) == alone
    assert alone.talk == 0
    assert layer_times(A100, GPT3, 2, 8).forward > 1.5 * shared.forward
    assert head_s(A100, GPT3, 1, 8) < head_s(A100, GPT3, 1, 1)
    # Interleaved stages keep more and wait less.
    one, parts = Split(8, 8, 1, 1, 1), Split(8, 8, 1, 1, 3)
    assert memory_bytes(GPT3, 64, parts) > memory_bytes(GPT3, 64, one)
    assert split_step(A100, GPT3, 64, parts).step_s < split_step(A100, GPT3, 64, one).step_s


def test_a_file_of_ones_own_starts_from_a_known_gpu(tmp_path: Path):
    file = tmp_path / "half.yaml"
    file.write_text('extends: a100\nflops:\n  value: 156e12\n  status: C\n  source: "half as fast"\n')
    assert load_gpu(str(file)) == replace(A100, name="half", flops=156e12)
    with pytest.raises(ParamsError, match="a101: is not a known GPU"):
        load_gpu("a101")


LINKLESS = (Path(cstool.__file__).parent / "plan/timing/gpu/systems/a100.yaml").read_text().partition("links:")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: a100\nlinks: {near: null}\n", "wrong.yaml:2: links.near is missing"),
        ("extends: h900\n", "wrong.yaml:1: extends must be one of a100, got 'h900'"),
        (
            'extends: a100\nmemory_efficiency:\n  value: [[1, 0.5], [2, 0.9]]\n  status: C\n  source: "x"\n',
            "wrong.yaml:3: memory_efficiency.value must have sizes that descend to 0, got [1.0, 2.0]",
        ),
        (LINKLESS, "wrong.yaml:4: links is missing"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_its_line(tmp_path: Path, text, message):
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ParamsError, match=re.escape(f"{tmp_path}/{message}")):
        load_gpu(str(file))
