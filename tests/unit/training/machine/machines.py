"""Small appliances for tests: random weights, random batches, and gradients that can be looked at."""

import math
import re
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from cstool.model.graphs import SampleForm
from cstool.model.ir import Graph, losses_of
from cstool.model.optimizers import Step
from cstool.training.kernels._jit import elementwise
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.inputs import Batch
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.memoryx.shards import deal_panels
from cstool.training.machine.memoryx_store import Backing
from cstool.training.machine.state import Position, save_state, state_values
from cstool.training.store import CheckpointReader, CheckpointWriter
from tests.reference import models as reference

Array = np.ndarray

GRADIENT_TOLERANCE = 2e-5
"""largest error of a slope, as a share of the gradient's length: float32 gives 6e-8 for one operation, a whole model
adds up some 300 of them, one after the other"""
DIRECTIONS = 2
"""random ones that gradients are compared along"""


class GradientKeeper:
    """Stands in for an optimizer: keeps the gradient as its state and leaves the weights alone."""

    name, artifact_key, update_ops, is_one_loop = "keeper", "1", 1, True

    def states(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        return {"gradient": shape}

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        _keep(gradient, step.gradient_scale, states[0])


@elementwise
def _keep(gradient, scale, kept):
    for i in range(gradient.shape[0]):
        kept[i] = gradient[i] * np.float32(scale)


def make_appliance(graph: Graph, **settings: Any) -> Appliance:
    """Make an appliance; settings are fields of `KeptModel` and of `Backing`, and arguments of its own."""
    of_model = {each.name: settings.pop(each.name) for each in fields(KeptModel) if each.name in settings}
    of_place = {name: settings.pop(name) for name in Backing._fields if name in settings}
    kept = KeptModel(graph, **of_model)
    return Appliance(kept, backing=Backing(**{"shards": deal_panels(kept, 1), **of_place}), **settings)


USUAL: Any = {"max_gradient_norm": None, "seed": 3, "lanes": 1}
"""of an appliance"""


@contextmanager
def machine(graph, batch_size, *, optimizer=None, **settings):
    """Lend an appliance with large random weights, ready to train and to evaluate batches of a size."""
    with make_appliance(graph, optimizer=optimizer or GradientKeeper(), **{**USUAL, **settings}) as appliance:
        for trains in (True, False):
            appliance.prepare(batch_size, trains=trains)
        randomize(appliance)
        yield appliance


def randomize(appliance: Appliance, seed: int = 0) -> None:
    """Give every weight values that let no derivative vanish; sparse ones have their first masks."""
    rng = np.random.default_rng(seed)
    if appliance.memoryx.arrays.sparse:
        appliance.memoryx.initialize(seed)
    for name, weight in appliance.graph.weights.items():
        values = rng.standard_normal(weight.shape) * (0.5 if len(weight.shape) > 1 else 0.2)
        set_weight(appliance, name, values + (weight.initializer.mean if len(weight.shape) == 1 else 0.0))


def set_weight(appliance: Appliance, name: str, values: Array) -> None:
    """Give a weight these values, a sparse one those of its mask."""
    sparse = appliance.memoryx.arrays.sparse.get(name)
    if sparse is None:
        set_array(appliance, f"model.{name}", values)
    else:
        sparse.write(f"model.{name}", values.reshape(-1)[np.concatenate([*sparse.indices()])].astype(np.float32))


def dense_arrays(appliance: Appliance) -> dict[str, Array]:
    """Return copies of all arrays, sparse ones with their zeros."""
    memoryx = appliance.memoryx
    memoryx.drain()
    return {
        array: memoryx.arrays.sparse[name].dense(array) if name in memoryx.arrays.sparse else values_of(memoryx, array)
        for name in memoryx.arrays.graph.weights
        for array in memoryx.arrays.of(name)
    }


def values_of(memoryx: MemoryX, name: str) -> Array:
    memoryx.drain()
    return np.concatenate([part.copy() for part in memoryx.arrays.chunks(name)])


def array_of(appliance: Appliance, name: str) -> Array:
    return values_of(appliance.memoryx, name)


def set_array(appliance: Appliance, name: str, values: Array) -> None:
    appliance.memoryx.drain()
    appliance.memoryx.arrays.load(
        name, lambda out, start, stop: np.copyto(out, values[start:stop], casting="same_kind")
    )


def arrays_of(appliance: Appliance, prefix: str, suffix: str = "") -> dict[str, Array]:
    """Return copies of the arrays of all weights that are called prefix + weight + suffix."""
    graph = appliance.graph
    kept = graph.weights if prefix == "model." else graph.trained_weights
    return {name: array_of(appliance, f"{prefix}{name}{suffix}") for name in kept}


def _some_padding(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """1 for the first tokens of each sample, two at least, 0 for the rest."""
    return (np.arange(shape[1]) < rng.integers(2, shape[1] + 1, (shape[0], 1))).astype(np.int32)


def _of_pairs(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """1 for the first tokens of each of two texts, two at least, 0 for the rest."""
    return _some_padding(rng, (2 * shape[0], shape[1] // 2)).reshape(shape)


CHOICES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "attention_mask": _some_padding,
    "token_type_ids": lambda rng, shape: rng.integers(0, 2, shape, dtype=np.int32),
    "next_sentence_label": lambda rng, shape: rng.integers(0, 2, shape, dtype=np.int32),
    "masked_lm_positions": lambda rng, shape: rng.integers(0, 4, shape, dtype=np.int32),
    "cls_positions": lambda rng, shape: rng.integers(0, 4, shape, dtype=np.int32),
    "last_position": lambda rng, shape: rng.integers(2, 6, shape, dtype=np.int32),
    "position_ids": lambda rng, shape: rng.integers(0, 4, shape, dtype=np.int32),
    "segments": lambda rng, shape: np.sort(rng.integers(1, 4, shape, dtype=np.int32), axis=1),
    "sample_mask": lambda _, shape: np.ones(shape, np.float32),
    "desirable": lambda rng, shape: (rng.random(shape) < 0.5).astype(np.float32),
    "label_mask": lambda rng, shape: _of_pairs(rng, shape).astype(np.float32),
}
"""what is not just any numbers, by input"""


_OF_SIDE = re.compile("^(questions|ctx)_")


def random_batch(graph: Graph, batch_size: int, *, seed: int = 1, masked: float = 0.2) -> Batch:
    """Return random inputs for a graph, a share of the tokens masked; ids and labels are below 10."""
    rng = np.random.default_rng(seed)
    classes = {op.inputs[1]: graph.weights[op.weights[0]].shape[0] for op in graph.ops if losses_of(op) and op.weights}
    form = SampleForm.of(graph)
    of_text = {tensor.name: _OF_SIDE.sub("", tensor.name) for tensor in graph.inputs}
    pads = "attention_mask" in of_text.values()
    arrays: dict[str, Array] = {}
    for tensor in graph.inputs:
        kind, texts = of_text[tensor.name], (form.contexts or 1) if tensor.name.startswith("ctx_") else 1
        shape = (batch_size, *tensor.shape)
        if tensor.name == "mask":
            arrays["mask"] = (rng.random(shape) >= masked).astype(np.float32)
        elif kind in CHOICES:
            arrays[tensor.name] = CHOICES[kind](rng, (batch_size * texts, shape[1] // texts)).reshape(shape)
        elif tensor.dtype == "int32":
            # Where there is padding, its ids (0 or 1) are embedded, and learn nothing.
            least = 2 if (kind, pads) == ("input_ids", True) else 0
            most = min(10, classes[tensor.name]) if tensor.name in classes else 10
            arrays[tensor.name] = rng.integers(least, most, shape, dtype=np.int32)
        else:
            arrays[tensor.name] = rng.standard_normal(shape).astype(np.float32)
    if pads:
        # No token of padding is masked, or learns nothing; no sample is masked throughout.
        for name in (name for name, kind in of_text.items() if kind == "input_ids"):
            arrays[name][arrays[name.replace("input_ids", "attention_mask")] == 0] = 3
            arrays[name][:, 0] = 2
    return Batch(0, arrays, batch_size, int(np.count_nonzero(arrays["mask"])), batch_size)


def save(path: Path, appliance: Appliance, position: Position, **choices: Any) -> int:
    memoryx, params = appliance.memoryx, {"trainer": {"init": {"seed": 1}}}
    memoryx.drain()
    values = state_values(memoryx, position, model_name="fc_mnist", seed=1, choices=choices, params=params)
    return save_state(path, memoryx, values)


def rewrite(original: Path, path: Path, **changes: Any) -> Path:
    """Write a checkpoint with other tensors or values under some of its keys; "left out" leaves one out."""
    with CheckpointReader(original) as reader, CheckpointWriter(path) as writer:
        for name in reader.tensor_names():
            array = changes.get(name, reader.read(name))
            if not isinstance(array, str):
                writer.add_tensor(name, array.shape, str(array.dtype), [array])
        values = reader.values()
        new = {key: value for key, value in changes.items() if key not in reader.tensor_names()}
        for key, value in {**values, **new}.items():
            if value != "left out":
                writer.add_value(key, value)
    return path


def check_gradients(graph, batch_size, step, tolerance=GRADIENT_TOLERANCE, **settings):
    """Run a step, and compare all gradients with the slopes of the slow twin along random directions.

    All weights move at once, each as far as its gradient is short, so that an error of any counts by its share of that
    gradient. Where these add up to more than one may have, the weights move one by one.

    Returns:
        the relative error of its loss
    """
    batch = random_batch(graph, batch_size)
    with machine(graph, batch_size, **settings) as appliance:
        trained = appliance.train_step(batch, step, 0.1)
        weights, gradients = arrays_of(appliance, "model."), arrays_of(appliance, "optimizer.", ".gradient")
    rng = np.random.default_rng(2)
    exact = {name: weight.astype(np.float64) for name, weight in weights.items()}
    scales = [loss.scale(batch.tokens, batch.samples) for loss in graph.losses]
    lengths = {name: float(np.linalg.norm(gradient.astype(np.float64))) for name, gradient in gradients.items()}
    # Beside its own length that of all: a gradient may vanish, as that of a bias of keys does without dropout.
    units = {name: length + 0.01 * math.hypot(*lengths.values()) for name, length in lengths.items()}
    unit = min(units.values())

    def error(direction: dict[str, Array]) -> float:
        expected = reference.slope(graph, exact, batch.arrays, 3, step, direction, scales)
        return abs(sum(float(np.sum(gradients[name] * part)) for name, part in direction.items()) - expected) / unit

    for _ in range(DIRECTIONS):
        direction = {name: rng.standard_normal(weights[name].shape) * (unit / units[name]) for name in gradients}
        if error(direction) > tolerance:
            for name, part in direction.items():
                assert (of_one := error({name: part})) <= tolerance, f"{name}: error {of_one:.1e}"
    return abs(trained.loss / reference.loss(graph, exact, batch.arrays, 3, step, scales) - 1)
