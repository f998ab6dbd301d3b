"""Train the small models of a family for ten steps in PyTorch, and record losses for cstool to be compared with.

    pip install torch transformers==4.57.1     # the extra "bench" has PyTorch
    python -m tests.reference.make_curves FAMILY

writes the curves of a family of `families.py` beside this file. An implementation of its own, written from the
definitions of the models: it imports nothing of cstool, and takes gradients from autograd, updates from `torch.optim`
and clipping from `torch.nn.utils`. Decoders are those of `torch_decoders.py`; the losses of DPO are written here from
the papers; encoders, T5, DPR and vision transformers are models of Hugging Face's transformers, their losses written
here from the definitions that the vendor gives them. Neither library is needed to run the tests, only to make their
numbers anew. `losses` of a case are those before the update of steps 1 to 10, in float32; `losses_float64` are the same
curve in double precision: how far the two are apart is the noise of float32 itself, 4e-7 at most. Nor does a decoder's
curve fork: weights changed by 6e-8 of their size at random, in float64, move no loss by more than 2e-7. `config` uses
the vendor's keys, so that the other side can read it as params.

What a tolerance sees, measured by making the mistake here, as the largest relative change of a loss of the case. 5e-6
sees them all::

    decoder_tied      eps of 1e-6 in AdamW 1.4e-5, tanh form of gelu 1.5e-5, no weight decay 1.3e-4, decay of biases and
                      norms too 1.5e-4, no clipping 2e-3, a schedule one step off 2e-2
    llama             pairs of halves, not neighbours 4e-2, turned the other way 2e-2, frequencies not scaled 3e-2, all
                      divided 3e-2, the middle ones divided 9e-3, low_freq_factor 1 9e-3, high_freq_factor 4 9e-3, base
                      10000 2e-2, key-value heads in turns 4e-2, gate and up exchanged 2e-2, layer norm 2e-2, epsilon
                      1e-6 6e-5
    llama_yarn        no amplitude 8e-3, amplitude on what does not turn 9e-3, beta_fast 32 1e-2, beta_slow doubled
                      1e-2, bounds not rounded 2e-3, whole head turned 2e-2
    llama_linear      no factor 4e-2, factor upside down 5e-2
    mistral           window one shorter 2e-2, one longer 2e-2, none 2e-2
    mistral_sinks     no sinks 2e-2, one less 1e-2, sinks that count as part of the window 3e-2
    falcon            sequential 3e-1, a quarter of the head turned 9e-3, epsilon 1e-6 3e-5
    falcon_two_norms  the first norm for both 6e-3, no shift of the second 3e-3, key-value heads in turns 2e-2
    bloom             slopes sorted 2e-2, reversed 1e-2, of one row 7e-3, scaled as the scores are 2e-2, none 2e-2, no
                      embedding norm 1e-1, no shift of it 5e-3
    gptj              whole head turned 1e-2, pairs of halves 6e-3, no bias of the logits 7e-4, of the network 3e-3
    gpt-neox          whole head turned by default 1e-2, erf form of gelu 3e-5, no bias of keys 1e-4
    gemma2            no cap of scores 7e-3, cap before scale 2e-2, no cap of logits 3e-2, window in the other layers
                      2e-2, in all 2e-2, no norm1_post 1e-1, no norm3_post 1e-2, width H / heads 4e-3, tanh form of
                      gelu 2e-5, scales 1 + w 2e-1, embeddings not scaled 1e-1, epsilon 1e-5 8e-6
    mup               scores / sqrt(D) 1e-2, no alpha of scores 2e-3, of logits 6e-2, logits / sqrt of the width 2e-1,
                      positions not scaled 4e-2, one rate for all 1e-2, attention not slowed 2e-2, rates of the network
                      exchanged 2e-3, decay at the unscaled rate 3e-3
    mup_parallel      scores / sqrt(D) 1e-1, logits / width 1e-1, bias of logits not scaled 3e-4, adjust_learning_rate
                      ignored 4e-2, on top of muP's 8e-2
    adjusted_rates    ignored 7e-3, word embeddings alone 1e-3, erf form of gelu 2e-4, decay at the unscaled rate 5e-5
    jais              no pos_scaling_factor 3e-2, gate and up exchanged 2e-2, no bias of the gate 2e-3, of queries 1e-3
    starcoder         scores not divided by the layer 5e-3, layers counted from 0 2e-3, no bias of values 4e-3
    fixed_positions   sines before cosines 3e-2, increment by H / 2 2e-3, scores scaled 8e-3, plain relu 1e-2

Sources of DPO: arXiv:2305.18290 (sigmoid), 2305.10425 (hinge), 2310.12036 (ipo), 2402.13228 (dpop).
"""

