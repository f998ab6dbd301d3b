"""A training step of cstool on random numbers, as the other benchmarks time it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cstool.model.graphs import build_graph
from cstool.model.ir import Graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import Params, load_params
from cstool.training.kernels.fastest import choose_for
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.inputs import Batch
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.sparsity import KernelChooser, sparsity_rules

FOLDER = Path(__file__).parent.parent / "params"
_NO_DROPOUT = ("dropout_rate=0.0", "attention_dropout_rate=0.0")
MODELS: dict[str, tuple[Path, tuple[str, ...]]] = {
    "gpt2": (FOLDER / "gpt2_small.yaml", _NO_DROPOUT),
    "gpt3_xl_wide": (
        FOLDER / "gpt3_xl.yaml",
        (*_NO_DROPOUT, "vocab_size=256", "num_hidden_layers=2", "max_position_embeddings=512"),
    ),
    "gpt_tiny": (FOLDER / "gpt_tiny.yaml", ()),
    "moe_wide": (
        FOLDER / "moe_tiny.yaml",
        (
            *(*_NO_DROPOUT, "hidden_size=1024", "num_heads=8", "filter_size=4096", "num_hidden_layers=2"),
            "max_position_embeddings=512",
        ),
    ),
    "fc_mnist": (FOLDER / "fc_mnist.yaml", ()),
    "llama": (
        FOLDER / "llama3_8b.yaml",
        (
            *_NO_DROPOUT,
            *("vocab_size=32000", "hidden_size=768", "num_hidden_layers=12", "num_heads=12", "filter_size=2048"),
            *("extra_attention_params.num_kv_groups=4", "rotary_dim=64", "pos_scaling_type=linear"),
            *("pos_scaling_factor=1.0", "pos_scaling_extra_args=null", "rope_theta=10000.0"),
        ),
    ),
}
"""by name: a stock file, and what is changed in its model section"""
CLASSES = 10
"""of digits"""


def cstool_side(
    model: str,
    batch_size: int,
    precision: str = FLOAT32,
    sequence_length: int = 512,
    sparsity: float | None = None,
    lanes: int | None = None,
) -> tuple[Callable[[], None], Appliance]:
    """Return a function that trains one step of a model on random samples, and the appliance that does it.

    Dropout is off. Each call ends with `drain`, so that the updates that would overlap the next forward pass are on
    its own clock.

    Args:
        model: a key of `MODELS`
        sequence_length: tokens of a sample; of no meaning for digits
        sparsity: share of zeros, which stay where they are; None for dense weights
    """
    overrides = [] if sparsity is None else [f"trainer.init.sparsity={sparsity}"]
    overrides.append(f"trainer.fit.train_dataloader.batch_size={batch_size}")
    params, graph = model_graph(model, sequence_length, overrides)
    chooser = KernelChooser("auto")
    appliance = Appliance(
        KeptModel(
            graph,
            make_optimizer(params.optimizer, None),
            sparsity_rules(params, graph, chooser),
            precision,
            params.precision.max_gradient_norm,
        ),
        seed=1,
        lanes=lanes,
    )
    appliance.memoryx.initialize(seed=1)
    plan = appliance.prepare(batch_size, trains=True).plan
    appliance.multiply_with(choose_for(graph, precision, plan.samples, trains=True))
    chooser.settle(appliance.memoryx.arrays.sparse_shapes(), plan.samples * plan.tokens, appliance.gemm)
    batch = random_batch(graph, batch_size)
    steps = itertools.count(1)

    def step() -> None:
        number = next(steps)
        appliance.train_step(batch, number, params.learning_rate(number))
        appliance.memoryx.drain()

    return step, appliance


def model_graph(model: str, sequence_length: int, overrides: Sequence[str] = ()) -> tuple[Params, Graph]:
    """The params and the graph of a key of `MODELS`."""
    file, changes = MODELS[model]
    params = load_params(file, overrides=[*overrides, *(f"trainer.init.model.{change}" for change in changes)])
    return params, build_graph(params.model, None if model == "fc_mnist" else sequence_length)


def random_batch(graph: Graph, batch_size: int) -> Batch:
    """Return random samples of a model, always the same ones: tokens, or digits."""
    rng = np.random.default_rng(0)
    (sequence,) = graph.tensors["labels"].shape or (1,)
    arrays = {"mask": np.ones((batch_size, *graph.tensors["labels"].shape), np.float32)}
    if "x" in graph.tensors:
        arrays["x"] = rng.random((batch_size, *graph.tensors["x"].shape), np.float32)
        arrays["labels"] = rng.integers(0, CLASSES, batch_size).astype(np.int32)
    else:
        vocab_size = graph.weights["embedding_layer.word_embeddings.weight"].shape[0]
        tokens = rng.integers(0, vocab_size, (batch_size, sequence + 1)).astype(np.int32)
        arrays |= {"input_ids": tokens[:, :-1].copy(), "labels": tokens[:, 1:].copy()}
    return Batch(0, arrays, samples=batch_size, tokens=batch_size * sequence, size=batch_size)
