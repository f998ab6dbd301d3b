"""Train small vision transformers for ten steps with Hugging Face's transformers and record their losses.

cstool's are compared with them. Updates are those of `torch.optim`. It imports nothing of cstool. Neither library is
needed to run the tests, only to make their numbers anew::

    pip install torch transformers==4.57.1
    python -m tests.reference.make_vision_curves

writes `vision_curves.json` beside this file, in the form of `loss_curves.json`. What is trained is in
`vision_curve_cases.py`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch.nn import functional

from tests.reference.curve_file import nine_digits, write_curves
from tests.reference.deterministic import STEPS, digest, weights
from tests.reference.vision_curve_cases import CASES, HF_CASES, Config, images_of

OUTPUT = Path(__file__).with_name("vision_curves.json")

_FRONT = {
    "vit_model.embedding_layer.linear_proj": "vit.embeddings.patch_embeddings.projection",
    "vit_model.encoder.transformer_encoder.norm": "vit.layernorm",
    "classifier.classifier.ffn.0.linear_layer": "classifier",
}
_LAYER = {
    "norm1": "layernorm_before",
    "self_attn.proj_q_dense_layer": "attention.attention.query",
    "self_attn.proj_k_dense_layer": "attention.attention.key",
    "self_attn.proj_v_dense_layer": "attention.attention.value",
    "self_attn.proj_output_dense_layer": "attention.output.dense",
    "norm2": "layernorm_after",
    "ffn.ffn.0.linear_layer": "intermediate.dense",
    "ffn.ffn.1.linear_layer": "output.dense",
}
_TOKEN, _POSITIONS = "vit_model.embedding_layer.cls_embedding", "vit_model.embedding_layer.position_embeddings.weight"


class _Rectangles(torch.nn.Module):
    """Patches of a height and a width: the library's own refuses what is no square."""

    def __init__(self, projection: torch.nn.Conv2d) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, images: torch.Tensor, interpolate_pos_encoding: bool = False) -> torch.Tensor:
        return self.projection(images).flatten(2).transpose(1, 2)


def build(model: Config) -> Any:
    """Return the library's model of a case."""
    sides = model["patch_size"]
    config = transformers.ViTConfig(
        hidden_size=model["hidden_size"],
        num_hidden_layers=model["num_hidden_layers"],
        num_attention_heads=model["num_heads"],
        intermediate_size=model["filter_size"],
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=model["layer_norm_epsilon"],
        image_size=tuple(model["image_size"]),
        patch_size=tuple(sides),
        num_channels=model["num_channels"],
        num_labels=model["num_classes"],
        attn_implementation="eager",
    )
    made = transformers.ViTForImageClassification(config)
    patches = made.vit.embeddings.patch_embeddings
    made.vit.embeddings.patch_embeddings = _Rectangles(patches.projection)
    return made


def train(config: Config, dtype: torch.dtype) -> tuple[list[float], str]:
    """Return the losses of ten steps, and the digest of the weights before them."""
    made = build(config["model"]).to(dtype).train()
    own = dict(made.named_parameters())
    parts = dict(_FRONT)
    for n in range(config["model"]["num_hidden_layers"]):
        for theirs, ours in _LAYER.items():
            parts[f"vit_model.encoder.transformer_encoder.layers.{n}.{theirs}"] = f"vit.encoder.layer.{n}.{ours}"
    named = {f"{theirs}.{end}": own[f"{ours}.{end}"] for theirs, ours in parts.items() for end in ("weight", "bias")}
    named[_TOKEN], named[_POSITIONS] = own["vit.embeddings.cls_token"], own["vit.embeddings.position_embeddings"]
    shapes = {name: tuple(w.shape) for name, w in named.items()}
    for name in named:
        size = shapes[name]
        shapes[name] = (size[0], int(np.prod(size[1:]))) if len(size) == 4 else size[1:] if len(size) == 3 else size
    shapes[_TOKEN] = shapes[_TOKEN][-1:]
    initial = weights(shapes, config["seed"])
    for name, w in named.items():
        array = initial[name]
        if name == _POSITIONS:  # the vendor has that of the class token last
            array = np.roll(array, 1, axis=0)
        w.data.copy_(torch.from_numpy(array).reshape(w.shape))
    keys = config["optimizer"]["AdamW"]
    decays = {name for name in named if len(shapes[name]) == 2 or name == _TOKEN}
    groups = [
        {"params": [w], "weight_decay": keys["weight_decay"] if name in decays else 0.0} for name, w in named.items()
    ]
    rate = config["schedulers"][0]["ConstantLR"]["learning_rate"]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=tuple(keys["betas"]), eps=keys["eps"])
    images, labels = images_of(config)
    losses = []
    for step in range(STEPS):
        logits = made(torch.from_numpy(images[step]).to(dtype)).logits
        loss = functional.cross_entropy(logits, torch.from_numpy(labels[step]).long())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(named.values(), config["precision"]["max_gradient_norm"])
        optimizer.step()
        losses.append(loss.item())
    return losses, digest(initial)


def record(config: Config) -> dict[str, Any]:
    """Return what the file holds of a case."""
    losses, weights_digest = train(config, torch.float32)
    images, labels = images_of(config)
    return {
        "config": config,
        "weights_digest": weights_digest,
        "data_digest": digest({"images": images, "labels": labels}),
        "losses": nine_digits(losses),
        "losses_float64": nine_digits(train(config, torch.float64)[0]),
    }


def main() -> None:
    """Write vision_curves.json."""
    torch.set_num_threads(1)
    made_by = f"make_vision_curves.py, torch {torch.__version__}, transformers {transformers.__version__}"
    write_curves(OUTPUT, made_by, {name: record(CASES[name]) for name in HF_CASES})


if __name__ == "__main__":
    main()
