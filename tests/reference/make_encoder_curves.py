"""Train small encoders for ten steps with the models of Hugging Face's transformers and record their losses.

cstool's are compared with them. The models are BertModel, RobertaModel and EsmModel with their heads; losses are
written here from the definitions that the vendor gives them, updates are those of `torch.optim`. It imports nothing of
cstool. Neither library is needed to run the tests, only to make their numbers anew::

    pip install torch transformers==4.57.1
    python -m tests.reference.make_encoder_curves

writes `encoder_curves.json` beside this file, in the form of `loss_curves.json`. What is trained is in
`encoder_curve_cases.py`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional

from tests.reference.curve_file import nine_digits, write_curves
from tests.reference.deterministic import STEPS, digest, weights
from tests.reference.encoder_curve_cases import CASES, Config, arrays_of

OUTPUT = Path(__file__).with_name("encoder_curves.json")

_LAYER = {
    "self_attn.proj_q_dense_layer": "attention.self.query",
    "self_attn.proj_k_dense_layer": "attention.self.key",
    "self_attn.proj_v_dense_layer": "attention.self.value",
    "self_attn.proj_output_dense_layer": "attention.output.dense",
    "ffn.ffn.0.linear_layer": "intermediate.dense",
    "ffn.ffn.1.linear_layer": "output.dense",
}
_NORMS = {"norm1": "attention.output.LayerNorm", "norm2": "output.LayerNorm"}
_NORMS_FIRST = {"norm1": "attention.LayerNorm", "norm2": "LayerNorm"}
_FRONT = {
    "embedding_layer.word_embeddings": "embeddings.word_embeddings",
    "embedding_layer.position_embeddings.embed": "embeddings.position_embeddings",
    "embedding_layer.segment_embeddings": "embeddings.token_type_embeddings",
    "embed_ln_f": "embeddings.LayerNorm",
    "transformer_encoder.norm": "encoder.emb_layer_norm_after",
    "pooler.pooler.ffn.0.linear_layer": "pooler.dense",
}


class Model(torch.nn.Module):
    """An encoder of transformers and what reads its tokens, of whatever head a case has."""

    def __init__(self, model: Config) -> None:
        super().__init__()
        common = {
            "vocab_size": model["vocab_size"],
            "hidden_size": model["hidden_size"],
            "num_hidden_layers": model["num_hidden_layers"],
            "num_attention_heads": model["num_heads"],
            "intermediate_size": model["filter_size"],
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "layer_norm_eps": model["layer_norm_epsilon"],
            "pad_token_id": model.get("pad_token_id", model.get("embedding_pad_token_id", 0)),
            "attn_implementation": "eager",
        }
        self.keys, self.name = model, model["name"]
        positions, width = model["max_position_embeddings"], model["hidden_size"]
        if self.name == "esm2":
            config = transformers.EsmConfig(
                **common,
                position_embedding_type="rotary",
                token_dropout=True,
                mask_token_id=model["mask_token_id"],
                emb_layer_norm_before=False,
                max_position_embeddings=positions,
            )
            self.encoder = transformers.EsmModel(config, add_pooling_layer=False)
        elif model.get("mask_padding_in_positional_embed"):
            offset = model["pad_token_id"] + 1
            config = transformers.RobertaConfig(**common, max_position_embeddings=positions + offset, type_vocab_size=1)
            self.encoder = transformers.RobertaModel(config, add_pooling_layer=False)
            # The vendor's has no segments.
            self.encoder.embeddings.token_type_embeddings.weight.data.zero_()
            self.encoder.embeddings.token_type_embeddings.weight.requires_grad = False
        else:
            config = transformers.BertConfig(**common, max_position_embeddings=positions, type_vocab_size=2)
            pools = self.name in ("bert", "bert/classifier")
            self.encoder = transformers.BertModel(config, add_pooling_layer=pools)
        eps = model["layer_norm_epsilon"]
        if self.name in ("bert", "esm2"):
            self.transform = torch.nn.Linear(width, width)
            self.norm = torch.nn.LayerNorm(width, eps=eps)
            self.decoder_bias = torch.nn.Parameter(torch.zeros(model["vocab_size"]))
            self.pairs = torch.nn.Linear(width, 2)
        else:
            self.classifier = torch.nn.Linear(width, model.get("num_classes") or model.get("num_labels", 2))

    def forward(self, b: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch."""
        segments = {} if self.name == "esm2" else {"token_type_ids": b["token_type_ids"]}
        if self.keys.get("mask_padding_in_positional_embed"):
            segments = {}
        ids: dict[str, torch.Tensor] = {"input_ids": b["input_ids"]}
        if self.name == "esm2":
            # This release of the library leaves out the mask here, and takes padding for tokens; the vendor does not.
            ids = {"inputs_embeds": self.encoder.embeddings(**ids, attention_mask=b["attention_mask"])}
        found = self.encoder(**ids, attention_mask=b["attention_mask"], **segments)
        x, samples = found.last_hidden_state, len(b["input_ids"])
        if self.name in ("bert", "esm2"):
            x = _gathered(x, b["masked_lm_positions"])
            x = self.norm(functional.gelu(self.transform(x)))
            logits = x @ self.encoder.embeddings.word_embeddings.weight.T + self.decoder_bias
            loss = _summed(logits, b["masked_lm_labels"], b["prediction_mask"]) / samples * self.keys["mlm_loss_weight"]
            if not self.keys.get("disable_nsp"):
                loss = loss + functional.cross_entropy(self.pairs(found.pooler_output), b["next_sentence_label"][:, 0])
            return loss
        if self.name == "bert/classifier":
            return functional.cross_entropy(self.classifier(found.pooler_output), b["class_labels"][:, 0])
        if self.name == "bert/token_classifier":
            loss = _summed(self.classifier(x), b["token_labels"], b["token_mask"]) / samples
            return loss / x.shape[1] if self.keys["include_padding_in_loss"] else loss
        x = self.classifier(_gathered(x, b["cls_positions"]))
        return _summed(x, b["cls_labels"], b["prediction_mask"]) / samples * self.keys["loss_weight"]

    def named(self) -> dict[str, torch.nn.Parameter]:
        """The parameters by the vendor's names."""
        prefix = "bert_encoder." if self.name in ("bert", "esm2") else "bert."
        parts = {f"{prefix}{theirs}": f"encoder.{ours}" for theirs, ours in _FRONT.items()}
        norms = _NORMS_FIRST if self.name == "esm2" else _NORMS
        for n in range(self.keys["num_hidden_layers"]):
            for theirs, ours in {**_LAYER, **norms}.items():
                parts[f"{prefix}transformer_encoder.layers.{n}.{theirs}"] = f"encoder.encoder.layer.{n}.{ours}"
        parts["bert_mlm_head.mlm_transform.ffn.ffn.0.linear_layer"] = "transform"
        parts["bert_mlm_head.mlm_transform.ln"] = "norm"
        parts["bert_cls_head.classifier.ffn.0.linear_layer"] = "pairs"
        parts["classifier"] = "classifier"
        own = dict(self.named_parameters())
        found = {
            f"{theirs}.{part}": own[f"{ours}.{part}"]
            for theirs, ours in parts.items()
            for part in ("weight", "bias")
            if f"{ours}.{part}" in own
        }
        if self.name in ("bert", "esm2"):
            found["bert_mlm_head.classifier.ffn.0.linear_layer.bias"] = self.decoder_bias
        if self.keys.get("disable_nsp"):
            found = {name: w for name, w in found.items() if "cls_head" not in name and "segment" not in name}
        return found


