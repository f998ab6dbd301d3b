"""The systems: how grains are dealt to them, waves, and what happens when a lane fails."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cstool.foundation.errors import ClusterError, NonFiniteError
from cstool.model.ir import Panel
from cstool.training.kernels.call import Weights
from cstool.training.machine.cluster import INTERPRETER, Cluster
from cstool.training.machine.lanes import Lane, Pace
from cstool.training.machine.layout import lay_out
from cstool.training.machine.plan import make_plan
from cstool.training.machine.timeline import layers_of
from tests.contract.refusal import refusal
from tests.models import decoder
from tests.patience import within_patience
from tests.unit.training.machine.machines import arrays_of, machine, random_batch, set_array

GRAPH = decoder(layers=2)
SLOT_BYTES, RECOMPUTED_BYTES = (
    make_plan(GRAPH, 1, trains=True, recomputes=recomputes).slot_bytes for recomputes in (False, True)
)
KEEPING_BYTES = make_plan(GRAPH, 1, trains=True, keeps=True).slot_bytes


@contextmanager
def systems(*, grains: int = 6, lanes: int = 1, memory_bytes: int = 2**30, **more: Any) -> Iterator[Cluster]:
    """Lend systems with grains of one sample, whose ops the interpreter runs."""
    more = {"num_csx": 1, "trains": True, "recompute": "never", **more}
    with machine(GRAPH, 4) as appliance:
        layout = lay_out(GRAPH, grain=1, grains=grains, memory_bytes=[memory_bytes], **more)
        found = Cluster(layout, appliance.others.exchange, lanes=lanes, seed=3, executor=INTERPRETER)
        yield found
        found.close()


def run(found: Cluster) -> None:
    """Run a step with random samples."""
    found.expect_stream()
    for wave in range(found.waves):
        found.load(random_batch(GRAPH, found.grains), wave, 1, (1.0,))
        found.forward()
        if found.trains:
            found.backward()


Waves = list[list[list[int | None]]]


@pytest.fixture
def waves(monkeypatch) -> Callable[[Cluster], Waves]:
    """Run a batch forward, and return the grains in the slots of each system, wave by wave."""

    def look(found: Cluster) -> Waves:
        seen: Waves = []
        forward = Lane.forward

        def walk(lane: Lane, pace: Pace) -> None:
            seen.append([[slot.grain for slot in csx.slots] for csx in found.csx])
            forward(lane, pace)

        monkeypatch.setattr(Lane, "forward", walk)
        run(found)
        return seen

    return look


@pytest.mark.parametrize(
    ("grains", "num_csx", "slots", "expected"),
    [
        (6, 3, 6, [[[0, 1], [2, 3], [4, 5]]]),
        (6, 4, 6, [[[0], [1, 2], [3], [4, 5]]]),
        (3, 6, 3, [[[], [0], [], [1], [], [2]]]),
        (6, 2, 4, [[[0], [1, 2]], [[3], [4, 5]]]),
        (5, 2, 4, [[[0], [1, None]], [[2], [3, 4]]]),
        (5, 5, 4, [[[], [None], [0], [None], [1]], [[], [2], [None], [3], [4]]]),
        (3, 2, 1, [[[], [0]], [[], [1]], [[], [2]]]),
        (6, 1, 5, [[[0, 1, 2]], [[3, 4, 5]]]),  # five slots fit, but two waves of three leave none nearly empty
    ],
)
def test_grains_are_dealt_in_order_and_taken_in_waves_when_memory_is_short(waves, grains, num_csx, slots, expected):
    with systems(grains=grains, num_csx=num_csx, memory_bytes=slots * SLOT_BYTES) as found:
        assert waves(found) == expected
        assert [csx.arena.nbytes for csx in found.csx] == [len(held) * SLOT_BYTES for held in expected[0]]
        assert found.activation_bytes <= slots * SLOT_BYTES


@pytest.mark.parametrize(
    ("recompute", "memory_bytes", "keeps", "layers", "waves"),
    [
        ("auto", 6 * KEEPING_BYTES, True, 0, 1),
        ("never", 6 * KEEPING_BYTES, True, 0, 1),
        ("auto", 6 * KEEPING_BYTES - 1, False, 0, 1),
        ("never", 6 * KEEPING_BYTES - 1, False, 0, 1),
        ("auto", 6 * SLOT_BYTES, False, 0, 1),
        ("auto", 6 * SLOT_BYTES - 1, False, 1, 1),
        ("auto", 6 * RECOMPUTED_BYTES, False, 1, 1),
        ("auto", 6 * RECOMPUTED_BYTES - 1, False, 1, 2),
        ("auto", RECOMPUTED_BYTES, False, 1, 6),
        ("always", 6 * KEEPING_BYTES, False, 1, 1),
        ("never", 6 * SLOT_BYTES - 1, False, 0, 2),
    ],
)
def test_short_memory_takes_kept_logits_then_layers_then_makes_waves(recompute, memory_bytes, keeps, layers, waves):
    with systems(grains=6, num_csx=1, memory_bytes=memory_bytes, recompute=recompute) as found:
        assert (found.plan.keeps, len(found.plan.timeline.recomputed), found.waves) == (keeps, layers, waves)
        slot_bytes = KEEPING_BYTES if keeps else RECOMPUTED_BYTES if layers else SLOT_BYTES
        assert (found.plan.slot_bytes, found.layout.whole_slot_bytes) == (slot_bytes, KEEPING_BYTES)
        assert found.activation_bytes == sum(found.layout.deal.slots) * slot_bytes


def test_evaluation_has_nothing_to_recompute():
    slot_bytes = make_plan(GRAPH, 1, trains=False).slot_bytes
    for recompute in ("auto", "always", "never"):
        with systems(memory_bytes=2 * slot_bytes, recompute=recompute, trains=False) as found:
            assert (found.plan.timeline.recomputed, found.plan.slot_bytes, found.waves) == ((), slot_bytes, 3)


@pytest.mark.parametrize(
    ("recompute", "slot_bytes", "hint"),
    [
        ("never", SLOT_BYTES, "activation_checkpointing: auto or a smaller max_sequence_length needs less"),
        ("auto", RECOMPUTED_BYTES, "a smaller max_sequence_length needs less"),
        ("always", RECOMPUTED_BYTES, "a smaller max_sequence_length needs less"),
    ],
)
def test_memory_that_does_not_hold_one_grain_is_an_error(recompute, slot_bytes, hint):
    few = slot_bytes - 1
    rule = f"the activations of one grain (1 x 8 tokens) need {slot_bytes:,} bytes of memory, {few:,} are free for them"
    with refusal(ClusterError, rule, hint), systems(num_csx=3, memory_bytes=few, recompute=recompute):
        pass


@pytest.mark.parametrize("waves", [1, 3])
def test_a_panel_streams_once_for_each_time_that_an_op_runs_with_it(monkeypatch, waves):
    """A lane alone acquires exactly what streams."""
    memory_bytes = 6 // waves * RECOMPUTED_BYTES
    with systems(memory_bytes=memory_bytes, recompute="always") as found, monkeypatch.context() as patch:
        assert found.waves == waves
        acquired: list[Panel] = []
        acquire = found.swarmx.acquire

        def counted(panel: Panel) -> Weights:
            acquired.append(panel)
            return acquire(panel)

        patch.setattr(found.swarmx, "acquire", counted)
        run(found)
    assert found.stream == tuple(acquired)
    # The matrix that ends a layer does not run forward again, nor does the last layer.
    times = {panel.weight: acquired.count(panel) // waves for panel in acquired}
    layer = "transformer_decoder.layers.{}.ffn.ffn.{}.linear_layer.weight"
    assert [times[layer.format(*at)] for at in ((0, 0), (0, 1), (1, 0), (1, 1))] == [3, 2, 2, 2]
    assert times["embedding_layer.word_embeddings.weight"] == 4, "twice as the embedding, twice as the output layer"


def test_the_second_forward_of_an_op_has_a_time_of_its_own():
    with systems(recompute="always", lanes=2) as found:
        run(found)
        seconds = found.op_seconds
    again = {GRAPH.ops[position].name for position in found.plan.timeline.again}
    assert len(again) == len(layers_of(GRAPH.ops)[0]) - 2
    for op, of_op in seconds.items():
        assert list(of_op) == (["forward", "again", "backward"] if op in again else ["forward", "backward"])
        assert min(of_op.values()) > 0


@pytest.mark.parametrize(
    ("num_csx", "lanes", "shares"), [(3, 1, [6]), (24, 2, [3, 3]), (4, 4, [1, 2, 1, 2]), (3, 9, [1] * 6)]
)
def test_lanes_share_the_slots_and_none_is_idle(lanes, shares, num_csx):
    with systems(grains=6, num_csx=num_csx, lanes=lanes) as found:
        assert [len(lane.slots) for lane in found.lanes] == shares


def error_of(found: Cluster) -> str:
    try:
        within_patience(lambda: run(found))
    except OSError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("walk", ["forward", "backward"])
@pytest.mark.parametrize("lane", [0, 1, 2])
def test_the_error_of_one_lane_is_raised_the_others_stop_and_the_systems_run_again(monkeypatch, walk, lane):
    good, ended = getattr(Lane, walk), []

    def bad(self: Lane, pace: Pace) -> None:
        if self.index == lane:
            raise OSError(f"lane {lane} broke")
        try:
            good(self, pace)
        finally:
            ended.append(self.index)

    monkeypatch.setattr(Lane, walk, bad)
    with systems(grains=6, lanes=3) as found:
        assert error_of(found) == f"lane {lane} broke"
        assert sorted(ended) == [i for i in range(3) if i != lane]
        monkeypatch.undo()
        assert error_of(found) == ""


def test_a_loss_that_is_not_finite_stops_the_step_before_any_update():
    graph = decoder()
    with machine(graph, 4) as appliance:
        norm = "transformer_decoder.norm.bias"
        set_array(appliance, f"model.{norm}", np.full(8, np.nan, np.float32))
        rule = f"step 12: the loss is not finite; the first tensor that is not: weight {norm}"
        with refusal(NonFiniteError, rule, "a lower learning rate, max_gradient_norm or a longer warm-up may help"):
            appliance.train_step(random_batch(graph, 4), 12, 0.1)
        gradients = arrays_of(appliance, "optimizer.", ".gradient")
    assert not any(gradient.any() for gradient in gradients.values())
