"""Train small DPRs for ten steps with BertModel of Hugging Face's transformers, and record their losses.

    python -m tests.reference.make_dpr_curves

writes `dpr_curves.json`; see `make_encoder_curves.py`. The loss is written here from its definition.
"""

import math
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.nn import functional

from tests.reference.curve_file import nine_digits, write_curves
from tests.reference.deterministic import STEPS, digest, weights
from tests.reference.dpr_case import BATCH, CASES, CONTEXTS, SEED, tables
from tests.reference.make_encoder_curves import _FRONT, _LAYER, _NORMS

OUTPUT = Path(__file__).with_name("dpr_curves.json")


def _encoder(keys: dict[str, Any], pools: bool) -> transformers.BertModel:
    config = transformers.BertConfig(
        vocab_size=keys["vocab_size"],
        hidden_size=keys["hidden_size"],
        num_hidden_layers=keys["num_hidden_layers"],
        num_attention_heads=keys["num_heads"],
        intermediate_size=keys["filter_size"],
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=keys["layer_norm_epsilon"],
        pad_token_id=0,
        max_position_embeddings=keys["max_position_embeddings"],
        type_vocab_size=2,
        attn_implementation="eager",
    )
    return transformers.BertModel(config, add_pooling_layer=pools)


def _named(encoder: transformers.BertModel, prefix: str, layers: int) -> dict[str, torch.nn.Parameter]:
    parts = {f"{prefix}{theirs}": ours for theirs, ours in _FRONT.items()}
    for n in range(layers):
        for theirs, ours in {**_LAYER, **_NORMS}.items():
            parts[f"{prefix}transformer_encoder.layers.{n}.{theirs}"] = f"encoder.layer.{n}.{ours}"
    own = dict(encoder.named_parameters())
    return {
        f"{theirs}.{part}": own[f"{ours}.{part}"]
        for theirs, ours in parts.items()
        for part in ("weight", "bias")
        if f"{ours}.{part}" in own
    }


def train(config: dict[str, Any], dtype: torch.dtype) -> tuple[list[float], str]:
    """Return the losses of ten steps, and the digest of the weights before them."""
    model = config["model"]
    kind = model.get("pooler_type", "cls")
    keys = [model.get("q_encoder") or model["encoder"], model.get("ctx_encoder") or model["encoder"]]
    pools = kind == "ffn_pooler"
    question = _encoder(keys[0], pools).to(dtype).train()
    context = question if not model.get("use_biencoder", True) else _encoder(keys[1], pools).to(dtype).train()
    if pools:
        # The vendor's pooler has the nonlinearity of the encoder.
        question.pooler.activation = context.pooler.activation = torch.nn.GELU()
    named = _named(question, "question_encoder.", keys[0]["num_hidden_layers"])
    if context is not question:
        named |= _named(context, "ctx_encoder.", keys[1]["num_hidden_layers"])
    initial = weights({name: tuple(w.shape) for name, w in named.items()}, SEED)
    for name, w in named.items():
        w.data.copy_(torch.from_numpy(initial[name]))
    adam = config["optimizer"]["AdamW"]
    groups = [{"params": [w], "weight_decay": adam["weight_decay"] if w.ndim == 2 else 0.0} for w in named.values()]
    rate = config["schedulers"][0]["ConstantLR"]["learning_rate"]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=tuple(adam["betas"]), eps=adam["eps"])
    losses = []

    def embedded(encoder: transformers.BertModel, table: torch.Tensor) -> torch.Tensor:
        ids, mask, kinds = (table[:, i].reshape(-1, table.shape[-1]) for i in range(3))
        found = encoder(input_ids=ids, attention_mask=mask, token_type_ids=kinds)
        if kind == "mean":
            counts = mask[..., None].to(dtype)
            return (found.last_hidden_state * counts).sum(1) / counts.sum(1)
        return found.pooler_output if pools else found.last_hidden_state[:, 0]

    arrays = {name: torch.from_numpy(table).long() for name, table in tables().items()}
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        asked, given = embedded(question, arrays["data_0"][rows]), embedded(context, arrays["data_1"][rows])
        scores = asked @ given.T / model.get("softmax_temperature", 1.0)
        loss = functional.cross_entropy(scores, torch.arange(BATCH) * CONTEXTS)
        if model.get("mutual_information"):
            back = functional.cross_entropy(scores[:, ::CONTEXTS].T, torch.arange(BATCH))
            loss = loss * CONTEXTS / (1 + CONTEXTS) + back / (1 + CONTEXTS)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(named.values(), config["precision"].get("max_gradient_norm", math.inf))
        optimizer.step()
        losses.append(loss.item())
    return losses, digest(initial)


def record(config: dict[str, Any]) -> dict[str, Any]:
    """Return what the file holds of a case."""
    losses, weights_digest = train(config, torch.float32)
    return {
        "config": config,
        "weights_digest": weights_digest,
        "data_digest": digest(tables()),
        "losses": nine_digits(losses),
        "losses_float64": nine_digits(train(config, torch.float64)[0]),
    }


def main() -> None:
    """Write dpr_curves.json."""
    torch.set_num_threads(1)
    made_by = f"make_dpr_curves.py, torch {torch.__version__}, transformers {transformers.__version__}"
    write_curves(OUTPUT, made_by, {name: record(config) for name, config in CASES.items()})


if __name__ == "__main__":
    main()
