"""Lanes that walk by tables: what is written down, what stays with the interpreter, and what goes wrong there.

`test_same_bits.py` has the bits of every model.
"""

import numpy as np
import pytest

from cstool.foundation.errors import NonFiniteError
from cstool.model.ir import Graph, OpKind
from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW
from cstool.training.kernels import attention, embedding, table
from cstool.training.kernels._jit import elementwise
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.gemm_providers import find_fma
from cstool.training.machine import cluster as cluster_module
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.cluster import INTERPRETER, TABLE
from cstool.training.machine.recorder import Recorder
from tests.models import BALANCED, FAMILIES, VARIANTS, decoder, fc_mnist, model_of
from tests.unit.training.machine.machines import array_of, arrays_of, machine, random_batch, set_array
from tests.unit.training.store.stored import forked

ADAMW = make_optimizer(AdamW(learning_rate=0.01, weight_decay=0.1), None)
GRAPH, PERCEPTRONS = decoder(layers=2), fc_mnist(7, 6, 5)


def interpreted(graph: Graph, **settings) -> set[tuple[str, str]]:
    """Kinds of ops that stay with the interpreter, by phase."""
    gemm = settings.pop("gemm", NUMPY)
    with machine(graph, 8, lanes=2, optimizer=ADAMW, **settings) as appliance:
        appliance.multiply_with(gemm)
        appliance.train_step(random_batch(graph, 8), 1, 0.01)
        appliance.evaluate(random_batch(graph, 8), 1)
        tables = appliance.training_cluster._tables
        assert tables is not None
        pieces = [piece for walk in (*tables._forward, *tables._backward) for piece in walk.pieces]
        kinds = [op.op.kind for op in appliance.training_cluster.plan.ops]
    return {(kinds[p.position].value, p.phase) for p in pieces if p.position is not None}


@pytest.mark.parametrize(
    "graph",
    [lambda: decoder(dropout=0.1), *(lambda name=name: decoder(**FAMILIES[name]) for name in ("llama", "gemma2"))],
)
def test_of_a_decoder_all_is_written_down(graph):
    assert interpreted(graph()) == set()


def test_the_gradient_of_a_large_embedding_is_not_written_down(monkeypatch):
    monkeypatch.setattr(embedding, "MOST_NUMBERS", 0)
    assert interpreted(decoder(vocab_size=200)) == {("embedding", "backward")}


def test_of_experts_all_is_written_down_where_products_are_our_own():
    graph = decoder(**BALANCED)
    for each in graph, decoder(**VARIANTS["shared experts, biases, one choice"]):
        assert interpreted(each, gemm=find_fma().gemm) == set()
    assert interpreted(graph) == {("expert_linear", "forward"), ("expert_linear", "backward")}


@pytest.mark.parametrize("more", [{}, {"max_gradient_norm": 0.5}])
def test_experts_that_no_token_chose_are_counted_as_in_python(more):
    graph, found = decoder(moe={"num_experts": 40, "top_k": 1}), []
    for executor in (TABLE, INTERPRETER):
        with machine(graph, 8, lanes=2, executor=executor, optimizer=ADAMW, **more) as appliance:
            appliance.multiply_with(find_fma().gemm)
            appliance.train_step(random_batch(graph, 8), 1, 0.01)
            appliance.memoryx.drain()
            found.append(appliance.memoryx.expert_use)
    assert found[0] == found[1]
    assert found[0].idle > 0


def test_of_layers_of_perceptrons_everything_is_written_down():
    assert interpreted(fc_mnist(7, 6, 5, dropout=0.3)) == set()


@pytest.mark.parametrize("least", [0, attention.LEAST_PRODUCTS])
@pytest.mark.parametrize("model", ["bert", "esm2, packed", "t5"])
def test_attention_to_segments_and_with_biases_by_distance_is_written_down(model, least, monkeypatch):
    monkeypatch.setattr(attention, "LEAST_PRODUCTS", least)
    assert not {kind for kind, _ in interpreted(model_of(model))} & {"attention", "linear"}


def test_ops_that_look_at_numbers_stay_with_the_interpreter(monkeypatch):
    monkeypatch.setattr(attention, "BLOCK_ROWS", 4)
    found = interpreted(model_of("esm2, packed"))
    assert ("attention", "forward") in found
    assert ("linear", "forward") not in found
    assert ("attention", "backward") in interpreted(decoder(**FAMILIES["trained slopes"]))


def walks_by_table(appliance: Appliance, step: int) -> bool:
    appliance.train_step(random_batch(GRAPH, 8), step, 0.01)
    return appliance.training_cluster.is_by_table


def test_a_step_that_is_watched_walks_in_python_and_the_bits_are_the_same():
    found = []
    for watched in (False, True):
        with machine(GRAPH, 8, lanes=2, optimizer=ADAMW, max_gradient_norm=0.5) as appliance:
            assert walks_by_table(appliance, 1)
            appliance.memoryx.statistics.begin_step(looks=watched)
            assert walks_by_table(appliance, 2) != watched
            appliance.memoryx.statistics.begin_step(looks=False)
            if watched:
                recorder = Recorder.of(3, 3)
                recorder.is_on = True
                appliance.record(recorder)
                assert not walks_by_table(appliance, 3)
                recorder.is_on = False
            else:
                assert walks_by_table(appliance, 3)
            assert walks_by_table(appliance, 4)
            found.append({name: array_of(appliance, name).tobytes() for name in appliance.memoryx.arrays.names})
    assert found[0] == found[1]


def test_a_model_with_large_gradients_walks_in_python(monkeypatch):
    monkeypatch.setattr(cluster_module, "GRADIENT_BYTES", 1000)
    with machine(GRAPH, 8) as appliance:
        assert not walks_by_table(appliance, 1)
        appliance.evaluate(random_batch(GRAPH, 8), 1)
        assert all(cluster.is_by_table != cluster.trains for cluster in appliance.clusters)


