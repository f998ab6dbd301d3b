"""The state of a run in a checkpoint, and what is refused on the way back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cstool
from cstool.errors import CheckpointError, DamagedCheckpointError, NonFiniteError
from cstool.ir import Graph
from cstool.machine.appliance import Appliance
from cstool.machine.state import Position, environment, load_state, save_state, state_values
from cstool.optimizers import make_optimizer
from cstool.params import SGD, AdamW, parse_states
from cstool.params.sections.optimizers import Adafactor
from cstool.store import CheckpointReader, CheckpointWriter
from tests.models import decoder, fc_mnist
from tests.unit.machine.machines import array_of, machine, random_batch, set_array

MOMENTUM = make_optimizer(SGD(momentum=0.9), None)
HINT = "\nhint: the checkpoint is of another model: choose another --model_dir to start fresh, or another checkpoint"


def saved(path: Path, graph: Graph | None = None, optimizer=MOMENTUM) -> dict[str, np.ndarray]:
    """Write a checkpoint after two steps, and return the arrays that it should hold."""
    graph = graph or fc_mnist(3, use_bias=False)
    with machine(graph, 4, optimizer=optimizer) as appliance:
        for step in (1, 2):
            appliance.train_step(random_batch(graph, 4), step, 0.1)
        save(path, appliance)
        return {name: array_of(appliance, name) for name in appliance.memoryx.arrays.names}


def save(path: Path, appliance: Appliance) -> int:
    params = {"trainer": {"init": {"seed": 1}}}
    position = Position(2, 5, 4)
    choices = {"grain_samples": 1, "gemm": "numpy"}
    memoryx = appliance.memoryx
    memoryx.drain()
    values = state_values(memoryx, position, model_name="fc_mnist", seed=1, choices=choices, params=params)
    return save_state(path, memoryx, values)


def loaded(
    path: Path, *, states: str = "all", strict: bool = True, graph: Graph | None = None, optimizer=MOMENTUM
) -> tuple[dict[str, np.ndarray], Position, dict[str, Any]]:
    """Load a checkpoint into zeros, and return the arrays, the position and the values."""
    graph = graph or fc_mnist(3, use_bias=False)
    settings = {"max_gradient_norm": None, "loss_scaling": "num_tokens", "loss_weight": 1.0, "seed": 1, "lanes": 1}
    with Appliance(graph, optimizer=optimizer, **settings) as appliance, CheckpointReader(path) as reader:
        position, values = load_state(reader, appliance.memoryx, states=parse_states(states), strict=strict)
        return {name: array_of(appliance, name) for name in appliance.memoryx.arrays.names}, position, values


def refusal(path: Path, **how) -> str:
    with pytest.raises(CheckpointError) as caught:
        loaded(path, **how)
    return str(caught.value)


def test_a_checkpoint_holds_these_keys(tmp_path):
    saved(tmp_path / "c.mdl")
    with CheckpointReader(tmp_path / "c.mdl") as reader:
        keys = reader.keys()
    assert keys == [
        "model.fc_layers.0.weight",
        "optimizer.fc_layers.0.weight.momentum_buffer",
        "model.last_layer.weight",
        "optimizer.last_layer.weight.momentum_buffer",
        "global_step",
        "dataloader",
        "random",
        "choices",
        "__metadata__",
    ]


def test_a_checkpoint_says_where_the_run_is_and_what_its_bits_depend_on(tmp_path):
    saved(tmp_path / "c.mdl")
    with CheckpointReader(tmp_path / "c.mdl") as reader:
        values = reader.values()
    params = {"trainer": {"init": {"seed": 1}}}
    assert values == {
        "global_step": 2,
        "dataloader": {"batches_streamed": 5, "batch_size": 4},
        "random": {"seed": 1, "generator": "philox4x32-10"},
        "choices": {"grain_samples": 1, "gemm": "numpy", **environment()},
        "__metadata__": [{"version": cstool.__version__, "model_name": "fc_mnist", "params": params}],
    }


def test_the_environment_is_versions_and_cpu():
    found = environment()
    assert list(found) == ["cstool", "numpy", "numba", "blas", "cpu"]
    assert found["numpy"] == np.__version__


def test_saving_returns_the_bytes_of_the_tensors(tmp_path):
    graph = fc_mnist(3, use_bias=False)
    with machine(graph, 4, optimizer=MOMENTUM) as appliance:
        assert save(tmp_path / "c.mdl", appliance) == 2 * 4 * graph.parameter_count


@pytest.mark.parametrize("optimizer", [MOMENTUM, make_optimizer(Adafactor(), None)], ids=["momentum", "Adafactor"])
def test_loading_brings_back_every_bit_and_the_position(tmp_path, optimizer):
    before = saved(tmp_path / "c.mdl", optimizer=optimizer)
    arrays, position, _ = loaded(tmp_path / "c.mdl", optimizer=optimizer)
    assert position == Position(2, 5, 4)
    assert arrays.keys() == before.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(arrays[name], array)


@pytest.mark.parametrize(
    ("states", "sections", "position"),
    [
        ("all", {"model", "optimizer"}, Position(2, 5, 4)),
        ("model", {"model"}, Position(0, 0)),
        ("model,dataloader", {"model"}, Position(0, 5, 4)),
        ("model, optimizer", {"model", "optimizer"}, Position(2, 0)),
        ("optimizer", {"optimizer"}, Position(2, 0)),
    ],
)
def test_states_can_be_chosen_and_the_step_belongs_to_the_optimizer(tmp_path, states, sections, position):
    saved(tmp_path / "c.mdl")
    arrays, found, _ = loaded(tmp_path / "c.mdl", states=states)
    assert {name.partition(".")[0] for name, array in arrays.items() if array.any()} == sections
    assert found == position


def test_evaluation_loads_the_weights_and_knows_the_step(tmp_path):
    before = saved(tmp_path / "c.mdl")
    arrays, position, _ = loaded(tmp_path / "c.mdl", optimizer=None)
    assert list(arrays) == [name for name in before if name.startswith("model.")]
    assert position.step == 2


def test_a_missing_weight_is_refused(tmp_path):
    path = tmp_path / "c.mdl"
    saved(path)
    assert refusal(path, graph=fc_mnist(3)) == f"{path}: lacks the weight fc_layers.0.bias of this model{HINT}"


def test_a_superfluous_weight_is_refused(tmp_path):
    path = tmp_path / "c.mdl"
    saved(path, fc_mnist(3))
    assert refusal(path) == f"{path}: has the weight fc_layers.0.bias, which this model lacks{HINT}"


@pytest.mark.parametrize("strict", [True, False])
def test_a_weight_of_another_shape_is_refused_strict_or_not(tmp_path, strict):
    path = tmp_path / "c.mdl"
    saved(path)
    assert refusal(path, graph=fc_mnist(5, use_bias=False), strict=strict) == (
        f"{path}: fc_layers.0.weight must be 5 x 784, as in this model, got 3 x 784{HINT}"
    )


def test_the_state_of_another_optimizer_is_refused(tmp_path):
    path = tmp_path / "c.mdl"
    saved(path)
    assert refusal(path, optimizer=make_optimizer(AdamW(), None)) == (
        f"{path}: lacks optimizer.fc_layers.0.weight.exp_avg, which this optimizer needs\n"
        "hint: the checkpoint is of another optimizer: --load_checkpoint_states model loads the weights alone"
    )


def test_weights_alone_go_to_any_optimizer(tmp_path):
    before = saved(tmp_path / "c.mdl")
    arrays, _, _ = loaded(tmp_path / "c.mdl", states="model", optimizer=make_optimizer(AdamW(), None))
    np.testing.assert_array_equal(arrays["model.last_layer.weight"], before["model.last_layer.weight"])


def test_if_not_strict_what_both_have_is_loaded(tmp_path):
    before = saved(tmp_path / "c.mdl")
    arrays, _, _ = loaded(tmp_path / "c.mdl", strict=False, graph=fc_mnist(3))
    assert {name for name, array in arrays.items() if array.any()} == before.keys()


def test_state_that_this_optimizer_does_not_keep_is_refused_too(tmp_path):
    path = tmp_path / "c.mdl"
    saved(path, optimizer=make_optimizer(AdamW(), None))
    assert refusal(path, optimizer=make_optimizer(SGD(), None)) == (
        f"{path}: has optimizer.fc_layers.0.weight.exp_avg, which this optimizer does not keep\n"
        "hint: the checkpoint is of another optimizer: --load_checkpoint_states model loads the weights alone"
    )


def test_weights_without_a_step_can_be_evaluated(tmp_path):
    path = tmp_path / "c.mdl"
    with CheckpointWriter(path) as writer:
        for name, weight in fc_mnist(3, use_bias=False).weights.items():
            writer.add_tensor(f"model.{name}", weight.shape, "float32", [np.ones(weight.shape, np.float32)])
    assert loaded(path, optimizer=None)[1] == Position(0, 0)


def rewritten(path: Path, **changes: Any) -> Path:
    """Write a checkpoint of two steps with other tensors or values under some of its keys."""
    saved(path.with_name("original.mdl"))
    with CheckpointReader(path.with_name("original.mdl")) as reader, CheckpointWriter(path) as writer:
        for name in reader.tensor_names():
            array = changes.get(name, reader.read(name))
            writer.add_tensor(name, array.shape, str(array.dtype), [array])
        for key, value in reader.values().items():
            writer.add_value(key, changes.get(key, value))
    return path


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (
            {"model.last_layer.weight": np.zeros((10, 3), np.float64)},
            "model.last_layer.weight must be 10 x 3 float32, got 10 x 3 float64",
        ),
        (
            {"optimizer.last_layer.weight.momentum_buffer": np.zeros((3, 10), np.float32)},
            "optimizer.last_layer.weight.momentum_buffer must be 10 x 3 float32, got 3 x 10 float32",
        ),
        ({"global_step": -3}, "global_step must be a count, got -3"),
        ({"global_step": "x"}, "global_step must be a count, got 'x'"),
        ({"global_step": 1.5}, "global_step must be a count, got 1.5"),
        ({"global_step": None}, "global_step must be a count, got None"),
        ({"global_step": True}, "global_step must be a count, got True"),
        ({"dataloader": {}}, "dataloader.batches_streamed must be a count, got None"),
        ({"dataloader": 7.5}, "dataloader.batches_streamed must be a count, got 7.5"),
    ],
)
def test_what_no_run_would_write_is_refused(tmp_path, changes, rule):
    path = rewritten(tmp_path / "c.mdl", **changes)
    assert refusal(path) == f"{path}: {rule}"


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"global_step": -3}, "global_step must be a count, got -3"),
        ({"global_step": None}, "global_step must be a count, got None"),
        ({"dataloader": {}}, "dataloader.batches_streamed must be a count, got None"),
    ],
)
def test_what_a_run_refuses_is_not_whole(tmp_path, changes, rule):
    path = rewritten(tmp_path / "c.mdl", **changes)
    with CheckpointReader(path) as reader, pytest.raises(DamagedCheckpointError) as caught:
        reader.verify_all()
    assert caught.value.message == f"{path}: {rule}"


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, value):
    graph = fc_mnist(3, use_bias=False)
    with machine(graph, 4, optimizer=MOMENTUM) as appliance:
        set_array(appliance, "model.last_layer.weight", np.full((10, 3), value, np.float32))
        with pytest.raises(NonFiniteError) as caught:
            save(tmp_path / "c.mdl", appliance)
    assert str(caught.value) == (
        "step 2: the weight last_layer.weight is not finite, so nothing is saved\n"
        "hint: a lower learning rate, max_gradient_norm or a longer warm-up may help"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_decoders_weights_are_there_under_all_names_that_the_vendor_has(tmp_path):
    for tied in (True, False):
        path = tmp_path / f"{tied}.mdl"
        with machine(decoder(share_embedding_weights=tied), 2, optimizer=MOMENTUM) as appliance:
            save(path, appliance)
        with CheckpointReader(path) as reader:
            links = {key: reader.link_of(key) for key in reader.keys() if reader.link_of(key) is not None}  # noqa: SIM118
        assert links == {
            "model.ln_f.weight": "model.transformer_decoder.norm.weight",
            "model.ln_f.bias": "model.transformer_decoder.norm.bias",
        } | ({"model.lm_head.weight": "model.embedding_layer.word_embeddings.weight"} if tied else {})