import argparse
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from tests.reference import torch_decoders
from tests.reference.deterministic import STEPS, digest, weights
from tests.reference.dpr_case import BATCH, CONTEXTS, SEED
from tests.reference.families import FAMILIES, Arrays
from tests.reference.recorded_file import nine_digits, write_curves
from tests.reference.torch_decoders import Config, Weights, linear
from tests.reference.vision_curve_cases import HF_CASES

Parameters = dict[str, torch.nn.Parameter]
Batch = dict[str, torch.Tensor]


class Trained(NamedTuple):
    """A model that is trained: its weights, and the loss of a batch."""

    weights: Mapping[str, torch.Tensor]
    """those that are trained, by the vendor's names"""
    loss: Callable[[Batch], torch.Tensor]
    digest: str
    """of the weights before the first step"""


class TransformersModel(NamedTuple):
    """A model of transformers: its parameters by the vendor's names, its loss, and how its weights are laid out."""

    module: torch.nn.Module
    named: Parameters
    loss: Callable[[Batch], torch.Tensor]
    laid_out: Callable[[str, np.ndarray], np.ndarray] = lambda _, array: array
    shapes: Mapping[str, tuple[int, ...]] = {}
    """of the vendor's weights, where they are not those of the parameters"""


def _of_transformers(make: Callable[[Config], TransformersModel]) -> Callable[[Config, torch.dtype], Trained]:
    def build(config: Config, dtype: torch.dtype) -> Trained:
        torch.manual_seed(0)
        model = make(config)
        model.module.to(dtype).train()
        shapes = {name: tuple(w.shape) for name, w in model.named.items()} | dict(model.shapes)
        initial = weights(shapes, config.get("seed", SEED))
        for name, w in model.named.items():
            w.data.copy_(torch.from_numpy(model.laid_out(name, initial[name])).reshape(w.shape))
        return Trained(model.named, model.loss, digest(initial))

    return build


def _named(module: torch.nn.Module, parts: Mapping[str, str]) -> Parameters:
    """Return parameters by the vendor's names; `parts` has those of the modules, theirs -> ours."""
    own = dict(module.named_parameters())
    return {
        f"{theirs}.{part}": own[f"{ours}.{part}"]
        for theirs, ours in parts.items()
        for part in ("weight", "bias")
        if f"{ours}.{part}" in own
    }


# Decoders and networks of layers that are fully connected.


def hidden_sizes(model: Config) -> list[int]:
    """Return the widths of the hidden layers of an fc_mnist model."""
    return list(model.get("hidden_sizes") or [model["hidden_size"]] * model["depth"])