def _gathered(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, 1, positions[..., None].expand(-1, -1, x.shape[-1]))


def _summed(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    terms = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (terms * mask.flatten()).sum()


def _in_halves(name: str, array: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries and keys as transformers turns them: the first of all pairs of a head, then the second."""
    if not re.search(r"proj_[qk]_dense_layer", name):
        return array
    by_head = array.reshape(heads, -1, 2, *array.shape[1:])
    return np.ascontiguousarray(np.moveaxis(by_head, 2, 1)).reshape(array.shape)


def losses_of_steps(model: Model, arrays: Mapping[str, np.ndarray], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    """Yield the loss of each step's batch, computed from the weights as they are when it is asked for."""
    for step in range(STEPS):
        batch = {name: torch.from_numpy(np.ascontiguousarray(array[step])) for name, array in arrays.items()}
        yield model({name: x.to(dtype) if x.is_floating_point() else x.long() for name, x in batch.items()})


def train(config: Config, dtype: torch.dtype) -> tuple[list[float], str]:
    """Return the losses of ten steps, and the digest of the weights before them."""
    torch.manual_seed(0)
    model = Model(config["model"]).to(dtype).train()
    named = model.named()
    initial = weights({name: tuple(w.shape) for name, w in named.items()}, config["seed"])
    for name, w in named.items():
        array = initial[name]
        if config["model"]["name"] == "esm2":
            array = _in_halves(name, array, config["model"]["num_heads"])
        w.data.copy_(torch.from_numpy(array))
    keys = config["optimizer"]["AdamW"]
    groups = [{"params": [w], "weight_decay": keys["weight_decay"] if w.ndim == 2 else 0.0} for w in named.values()]
    optimizer = torch.optim.AdamW(groups, lr=0.1, betas=tuple(keys["betas"]), eps=keys["eps"])
    losses = []
    for loss in losses_of_steps(model, arrays_of(config), dtype):
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(named.values(), config["precision"].get("max_gradient_norm", math.inf))
        for group in optimizer.param_groups:
            group["lr"] = config["schedulers"][0]["ConstantLR"]["learning_rate"]
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


def main() -> None:
    """Write encoder_curves.json."""
    torch.set_num_threads(1)
    made_by = f"make_encoder_curves.py, torch {torch.__version__}, transformers {transformers.__version__}"
    write_curves(OUTPUT, made_by, {name: record(config) for name, config in CASES.items()})


if __name__ == "__main__":
    main()
