"""A training step of cstool on random numbers, as the other benchmarks time it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cstool.model.graphs import SampleForm, trained_graph
from cstool.model.ir import Graph, OpKind
from cstool.model.optimizers import make_optimizer
from cstool.model.params import Params, load_params, usual_predictions
from cstool.training.kernels.fastest import choose_for
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.inputs import Batch
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.sparsity import KernelChooser, sparsity_rules

FOLDER = Path(__file__).parent.parent / "params"
TARGETS_SHARE = 4
"""tokens of a source for each token of its target"""
_NO_DROPOUT = ("dropout_rate=0.0", "attention_dropout_rate=0.0")
# The well-known base size of encoders. Source: Devlin et al., "BERT", 2019, section 3.
_BASE = ("hidden_size=768", "num_heads=12", "num_hidden_layers=12", "filter_size=3072")
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
    "moe_tiny": (FOLDER / "moe_tiny.yaml", ()),
    "moe_gpt2_wide": (
        FOLDER / "moe_tiny.yaml",
        ("hidden_size=768", "num_heads=12", "filter_size=3072", "max_position_embeddings=512"),
    ),
    "bert_tiny": (FOLDER / "bert_tiny.yaml", ()),
    "bert_base": (
        FOLDER / "bert_tiny.yaml",
        (
            *(*_BASE, "vocab_size=30522", "max_position_embeddings=512", "num_segments=2", "norm_first=false"),
            *("use_final_layer_norm=false", "position_embedding_type=learned", "rotary_dim=null"),
        ),
    ),
    "t5_tiny": (FOLDER / "t5_tiny.yaml", ("mlm_loss_scaling=num_masked",)),
    "t5_base": (
        FOLDER / "t5_tiny.yaml",
        (
            *("mlm_loss_scaling=num_masked", "src_vocab_size=32000", "extra_ids=128", "d_model=768", "d_kv=64"),
            *("num_heads=12", "d_ff=3072", "encoder_num_hidden_layers=12", "decoder_num_hidden_layers=12"),
            *("src_max_position_embeddings=512", "tgt_max_position_embeddings=128"),
        ),
    ),
    "vit_tiny": (FOLDER / "vit_tiny.yaml", ()),
    "vit_base": (
        FOLDER / "vit_tiny.yaml",
        (*_BASE, "num_classes=1000", "image_size=[224,224]", "num_channels=3", "patch_size=[16,16]"),
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


def cstool_side(
    model: str,
    batch_size: int,
    precision: str = FLOAT32,
    sequence_length: int = 512,
    sparsity: float | None = None,
    lanes: int | None = None,
    adapters: str | None = None,
) -> tuple[Callable[[], None], Appliance]:
    """Return a function that trains one step of a model on random samples, and the appliance that does it.

    Dropout is off. Each call ends with `drain`, so that the updates that would overlap the next forward pass are on
    its own clock.

    Args:
        model: a key of `MODELS`
        sequence_length: tokens of a sample, of a source where there are targets; of no meaning for images
        sparsity: share of zeros, which stay where they are; None for dense weights
        adapters: as of `cstool run --lora`; None to train all weights
    """
    overrides = [] if sparsity is None else [f"trainer.init.sparsity={sparsity}"]
    overrides += [] if adapters is None else [f"trainer.init.lora={adapters}"]
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
    """The params and the graph of a key of `MODELS`. Losses of tokens are means, whatever the file says."""
    file, changes = MODELS[model]
    params = load_params(file, overrides=[*overrides, *(f"trainer.init.model.{change}" for change in changes)])
    form = SampleForm(
        sequence_length,
        usual_predictions(sequence_length),
        scales_by_predictions=True,
        targets=sequence_length // TARGETS_SHARE,
    )
    return params, trained_graph(params, form)


def random_batch(graph: Graph, batch_size: int) -> Batch:
    """Return random samples of a model, always the same ones, without padding."""
    rng = np.random.default_rng(0)
    output = next(op for op in graph.ops if op.kind is OpKind.SOFTMAX_LOSS)
    classes = graph.weights[output.weights[0]].shape[0]
    arrays = {}
    for tensor in graph.inputs:
        shape = (batch_size, *tensor.shape)
        if tensor.name in ("mask", "attention_mask"):
            arrays[tensor.name] = np.ones(shape, tensor.dtype)
        elif tensor.dtype == "float32":
            arrays[tensor.name] = rng.random(shape, np.float32)
        elif tensor.name == "masked_lm_positions":
            order = rng.random((batch_size, graph.sequence_length)).argsort(axis=1).astype(np.int32)
            arrays[tensor.name] = np.sort(order[:, : shape[1]], axis=1)
        else:
            most = 2 if tensor.name == "token_type_ids" else classes
            arrays[tensor.name] = rng.integers(0, most, shape, np.int32)
    return Batch(0, arrays, samples=batch_size, tokens=arrays["mask"].size, size=batch_size)