def fc_shapes(model: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of an fc_mnist model."""
    sizes = [784, *hidden_sizes(model), 10]
    names = [*(f"fc_layers.{n}" for n in range(len(sizes) - 2)), "last_layer"]
    return {
        name: shape
        for i, layer in enumerate(names)
        for name, shape in ((f"{layer}.weight", (sizes[i + 1], sizes[i])), (f"{layer}.bias", (sizes[i + 1],)))
    }


def fc_logits(model: Config, w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return the logits (B, 10) of images (B, 784)."""
    for n in range(len(hidden_sizes(model))):
        x = torch.relu(linear(x, w, f"fc_layers.{n}"))
    return linear(x, w, "last_layer")


def decoder(config: Config, dtype: torch.dtype) -> Trained:
    """Return the model of a case of decoders."""
    model = config["model"]
    is_network = model["name"] == "fc_mnist"
    initial = weights(fc_shapes(model) if is_network else torch_decoders.weight_shapes(model), config["seed"])
    w = {name: torch.from_numpy(array).to(dtype).requires_grad_() for name, array in initial.items()}

    def loss(batch: Batch) -> torch.Tensor:
        if is_network:
            # The vendor's normalisation of MNIST: its mean and standard deviation.
            x = (batch["pixels"].to(dtype) / 255.0 - 0.1307) / 0.3081
            return functional.cross_entropy(fc_logits(model, w, x), batch["labels"])
        ids, mask, labels = batch["text"].unbind(dim=1)
        logits = torch_decoders.decoder_logits(model, w, ids)
        token_losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        keys = torch_decoders.complete(model)
        divisor = mask.sum() if keys["loss_scaling"] == "num_tokens" else config["batch_size"]
        return (token_losses * mask.flatten()).sum() * (keys["loss_weight"] / divisor)

    return Trained(w, loss, digest(initial))


# Preferences.

POLICY, REFERENCE = "policy_model.model.", "ref_model.model."


def log_probability(model: Config, w: Weights, text: torch.Tensor, is_mean: bool) -> torch.Tensor:
    """Return log p of the labels that count of texts, (B, 3, S) -> (B,): their sum or their mean."""
    ids, mask, labels = text.unbind(dim=1)
    logs = functional.log_softmax(torch_decoders.decoder_logits(model, w, ids), dim=-1)
    found = (logs.gather(-1, labels[..., None])[..., 0] * mask).sum(dim=-1)
    return found / mask.sum(dim=-1) if is_mean else found


def whole_text_loss(model: Config, w: dict[str, torch.Tensor], text: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of all tokens of texts, prompts too, (B, 3, S); a text ends with its last label."""
    ids, mask, labels = text.unbind(dim=1)
    ends = mask.flip(-1).cummax(dim=-1).values.flip(-1) == 1
    labels = torch.where(mask == 1, labels, ids.roll(-1, dims=-1))
    logs = functional.log_softmax(torch_decoders.decoder_logits(model, w, ids), dim=-1)
    return -logs.gather(-1, labels[..., None])[..., 0][ends].mean()


def preferences(config: Config, dtype: torch.dtype) -> Trained:
    """Return policy and reference of a case, of which the policy is trained."""
    settings, policy = config["model"]["dpo"], config["model"]["policy_model"]
    kind, beta = settings.get("loss_type", "sigmoid"), settings["beta"]
    is_free = settings.get("reference_free") or kind == "orpo"
    prefixes = [POLICY, *([] if is_free else [REFERENCE])]
    shapes = torch_decoders.weight_shapes(policy)
    initial = weights({prefix + name: shape for prefix in prefixes for name, shape in shapes.items()}, config["seed"])
    w = {name: torch.from_numpy(array).to(dtype) for name, array in initial.items()}
    trained = {name: array.requires_grad_() for name, array in w.items() if name.startswith(POLICY)}

    def loss(batch: Batch) -> torch.Tensor:
        pairs = batch["pairs"]

        def log_probabilities(prefix: str) -> list[torch.Tensor]:
            own = {name.removeprefix(prefix): array for name, array in w.items() if name.startswith(prefix)}
            is_mean = kind in ("ipo", "orpo")
            return [log_probability(policy, own, part, is_mean) for part in (pairs[:, :3], pairs[:, 3:6])]

        chosen, rejected = log_probabilities(POLICY)
        if kind == "orpo":
            odds = chosen - rejected - torch.log(-torch.expm1(chosen)) + torch.log(-torch.expm1(rejected))
            own = {name.removeprefix(POLICY): array for name, array in w.items()}
            return whole_text_loss(policy, own, pairs[:, :3]) + beta * functional.softplus(-odds).mean()
        if not is_free:
            with torch.no_grad():
                chosen_before, rejected_before = log_probabilities(REFERENCE)
            chosen, rejected = chosen - chosen_before, rejected - rejected_before
        if kind == "kto":
            # The second text is a mismatched answer.
            limit, is_good = rejected.mean().detach().clamp(min=0), pairs[:, 6, 0] == 1
            losses = 1 - torch.sigmoid(beta * torch.where(is_good, chosen - limit, limit - chosen))
            return torch.where(is_good, losses, settings["undesirable_weight"] * losses).mean()
        margin = chosen - rejected
        if kind == "hinge":
            return (1 - beta * margin).clamp(min=0).mean()
        if kind == "ipo":
            return (margin - 1 / (2 * beta)).square().mean()
        if kind == "dpop":
            margin = margin - settings["dpop_penalty_weight"] * (-chosen).clamp(min=0)
        return functional.softplus(-beta * margin).mean()

    return Trained(trained, loss, digest(initial))


# Encoders.

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


def _common(keys: Config) -> dict[str, Any]:
    """Return what configs of transformers say of a stack of layers."""
    return {
        "hidden_size": keys["hidden_size"],
        "num_hidden_layers": keys["num_hidden_layers"],
        "num_attention_heads": keys["num_heads"],
        "intermediate_size": keys["filter_size"],
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": keys["layer_norm_epsilon"],
        "attn_implementation": "eager",
    }


def _parts(prefix: str, own: str, layers: int, norms: Mapping[str, str]) -> dict[str, str]:
    parts = {f"{prefix}{theirs}": f"{own}{ours}" for theirs, ours in _FRONT.items()}
    for n in range(layers):
        for theirs, ours in {**_LAYER, **norms}.items():
            parts[f"{prefix}transformer_encoder.layers.{n}.{theirs}"] = f"{own}encoder.layer.{n}.{ours}"
    return parts


class Encoder(torch.nn.Module):
    """An encoder of transformers and what reads its tokens, of whatever head a case has."""

    def __init__(self, model: Config) -> None:
        import transformers

        super().__init__()
        pad = model.get("pad_token_id", model.get("embedding_pad_token_id", 0))
        common = {**_common(model), "vocab_size": model["vocab_size"], "pad_token_id": pad}
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

    def forward(self, b: Batch) -> torch.Tensor:
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

    def named(self) -> Parameters:
        """The parameters by the vendor's names."""
        prefix = "bert_encoder." if self.name in ("bert", "esm2") else "bert."
        norms = _NORMS_FIRST if self.name == "esm2" else _NORMS
        parts = _parts(prefix, "encoder.", self.keys["num_hidden_layers"], norms)
        parts["bert_mlm_head.mlm_transform.ffn.ffn.0.linear_layer"] = "transform"
        parts["bert_mlm_head.mlm_transform.ln"] = "norm"
        parts["bert_cls_head.classifier.ffn.0.linear_layer"] = "pairs"
        parts["classifier"] = "classifier"
        found = _named(self, parts)
        if self.name in ("bert", "esm2"):
            found["bert_mlm_head.classifier.ffn.0.linear_layer.bias"] = self.decoder_bias
        if self.keys.get("disable_nsp"):
            found = {name: w for name, w in found.items() if "cls_head" not in name and "segment" not in name}
        return found


def encoder(config: Config) -> TransformersModel:
    """Return the model of a case of encoders."""
    keys = config["model"]

    def in_halves(name: str, array: np.ndarray) -> np.ndarray:
        """Rows of queries and keys as ESM turns them: the first of all pairs of a head, then the second."""
        if keys["name"] != "esm2" or not re.search(r"proj_[qk]_dense_layer", name):
            return array
        by_head = array.reshape(keys["num_heads"], -1, 2, *array.shape[1:])
        return np.ascontiguousarray(np.moveaxis(by_head, 2, 1)).reshape(array.shape)

    model = Encoder(keys)
    return TransformersModel(model, model.named(), model, in_halves)


def _gathered(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return torch.gather(x, 1, positions[..., None].expand(-1, -1, x.shape[-1]))


def _summed(logits: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    terms = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (terms * mask.flatten()).sum()


# DPR.


def dpr(config: Config) -> TransformersModel:
    """Return the encoders of a case of DPR."""
    import transformers

    model = config["model"]
    kind = model.get("pooler_type", "cls")
    pools = kind == "ffn_pooler"
    made, named = [], {}
    for side, own in (("question", "q_encoder"), ("ctx", "ctx_encoder")):
        keys = model.get(own) or model["encoder"]
        if made and not model.get("use_biencoder", True):
            made.append(made[0])
            continue
        common = {**_common(keys), "vocab_size": keys["vocab_size"], "pad_token_id": 0}
        positions = keys["max_position_embeddings"]
        configured = transformers.BertConfig(**common, max_position_embeddings=positions, type_vocab_size=2)
        made.append(transformers.BertModel(configured, add_pooling_layer=pools))
        if pools:
            # The vendor's pooler has the nonlinearity of the encoder.
            made[-1].pooler.activation = torch.nn.GELU()
        named |= _named(made[-1], _parts(f"{side}_encoder.", "", keys["num_hidden_layers"], _NORMS))

    def embedded(encoder: torch.nn.Module, table: torch.Tensor) -> torch.Tensor:
        ids, mask, kinds = (table[:, i].reshape(-1, table.shape[-1]) for i in range(3))
        found = encoder(input_ids=ids, attention_mask=mask, token_type_ids=kinds)
        if kind == "mean":
            counts = mask[..., None].to(found.last_hidden_state.dtype)
            return (found.last_hidden_state * counts).sum(1) / counts.sum(1)
        return found.pooler_output if pools else found.last_hidden_state[:, 0]

    def loss(batch: Batch) -> torch.Tensor:
        asked, given = embedded(made[0], batch["data_0"]), embedded(made[1], batch["data_1"])
        scores = asked @ given.T / model.get("softmax_temperature", 1.0)
        found = functional.cross_entropy(scores, torch.arange(BATCH) * CONTEXTS)
        if model.get("mutual_information"):
            back = functional.cross_entropy(scores[:, ::CONTEXTS].T, torch.arange(BATCH))
            found = found * CONTEXTS / (1 + CONTEXTS) + back / (1 + CONTEXTS)
        return found

    return TransformersModel(torch.nn.ModuleList(made), named, loss)


# T5.

_FUNCTIONS = {"gelu": ("gelu", False), "relu": ("relu", False), "geglu": ("gelu", True)}
"""the vendor's nonlinearity -> that of transformers, and whether it has a gate"""
_T5_PARTS = {"self_attn": "SelfAttention", "multihead_attn": "EncDecAttention", "ffn": "DenseReluDense"}
_RELEASED = {
    "t5-3b": {"d_model": 1024, "d_ff": 16384, "d_kv": 128, "num_heads": 32, "num_layers": 24},
    "t5-11b": {"d_model": 1024, "d_ff": 65536, "d_kv": 128, "num_heads": 128, "num_layers": 24},
}
"""shapes of the config.json of these models"""


def t5(config: Config) -> TransformersModel:
    """Return the model of a case of encoder-decoders."""
    import transformers

    model = config["model"]
    function, is_gated = _FUNCTIONS[model.get("encoder_nonlinearity", "relu")]
    is_tied = model.get("share_embedding_weights", True)
    configured = transformers.T5Config(
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
        tie_word_embeddings=is_tied,
    )
    # The library takes another gelu for its gated one.
    configured.dense_act_fn = function
    module = transformers.T5ForConditionalGeneration(configured)
    linears = {"0.linear_layer": "wi_1" if is_gated else "wi", "1.linear_layer": "wo"}
    if is_gated:
        linears["0.linear_layer_for_glu"] = "wi_0"
    names = {"encoder_embeddings.word_embeddings": "shared", **({} if is_tied else {"lm_head": "lm_head"})}
    for stack, parts in (("encoder", ("self_attn", "ffn")), ("decoder", ("self_attn", "multihead_attn", "ffn"))):
        table = f"{stack}_embeddings.position_embed_helper.relative_attention_bias"
        names[table] = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names[f"{stack}.norm"] = f"{stack}.final_layer_norm"
        for n in range(model[f"{stack}_num_hidden_layers"]):
            for i, part in enumerate(parts):
                ours, theirs = f"{stack}.layers.{n}", f"{stack}.block.{n}.layer.{i}"
                names[f"{ours}.norm{i + 1}"] = f"{theirs}.layer_norm"
                inner = linears if part == "ffn" else {"q": "q", "k": "k", "v": "v", "output": "o"}
                for left, right in inner.items():
                    name = f"ffn.{left}" if part == "ffn" else f"proj_{left}_dense_layer"
                    names[f"{ours}.{part}.{name}"] = f"{theirs}.{_T5_PARTS[part]}.{right}"

    def loss(batch: Batch) -> torch.Tensor:
        given = ("input_ids", "attention_mask", "decoder_input_ids")
        logits = module(**{name: batch[name] for name in given}).logits
        total = _summed(logits, batch["labels"], batch["mask"])
        if model.get("mlm_loss_scaling") == "num_masked":
            return total / batch["mask"].sum()
        return total / len(logits) * model["lm_loss_weight"]

    return TransformersModel(module, _named(module, names), loss)


def t5_parameters() -> dict[str, int]:
    """Return the parameters of T5-3B and T5-11B as released, which have a vocabulary of 32,128."""
    import transformers

    kind = transformers.T5ForConditionalGeneration
    with torch.device("meta"):
        return {
            name: kind(transformers.T5Config(vocab_size=32128, **shape)).num_parameters()
            for name, shape in _RELEASED.items()
        }


# Vision transformers.

_VIT_FRONT = {
    "vit_model.embedding_layer.linear_proj": "vit.embeddings.patch_embeddings.projection",
    "vit_model.encoder.transformer_encoder.norm": "vit.layernorm",
    "classifier.classifier.ffn.0.linear_layer": "classifier",
}
_VIT_LAYER = {
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


def vision(config: Config) -> TransformersModel:
    """Return the model of a case of vision transformers."""
    import transformers

    model = config["model"]
    configured = transformers.ViTConfig(
        **_common(model),
        image_size=tuple(model["image_size"]),
        patch_size=tuple(model["patch_size"]),
        num_channels=model["num_channels"],
        num_labels=model["num_classes"],
    )
    made = transformers.ViTForImageClassification(configured)
    patches = made.vit.embeddings.patch_embeddings
    made.vit.embeddings.patch_embeddings = _Rectangles(patches.projection)
    parts = dict(_VIT_FRONT)
    for n in range(model["num_hidden_layers"]):
        for theirs, ours in _VIT_LAYER.items():
            parts[f"vit_model.encoder.transformer_encoder.layers.{n}.{theirs}"] = f"vit.encoder.layer.{n}.{ours}"
    named, own = _named(made, parts), dict(made.named_parameters())
    named[_TOKEN], named[_POSITIONS] = own["vit.embeddings.cls_token"], own["vit.embeddings.position_embeddings"]
    shapes = {name: tuple(w.shape) for name, w in named.items()}
    for name, size in shapes.items():
        shapes[name] = (size[0], int(np.prod(size[1:]))) if len(size) == 4 else size[1:] if len(size) == 3 else size
    shapes[_TOKEN] = shapes[_TOKEN][-1:]

    def laid_out(name: str, array: np.ndarray) -> np.ndarray:
        return np.roll(array, 1, axis=0) if name == _POSITIONS else array  # the vendor's last is the class token's

    def loss(batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(made(batch["images"]).logits, batch["labels"])

    return TransformersModel(made, named, loss, laid_out, shapes)


MODELS: dict[str, Callable[[Config, torch.dtype], Trained]] = {
    "decoders": decoder,
    "preferences": preferences,
    "encoders": _of_transformers(encoder),
    "encoder_decoders": _of_transformers(t5),
    "vision": _of_transformers(vision),
    "dpr": _of_transformers(dpr),
}


# Training.


def learning_rate(scheduler: Config, step: int) -> float:
    """Return the learning rate of a step, counted from 0, under one scheduler of the vendor's."""
    ((name, keys),) = scheduler.items()
    if name == "ConstantLR":
        return float(keys["learning_rate"])
    if name == "SequentialLR":
        *first, last = keys["schedulers"]
        for inner in first:
            iterations = next(iter(inner.values()))["total_iters"]
            if step < iterations:
                return learning_rate(inner, step)
            step -= iterations
        return learning_rate(last, step)
    begin, end = keys["initial_learning_rate"], keys["end_learning_rate"]
    progress = min(step / keys["total_iters"], 1.0)
    if name == "CosineDecayLR":
        progress = (1.0 - math.cos(math.pi * progress)) / 2.0
    return float(begin + (end - begin) * progress)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of arXiv:2302.06675, which PyTorch has not."""

    def __init__(self, groups: Any, betas: tuple[float, float]) -> None:
        super().__init__(groups, {"lr": 0.1, "betas": betas})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            (inner, outer), rate = group["betas"], group["lr"]
            for w in group["params"]:
                mean = self.state[w].get("mean", torch.zeros_like(w))
                direction = torch.sign(torch.lerp(w.grad, mean, inner))
                w -= rate * (direction + group["weight_decay"] * w)
                self.state[w]["mean"] = torch.lerp(w.grad, mean, outer)


class Adafactor(torch.optim.Optimizer):
    """Algorithms 4 and 5 of arXiv:1804.04235 with a learning rate for the relative step; PyTorch's own is another."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups, {"lr": 0.1})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for w in group["params"]:
                state = self.state[w]
                state["step"] = state.get("step", 0) + 1
                share, squares = state["step"] ** -0.8, w.grad**2 + 1e-30
                means = [squares] if w.ndim == 1 else [squares.mean(1, keepdim=True), squares.mean(0, keepdim=True)]
                before = state.get("means", means)
                state["means"] = [torch.lerp(old, new, share) for old, new in zip(before, means, strict=True)]
                moment = math.prod(state["means"])
                if w.ndim == 2:
                    moment = moment / state["means"][0].mean()
                towards = w.grad / moment.sqrt()
                towards /= max(1.0, towards.square().mean().sqrt().item())
                rate = group["lr"] * max(1e-3, w.square().mean().sqrt().item())
                w -= rate * (towards + group["weight_decay"] * w)


def make_optimizer(config: Config, w: Weights) -> torch.optim.Optimizer:
    """Return the optimizer of a case; weight decay spares biases and norms, `scale` multiplies the learning rate.

    The cases ask cstool for its `form: pytorch`: the vendor's own is compared with the vendor's (`vendor_curves.json`).
    """
    ((name, keys),) = config["optimizer"].items()
    model = config["model"].get("policy_model", config["model"])
    rates = keys.get("adjust_learning_rate", {})
    scales = torch_decoders.learning_rate_scales(model, rates) if rates or "mup_base_hidden_size" in model else {}
    groups = [
        {
            "params": [parameter],
            "weight_decay": keys.get("weight_decay", 0.0) if _decays(weight, parameter) else 0.0,
            "scale": scales.get(weight, 1.0),
        }
        for weight, parameter in w.items()
    ]
    if name == "SGD":
        return torch.optim.SGD(groups, lr=0.1, momentum=keys["momentum"], nesterov=keys.get("nesterov", False))
    if name == "Lion":
        return Lion(groups, tuple(keys["betas"]))
    if name == "Adafactor":
        return Adafactor(groups)
    kind = torch.optim.Adam if name == "Adam" else torch.optim.AdamW
    return kind(groups, lr=0.1, betas=tuple(keys["betas"]), eps=keys["eps"])


def _decays(weight: str, parameter: torch.Tensor) -> bool:
    """The vendor lets nothing decay that has "bias" in its name. A convolution and a class token are matrices to it."""
    return weight in (_TOKEN, _POSITIONS) or (parameter.ndim in (2, 4) and "bias" not in weight)


def losses_of_steps(trained: Trained, arrays: Arrays, dtype: torch.dtype, of_batch: int) -> Iterator[torch.Tensor]:
    """Yield the loss of each step's batch, computed from the weights as they are when it is asked for.

    Args:
        of_batch: samples of a batch where arrays have all of them one after the other, else 0
    """
    for step in range(STEPS):
        rows = slice(step * of_batch, (step + 1) * of_batch) if of_batch else step
        batch = {name: torch.from_numpy(np.ascontiguousarray(array[rows])) for name, array in arrays.items()}
        yield trained.loss({name: x.to(dtype) if x.is_floating_point() else x.long() for name, x in batch.items()})


def train(family: str, config: Config, dtype: torch.dtype) -> tuple[dict[str, list[float]], str]:
    """Return `losses`, `gradient_norms` (before clipping) and `learning_rates` of ten steps, and the digest."""
    trained = MODELS[family](config, dtype)
    optimizer, precision = make_optimizer(config, trained.weights), config.get("precision", {})
    curve: dict[str, list[float]] = {"losses": [], "gradient_norms": [], "learning_rates": []}
    arrays = FAMILIES[family].arrays_of(config)
    for step, loss in enumerate(losses_of_steps(trained, arrays, dtype, BATCH if family == "dpr" else 0)):
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        limit = precision.get("max_gradient_norm", math.inf)
        norm = torch.nn.utils.clip_grad_norm_(trained.weights.values(), limit)
        if "max_gradient_value" in precision:
            torch.nn.utils.clip_grad_value_(trained.weights.values(), precision["max_gradient_value"])
        rate = learning_rate(config["schedulers"][0], step)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        optimizer.step()
        curve["losses"].append(loss.item())
        curve["gradient_norms"].append(norm.item())
        curve["learning_rates"].append(rate)
    return curve, trained.digest


def record(family: str, config: Config) -> dict[str, Any]:
    """Return what the file holds of a case."""
    curve, weights_digest = train(family, config, torch.float32)
    if family != "decoders":
        curve = {"losses": curve["losses"]}
    recorded = {key: nine_digits(numbers) for key, numbers in curve.items()}
    precise = nine_digits(train(family, config, torch.float64)[0]["losses"])
    digests = {"weights_digest": weights_digest, "data_digest": digest(FAMILIES[family].arrays_of(config))}
    return {"config": config, **digests, **recorded, "losses_float64": precise}


def main() -> None:
    """Write the curves of a family."""
    parser = argparse.ArgumentParser(description="Record losses of implementations in PyTorch and transformers.")
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--cases", nargs="*")
    parser.add_argument("--output", type=Path, help="a file for them; beside this one if it is left out")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    family = FAMILIES[asked.family]
    made_by = f"make_curves.py, torch {torch.__version__}"
    if asked.family in ("decoders", "preferences"):
        made_by += f", numpy {np.__version__}"
    else:
        import transformers

        made_by += f", transformers {transformers.__version__}"
    names = HF_CASES if asked.family == "vision" else family.cases
    output = asked.output or Path(__file__).with_name(family.file)
    recorded = {name: record(asked.family, family.cases[name]) for name in asked.cases or names}
    more = {"parameters": t5_parameters()} if asked.family == "encoder_decoders" else {}
    write_curves(output, made_by, recorded, **more)


if __name__ == "__main__":
    main()