def test_who_asks_for_the_interpreter_gets_it():
    with machine(GRAPH, 8, executor=INTERPRETER) as appliance:
        assert not walks_by_table(appliance, 1)
    with machine(GRAPH, 8, executor=TABLE) as appliance:
        assert walks_by_table(appliance, 1)


@elementwise
def _refuses(x):
    if x[0, 0] != 12345.0:
        raise ValueError("the activation is not what it must be")


@pytest.mark.parametrize("graph", [GRAPH, PERCEPTRONS], ids=["pass by pass", "in one program"])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_the_error_of_a_kernel_comes_out_of_the_table_as_it_was_raised(monkeypatch, way, graph):
    kernel = table.KERNELS[OpKind.ACTIVATION]

    def broken(call) -> None:
        getattr(kernel, way)(call)
        _refuses(call.inputs[0])

    changed = kernel.__class__(**{**vars(kernel), way: broken})
    monkeypatch.setitem(table.KERNELS, OpKind.ACTIVATION, changed)
    with (
        machine(graph, 8, lanes=2) as appliance,
        pytest.raises(ValueError, match="^the activation is not what it must be$"),
    ):
        appliance.train_step(random_batch(graph, 8), 1, 0.01)


def test_the_first_tensor_that_is_not_finite_is_named_as_in_python():
    found = []
    for executor in (TABLE, INTERPRETER):
        with machine(GRAPH, 8, lanes=2, executor=executor) as appliance:
            name = "model.transformer_decoder.layers.1.norm1.weight"
            appliance.train_step(random_batch(GRAPH, 8), 1, 0.01)
            set_array(appliance, name, np.full_like(array_of(appliance, name), np.nan))
            with pytest.raises(NonFiniteError) as error:
                appliance.train_step(random_batch(GRAPH, 8), 2, 0.01)
            found.append(str(error.value))
    assert found[0] == found[1]
    assert "layers.1.norm1.weight" in found[0]


@pytest.mark.parametrize("bad", [0, 7])
def test_a_loss_that_is_not_finite_changes_nothing_where_a_step_is_one_program(bad):
    """In the first lane or in another: then no lane goes back, and the first tensor that is not finite can be found."""
    messages, weights = [], []
    for executor in (TABLE, INTERPRETER):
        with machine(PERCEPTRONS, 8, lanes=2, executor=executor, optimizer=ADAMW) as appliance:
            batch = random_batch(PERCEPTRONS, 8)
            appliance.train_step(batch, 1, 0.01)
            assert executor == INTERPRETER or appliance.training_cluster._tables._program is not None
            before = arrays_of(appliance, "model.")
            batch.arrays["x"][bad] = np.nan
            with pytest.raises(NonFiniteError) as error:
                appliance.train_step(batch, 2, 0.01)
            messages.append(str(error.value))
            weights.append(
                [before[name].tobytes() == array.tobytes() for name, array in arrays_of(appliance, "model.").items()]
            )
            batch = random_batch(PERCEPTRONS, 8)
            found = appliance.train_step(batch, 2, 0.01)
            weights.append([found, *(array.tobytes() for array in arrays_of(appliance, "model.").values())])
    assert messages[0] == messages[1]
    assert all(weights[0])
    assert weights[1] == weights[3]


def test_gradients_that_are_not_finite_change_nothing_and_name_their_weight():
    """A weight that is beyond the square root of float32's largest number has a finite loss, perhaps, but no norm."""
    messages, weights = [], []
    for executor in (TABLE, INTERPRETER):
        with machine(
            fc_mnist(7, 6, 5), 8, lanes=2, executor=executor, optimizer=ADAMW, max_gradient_norm=1.0
        ) as appliance:
            batch = random_batch(appliance.graph, 8)
            batch.arrays["x"][:] = np.float32(3e38)
            before = arrays_of(appliance, "model.")
            with pytest.raises(NonFiniteError) as error:
                appliance.train_step(batch, 1, 0.01)
            messages.append(str(error.value))
            after = arrays_of(appliance, "model.")
            weights.append(all(np.array_equal(before[name], after[name]) for name in before))
    assert messages[0] == messages[1]
    assert weights == [True, True]


def test_times_of_ops_are_measured_within_tables():
    with machine(GRAPH, 8, lanes=2, recompute="always") as appliance:
        appliance.train_step(random_batch(GRAPH, 8), 1, 0.01)
        seconds = appliance.training_cluster.op_seconds
    assert all(of_phase > 0 for op in seconds.values() for of_phase in op.values())


def test_memory_of_gradients_is_counted():
    with machine(GRAPH, 8, lanes=2, optimizer=ADAMW) as appliance:
        before = appliance.memory_account()["gradients"]
        appliance.train_step(random_batch(GRAPH, 8), 1, 0.01)
        assert appliance.memory_account()["gradients"] - before > 4 * sum(
            weight.size for weight in GRAPH.weights.values()
        )


def test_a_child_that_is_forked_between_two_steps_trains_with_the_same_bits():
    """The threads of the lanes stay with the parent."""

    def trained() -> dict[str, bytes]:
        with machine(GRAPH, 8, lanes=2, optimizer=ADAMW) as appliance:
            assert walks_by_table(appliance, 1)
            return {name: array_of(appliance, name).tobytes() for name in appliance.memoryx.arrays.names}

    def child() -> None:
        assert trained() == expected

    expected = trained()
    with machine(GRAPH, 8, lanes=2, optimizer=ADAMW) as appliance:
        assert walks_by_table(appliance, 1)
        assert forked(child) == 0
        assert walks_by_table(appliance, 2)
