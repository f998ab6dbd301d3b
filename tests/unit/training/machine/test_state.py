"""The state of a run in a checkpoint, and what is refused on the way back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cstool
from cstool.foundation.errors import CheckpointError, DamagedCheckpointError, NonFiniteError
from cstool.model.ir import Graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import SGD, AdamW, parse_states
from cstool.model.params.sections.optimizers import Adafactor
from cstool.training.machine.state import Position, environment, load_state
from cstool.training.store import CheckpointReader, CheckpointWriter
from tests.contract.refusal import refusal as refused
from tests.models import decoder, fc_mnist
from tests.unit.training.machine.machines import (
    USUAL,
    array_of,
    machine,
    make_appliance,
    random_batch,
    rewrite,
    save,
    set_array,
)

PLACE = Position(2, 5, 4)
MOMENTUM, ADAMW = make_optimizer(SGD(momentum=0.9), None), make_optimizer(AdamW(), None)
HINT = "\nhint: the checkpoint is of another model: choose another --model_dir to start fresh, or another checkpoint"


def saved(path: Path, graph: Graph | None = None, optimizer=MOMENTUM) -> dict[str, np.ndarray]:
    """Write a checkpoint after two steps, and return the arrays that it should hold."""
    graph = graph or fc_mnist(3, use_bias=False)
    with machine(graph, 4, optimizer=optimizer) as appliance:
        for step in (1, 2):
            appliance.train_step(random_batch(graph, 4), step, 0.1)
        written = save(path, appliance, PLACE, grain_samples=1, gemm="numpy")
        assert written == sum(array_of(appliance, name).nbytes for name in appliance.memoryx.arrays.names)
        return {name: array_of(appliance, name) for name in appliance.memoryx.arrays.names}


def loaded(path, *, states="all", strict=True, graph=None, optimizer=MOMENTUM):
    """Load a checkpoint into zeros, and return the arrays, the position and the values."""
    graph = graph or fc_mnist(3, use_bias=False)
    with make_appliance(graph, optimizer=optimizer, **USUAL) as appliance, CheckpointReader(path) as reader:
        position, values = load_state(reader, appliance.memoryx, states=parse_states(states), strict=strict)
        return {name: array_of(appliance, name) for name in appliance.memoryx.arrays.names}, position, values


def refusal(path: Path, **how) -> str:
    with pytest.raises(CheckpointError) as caught:
        loaded(path, **how)
    return str(caught.value)


def test_a_checkpoint_holds_these_keys_and_says_where_the_run_is_and_what_its_bits_depend_on(tmp_path):
    saved(tmp_path / "c.mdl")
    with CheckpointReader(tmp_path / "c.mdl") as reader:
        keys, values = reader.keys(), reader.values()
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
    params = {"trainer": {"init": {"seed": 1}}}
    assert list(found := environment()) == ["cstool", "numpy", "numba", "blas", "cpu"]
    assert found["numpy"] == np.__version__
    assert values == {
        "global_step": 2,
        "dataloader": {"batches_streamed": 5, "batch_size": 4},
        "random": {"seed": 1, "generator": "philox4x32-10"},
        "choices": {"grain_samples": 1, "gemm": "numpy", **found},
        "__metadata__": [{"version": cstool.__version__, "model_name": "fc_mnist", "params": params}],
    }


@pytest.mark.parametrize("optimizer", [MOMENTUM, make_optimizer(Adafactor(), None)], ids=["momentum", "Adafactor"])
def test_loading_brings_back_every_bit_and_the_position(tmp_path, optimizer):
    before = saved(tmp_path / "c.mdl", optimizer=optimizer)
    arrays, position, _ = loaded(tmp_path / "c.mdl", optimizer=optimizer)
    assert position == PLACE
    np.testing.assert_equal(arrays, before)


@pytest.mark.parametrize(
    ("states", "optimizer", "sections", "position"),
    [
        ("all", MOMENTUM, {"model", "optimizer"}, Position(2, 5, 4)),
        ("model", ADAMW, {"model"}, Position(0, 0)),  # which goes to any optimizer
        ("model,dataloader", MOMENTUM, {"model"}, Position(0, 5, 4)),
        ("model, optimizer", MOMENTUM, {"model", "optimizer"}, Position(2, 0)),
        ("optimizer", MOMENTUM, {"optimizer"}, Position(2, 0)),
        ("all", None, {"model"}, Position(2, 0)),  # as evaluation does, which knows the step
    ],
)
def test_states_can_be_chosen_and_the_step_belongs_to_the_optimizer(tmp_path, states, optimizer, sections, position):
    before = saved(tmp_path / "c.mdl")
    arrays, found, _ = loaded(tmp_path / "c.mdl", states=states, optimizer=optimizer)
    assert {name for name, array in arrays.items() if array.any()} == {
        name for name in before if name.partition(".")[0] in sections
    }
    assert found == position


OF_ANOTHER = "hint: the checkpoint is of another optimizer: --load_checkpoint_states model loads the weights alone"


@pytest.mark.parametrize(
    ("of", "how", "rule"),
    [
        ({}, {"graph": fc_mnist(3)}, f"lacks the weight fc_layers.0.bias of this model{HINT}"),
        ({"graph": fc_mnist(3)}, {}, f"has the weight fc_layers.0.bias, which this model lacks{HINT}"),
        (
            {"graph": decoder(share_embedding_weights=False)},
            {"graph": decoder()},
            "has the weight lm_head.weight, which this model lacks\nhint: here it is tied to "
            "embedding_layer.word_embeddings.weight; share_embedding_weights: false in the model's params unties it",
        ),
        *(
            (
                {},
                {"graph": fc_mnist(5, use_bias=False), "strict": strict},
                f"fc_layers.0.weight must be 5 x 784, as in this model, got 3 x 784{HINT}",
            )
            for strict in (True, False)
        ),
        (
            {},
            {"optimizer": ADAMW},
            f"lacks optimizer.fc_layers.0.weight.exp_avg, which this optimizer needs\n{OF_ANOTHER}",
        ),
        (
            {"optimizer": ADAMW},
            {"optimizer": make_optimizer(SGD(), None)},
            f"has optimizer.fc_layers.0.weight.exp_avg, which this optimizer does not keep\n{OF_ANOTHER}",
        ),
    ],
)
def test_what_is_of_another_model_or_optimizer_is_refused(tmp_path, of, how, rule):
    path = tmp_path / "c.mdl"
    saved(path, **of)
    assert refusal(path, **how) == f"{path}: {rule}"


def test_if_not_strict_what_both_have_is_loaded(tmp_path):
    before = saved(tmp_path / "c.mdl")
    arrays, _, _ = loaded(tmp_path / "c.mdl", strict=False, graph=fc_mnist(3))
    assert {name for name, array in arrays.items() if array.any()} == before.keys()


def test_weights_without_a_step_can_be_evaluated(tmp_path):
    path = tmp_path / "c.mdl"
    with CheckpointWriter(path) as writer:
        for name, weight in fc_mnist(3, use_bias=False).weights.items():
            writer.add_tensor(f"model.{name}", weight.shape, "float32", [np.ones(weight.shape, np.float32)])
    assert loaded(path, optimizer=None)[1] == Position(0, 0)


def rewritten(path: Path, **changes: Any) -> Path:
    saved(path.with_name("original.mdl"))
    return rewrite(path.with_name("original.mdl"), path, **changes)


LAST, STATE = "model.last_layer.weight", "optimizer.last_layer.weight.momentum_buffer"


def scaler(**changes: Any) -> dict[str, Any]:
    return {"grad_scaler": {"loss_scale": 8.0, "steps_since_rescale": 0, "num_skipped_steps": 2, **changes}}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({LAST: np.zeros((10, 3), np.float64)}, f"{LAST} must be 10 x 3 float32, got 10 x 3 float64"),
        ({STATE: np.zeros((3, 10), np.float32)}, f"{STATE} must be 10 x 3 float32, got 3 x 10 float32"),
        ({"global_step": -3}, "global_step must be a count, got -3"),
        ({"global_step": "x"}, "global_step must be a count, got 'x'"),
        ({"global_step": 1.5}, "global_step must be a count, got 1.5"),
        ({"global_step": None}, "global_step must be a count, got None"),
        ({"global_step": True}, "global_step must be a count, got True"),
        ({"dataloader": {}}, "dataloader.batches_streamed must be a count, got None"),
        ({"dataloader": 7.5}, "dataloader.batches_streamed must be a count, got 7.5"),
        ({"grad_scaler": 7.5}, "grad_scaler must be a mapping, got 7.5"),
        (scaler(loss_scale="x"), "grad_scaler.loss_scale must be a number greater than 0, got 'x'"),
        (scaler(loss_scale=0.0), "grad_scaler.loss_scale must be a number greater than 0, got 0.0"),
        (scaler(steps_since_rescale=-1), "grad_scaler.steps_since_rescale must be a count, got -1"),
        (scaler(num_skipped_steps=None), "grad_scaler.num_skipped_steps must be a count, got None"),
        (scaler(num_skipped_steps=3), "grad_scaler.num_skipped_steps must be at most global_step (2), got 3"),
    ],
)
def test_what_no_run_would_write_is_refused(tmp_path, changes, rule):
    path = rewritten(tmp_path / "c.mdl", **changes)
    assert refusal(path) == f"{path}: {rule}"
    with CheckpointReader(path) as reader:
        if changes.keys() <= {"global_step", "dataloader", "grad_scaler"}:
            with refused(DamagedCheckpointError, f"{path}: {rule}"):
                reader.verify_all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, value):
    graph = fc_mnist(3, use_bias=False)
    with machine(graph, 4, optimizer=MOMENTUM) as appliance:
        set_array(appliance, "model.last_layer.weight", np.full((10, 3), value, np.float32))
        rule = "step 2: the weight last_layer.weight is not finite, so nothing is saved"
        with refused(NonFiniteError, rule, "a lower learning rate, max_gradient_norm or a longer warm-up may help"):
            save(tmp_path / "c.mdl", appliance, PLACE)
    assert list(tmp_path.iterdir()) == []


def test_a_decoders_weights_are_there_under_all_names_that_the_vendor_has(tmp_path):
    for tied in (True, False):
        path = tmp_path / f"{tied}.mdl"
        with machine(decoder(share_embedding_weights=tied), 2, optimizer=MOMENTUM) as appliance:
            save(path, appliance, PLACE)
        with CheckpointReader(path) as reader:
            links = {key: reader.link_of(key) for key in reader.keys() if reader.link_of(key) is not None}  # noqa: SIM118
        assert links == {
            "model.ln_f.weight": "model.transformer_decoder.norm.weight",
            "model.ln_f.bias": "model.transformer_decoder.norm.bias",
        } | ({"model.lm_head.weight": "model.embedding_layer.word_embeddings.weight"} if tied else {})
