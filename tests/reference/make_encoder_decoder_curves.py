"""Train small T5 models for ten steps with Hugging Face's transformers and record their losses.

cstool's are compared with them. Losses are written here from the definitions that the vendor gives them, updates are
those of `torch.optim`. It imports nothing of cstool. Neither library is needed to run the tests, only to make their
numbers anew::

    pip install torch transformers==4.57.1
    python -m tests.reference.make_encoder_decoder_curves

writes `encoder_decoder_curves.json` beside this file, in the form of `loss_curves.json`. What is trained is in
`encoder_decoder_curve_cases.py`. The parameters of T5-3B and T5-11B, as released, are counted along.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional

from tests.reference.curve_file import nine_digits, write_curves
from tests.reference.deterministic import STEPS, digest, weights
from tests.reference.encoder_decoder_curve_cases import CASES, Config, arrays_of

OUTPUT = Path(__file__).with_name("encoder_decoder_curves.json")

_FUNCTIONS = {"gelu": ("gelu", False), "relu": ("relu", False), "geglu": ("gelu", True)}
"""the vendor's nonlinearity -> that of transformers, and whether it has a gate"""
_PROJECTIONS = {"q": "q", "k": "k", "v": "v", "output": "o"}
_PARTS = {"self_attn": "SelfAttention", "multihead_attn": "EncDecAttention", "ffn": "DenseReluDense"}
RELEASED = {
    "t5-3b": {"d_model": 1024, "d_ff": 16384, "d_kv": 128, "num_heads": 32, "num_layers": 24},
    "t5-11b": {"d_model": 1024, "d_ff": 65536, "d_kv": 128, "num_heads": 128, "num_layers": 24},
}
"""shapes of the config.json of these models"""


def make_model(model: Config) -> torch.nn.Module:
    """Return the model of transformers for the vendor's keys."""
    function, is_gated = _FUNCTIONS[model.get("encoder_nonlinearity", "relu")]
    config = transformers.T5Config(
        vocab_size=model["src_vocab_size"],
        d_model=model["d_model"],
        d_kv=model["d_kv"],
        d_ff=model["d_ff"],
        num_layers=model["encoder_num_hidden_layers"],
        num_decoder_layers=model["decoder_num_hidden_layers"],
        num_heads=model["num_heads"],
        relative_attention_num_buckets=model.get("relative_attention_num_buckets", 32),
        dropout_rate=0.0,
        layer_norm_epsilon=model["layer_norm_epsilon"],
        feed_forward_proj="gated-silu" if is_gated else "relu",
        tie_word_embeddings=model.get("share_embedding_weights", True),
    )
    # The library takes another gelu for its gated one.
    config.dense_act_fn = function
    return transformers.T5ForConditionalGeneration(config)


def named(module: torch.nn.Module, model: Config) -> dict[str, torch.nn.Parameter]:
    """The parameters by the vendor's names."""
    names = {"encoder_embeddings.word_embeddings": "shared"}
    if not model.get("share_embedding_weights", True):
        names["lm_head"] = "lm_head"
    _, is_gated = _FUNCTIONS[model.get("encoder_nonlinearity", "relu")]
    linears = {"0.linear_layer": "wi_1" if is_gated else "wi", "1.linear_layer": "wo"}
    if is_gated:
        linears["0.linear_layer_for_glu"] = "wi_0"
    for stack, parts in (("encoder", ("self_attn", "ffn")), ("decoder", ("self_attn", "multihead_attn", "ffn"))):
        table = f"{stack}_embeddings.position_embed_helper.relative_attention_bias"
        names[table] = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names[f"{stack}.norm"] = f"{stack}.final_layer_norm"
        for n in range(model[f"{stack}_num_hidden_layers"]):
            for i, part in enumerate(parts):
                ours, theirs = f"{stack}.layers.{n}", f"{stack}.block.{n}.layer.{i}"
                names[f"{ours}.norm{i + 1}"] = f"{theirs}.layer_norm"
                inner = linears if part == "ffn" else _PROJECTIONS
                for left, right in inner.items():
                    name = f"ffn.{left}" if part == "ffn" else f"proj_{left}_dense_layer"
                    names[f"{ours}.{part}.{name}"] = f"{theirs}.{_PARTS[part]}.{right}"
    own = dict(module.named_parameters())
    return {f"{ours}.weight": own[f"{theirs}.weight"] for ours, theirs in names.items()}


def loss_of(module: torch.nn.Module, model: Config, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the loss of a batch."""
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    logits = module(**{name: batch[name] for name in names}).logits
    terms = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
    total = (terms * batch["mask"].flatten()).sum()
    if model.get("mlm_loss_scaling") == "num_masked":
        return total / batch["mask"].sum()
    return total / len(logits) * model["lm_loss_weight"]


def train(config: Config, dtype: torch.dtype) -> tuple[list[float], str]:
    """Return the losses of ten steps, and the digest of the weights before them."""
    torch.manual_seed(0)
    model = config["model"]
    module = make_model(model).to(dtype).train()
    parameters = named(module, model)
    initial = weights({name: tuple(w.shape) for name, w in parameters.items()}, config["seed"])
    for name, w in parameters.items():
        w.data.copy_(torch.from_numpy(initial[name]))
    keys = config["optimizer"]["AdamW"]
    # The vendor lets nothing decay that has "bias" in its name.
    decays = {name: w.ndim == 2 and "bias" not in name for name, w in parameters.items()}
    groups = [
        {"params": [w], "weight_decay": keys["weight_decay"] if decays[name] else 0.0} for name, w in parameters.items()
    ]
    rate = config["schedulers"][0]["ConstantLR"]["learning_rate"]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=tuple(keys["betas"]), eps=keys["eps"])
    arrays, losses = arrays_of(config), []
    for step in range(STEPS):
        batch = {name: torch.from_numpy(np.ascontiguousarray(array[step])) for name, array in arrays.items()}
        typed = {name: x.to(dtype) if x.is_floating_point() else x.long() for name, x in batch.items()}
        optimizer.zero_grad()
        loss = loss_of(module, model, typed)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), config["precision"].get("max_gradient_norm", math.inf))
        optimizer.step()
        losses.append(loss.item())
    return losses, digest(initial)


def record(config: Config) -> dict[str, Any]:
    """Return what the file holds of a case."""
    losses, weights_digest = train(config, torch.float32)
    return {
        "config": config,
        "weights_digest": weights_digest,
        "data_digest": digest(arrays_of(config)),
        "losses": nine_digits(losses),
        "losses_float64": nine_digits(train(config, torch.float64)[0]),
    }


def parameter_counts() -> dict[str, int]:
    """Return the parameters of the released models, which have a vocabulary of 32,128."""
    with torch.device("meta"):
        return {
            name: transformers.T5ForConditionalGeneration(
                transformers.T5Config(vocab_size=32128, **shape)
            ).num_parameters()
            for name, shape in RELEASED.items()
        }


def main() -> None:
    """Write encoder_decoder_curves.json."""
    torch.set_num_threads(1)
    made_by = f"make_encoder_decoder_curves.py, torch {torch.__version__}, transformers {transformers.__version__}"
    write_curves(OUTPUT, made_by, {name: record(config) for name, config in CASES.items()})
    written = json.loads(OUTPUT.read_text())
    counts = json.dumps(parameter_counts())
    OUTPUT.write_text(OUTPUT.read_text().replace("{\n", f'{{\n  "parameters": {counts},\n', 1))
    assert json.loads(OUTPUT.read_text())["cases"] == written["cases"]


if __name__ == "__main__":
    main()
