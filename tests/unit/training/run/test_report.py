"""The table of sparse weights at the end of a run: weights that are alike in one row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.ir import _graph
from cstool.training.kernels.sparse import KernelChoice, Pattern
from cstool.training.run.report import time_split
from cstool.training.run.report.sparsity_table import sparsity_table, table_lines
from cstool.training.run.report.summary import traffic_of
from cstool.training.run.report.time_split import CHECKPOINT, EVALUATION, START_UP, TRAINING, Rates, TimeSplit
from cstool.training.run.result import FileTraffic
from cstool.training.store import FileStore
from tests.models import decoder, fc_mnist
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import machine, random_batch
from tests.unit.training.machine.sparse_machines import sparse_memory

LAYERS = "transformer_decoder.layers"
OUTPUT = "self_attn.proj_output_dense_layer.weight"
UP = "ffn.ffn.0.linear_layer.weight"


def by_density(pattern: Pattern, _: float) -> KernelChoice:
    """Sparse forward always, the delta never, the gradient where there is little."""
    return KernelChoice(forward=True, delta=False, gradient=pattern.density < 0.5)


def test_weights_of_all_layers_are_one_row_unless_shape_or_group_differ():
    quarter = group(0.75)
    groups = {f"{LAYERS}.{layer}.{OUTPUT}": quarter for layer in range(3)}
    groups |= {f"{LAYERS}.{layer}.{UP}": quarter for layer in range(2)}
    groups[f"{LAYERS}.1.{OUTPUT}"] = group(0.5, algorithm="set")
    groups[f"{LAYERS}.2.{UP}"] = group(0.25)
    with sparse_memory(decoder(layers=3), None, groups, choose=by_density) as memoryx:
        rows = sparsity_table(memoryx)
    static, half = {"algorithm": "static", "density": 0.25}, {"algorithm": "set", "density": 0.5}
    kernels = {"forward": "sparse", "delta": "dense", "gradient": "sparse"}
    dense = {**kernels, "gradient": "dense"}
    assert rows == [
        {"weights": f"{LAYERS}.*.{OUTPUT}", "count": 2, "shape": [8, 8], **static, "kernels": kernels},
        {"weights": f"{LAYERS}.*.{UP}", "count": 2, "shape": [16, 8], **static, "kernels": kernels},
        {"weights": f"{LAYERS}.1.{OUTPUT}", "count": 1, "shape": [8, 8], **half, "kernels": dense},
        {"weights": f"{LAYERS}.2.{UP}", "count": 1, "shape": [16, 8], **static, "density": 0.75, "kernels": dense},
    ]
    assert table_lines(rows) == [
        "Sparsity: 6 weights, and which kernels computed with them:",
        f"  weights{' ' * 62}  shape         algorithm  zeros   forward  delta  gradient",
        f"  {LAYERS}.*.{OUTPUT}  2 x (8 x 8)   static     75.00%  sparse   dense  sparse",
        f"  {LAYERS}.*.{UP}             2 x (16 x 8)  static     75.00%  sparse   dense  sparse",
        f"  {LAYERS}.1.{OUTPUT}  1 x (8 x 8)   set        50.00%  sparse   dense  dense",
        f"  {LAYERS}.2.{UP}             1 x (16 x 8)  static     25.00%  sparse   dense  dense",
    ]


def test_one_weight_is_called_so_and_panels_that_differ_are_both(monkeypatch):
    with sparse_memory(fc_mnist(12, 8), None, {"fc_layers.1.weight": group(0.9)}) as memoryx:
        lines = table_lines(sparsity_table(memoryx))
    assert lines == [
        "Sparsity: 1 weight, and which kernels computed with them:",
        "  weights             shape         algorithm  zeros   forward  delta   gradient",
        "  fc_layers.1.weight  1 x (8 x 12)  static     90.62%  sparse   sparse  sparse",
    ]
    monkeypatch.setattr(_graph, "PANEL_BYTES", 4 * 12 * 4)
    with sparse_memory(fc_mnist(12, 8), None, {"fc_layers.1.weight": group(0.5)}, choose=by_density) as memoryx:
        memoryx.arrays.sparse["fc_layers.1.weight"].place(np.arange(48))
        [row] = sparsity_table(memoryx)
    assert row["kernels"] == {"forward": "sparse", "delta": "dense", "gradient": "both"}


def test_a_dense_run_has_no_table():
    with sparse_memory(fc_mnist(12, 8), None, {"fc_layers.1.weight": group(0.5, algorithm="dropconnect")}) as memoryx:
        assert sparsity_table(memoryx) == []
    assert table_lines([]) == []


# What a run says of the traffic of its file: all that was read and written, and no wait left out.


def test_in_memory_there_is_none():
    with machine(fc_mnist(), 8) as appliance:
        assert traffic_of(appliance.memoryx) is None


def test_every_byte_and_the_last_commit_are_in_it(tmp_path):
    in_file = {"store": FileStore(tmp_path / "m.h5", 2**20), "waiting_bytes": 2**20, "memory_bytes": 2**30}
    with machine(fc_mnist(), 8, **in_file) as appliance:
        parameter_bytes = 4 * appliance.graph.parameter_count
        before = traffic_of(appliance.memoryx)
        assert before == FileTraffic(
            str(tmp_path / "m.h5"), 0, parameter_bytes, before.busy_s, 0.0, before.ahead_bytes, None
        )
        appliance.train_step(random_batch(appliance.graph, 8), 1, 0.1)
        appliance.memoryx.commit(lambda: {"global_step": 1})
        appliance.memoryx.drain()
        after = traffic_of(appliance.memoryx)
    # The weights fit the memory. The state is read once, and with the weights written once.
    assert (after.read_bytes, after.written_bytes - before.written_bytes) == (parameter_bytes, 2 * parameter_bytes)
    assert after.committed_step == 1


# The parts of the time of a run add up to the whole, by a clock that the test turns.


@given(st.lists(st.tuples(st.sampled_from([START_UP, TRAINING]), st.integers(0, 50), st.integers(0, 10))))
def test_whatever_happens_the_parts_are_the_whole(turns):
    now = [100.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_split.time, "perf_counter", lambda: now[0])
        times = TimeSplit()
        expected = dict.fromkeys((START_UP, TRAINING, CHECKPOINT, EVALUATION), 0)
        for part, own, saved in turns:
            times.turn_to(part)
            now[0] += own + saved
            assert times.move(saved, CHECKPOINT) == saved
            expected[part] += own
            expected[CHECKPOINT] += saved
        found = times.seconds(0.0, 0.0)
    assert found == {
        "compute": expected[TRAINING],
        "stream_wait": 0.0,
        "input_wait": 0.0,
        "checkpoint": expected[CHECKPOINT],
        "evaluation": 0.0,
        "start_up": expected[START_UP],
    }
    assert sum(found.values()) == now[0] - 100.0


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time_split.time, "perf_counter", lambda: now[0])
    return now


def test_what_training_waited_for_is_no_computing(clock):
    times = TimeSplit()
    times.turn_to(TRAINING)
    clock[0] += 10.0
    times.move(1.0, EVALUATION)
    found = {"compute": 4.0, "stream_wait": 3.0, "input_wait": 2.0, "checkpoint": 0.0, "evaluation": 1.0}
    assert times.seconds(2.0, 3.0) == found | {"start_up": 0.0}


@pytest.mark.parametrize(
    ("looks", "rates"),
    [
        ([(0.0, 30, 2.0)], (15.0, 15.0)),
        # Six tenths of the new rate, and four of the one before.
        ([(0.0, 10, 1.0), (0.0, 20, 1.0)], (0.6 * 20 + 0.4 * 10, 15.0)),
        # A pause counts in neither.
        ([(0.0, 10, 1.0), (50.0, 10, 1.0)], (10.0, 10.0)),
        # Without any time passed they are finite.
        ([(0.0, 1, 0.0)], (1e9, 1e9)),
    ],
    ids=["first", "later", "pause", "no time"],
)
def test_rates_are_those_of_the_samples_and_the_time_without_pauses(clock, looks, rates):
    found = Rates()
    for paused_s, samples, passed_s in looks:
        clock[0] += paused_s
        found.pause(paused_s)
        found.add(samples)
        clock[0] += passed_s
        last = found.look()
    assert last == pytest.approx(rates)
    assert (found.samples, found.seconds) == (sum(n for _, n, _ in looks), sum(passed_s for _, _, passed_s in looks))
