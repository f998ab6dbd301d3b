"""The models of the suite in plain PyTorch, as someone who cares about speed on a CPU would write them.

Query, key and value are one linear layer, so are gate and up; attention is `scaled_dot_product_attention` (which skips
the masked half); tokens of a mixture are sorted by expert, so that each expert has one product; the optimizer is the
fused AdamW, several times as fast on a CPU as the default one. In float32 throughout, or under autocast, which takes
bfloat16 for products; eager, or model and loss by `torch.compile`. No sample has padding, so no mask is read.

Parameters are declared in the order of cstool's graphs, and inputs have the names of its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Array = np.ndarray[Any, Any]
Norm = Callable[[int], nn.Module]
"""makes the norm of a width"""

TARGETS_SHARE = 4
"""tokens of a source for each token of its target"""
MASKED_SHARE = 0.15
"""of the tokens of a sample, rounded up"""
MAX_DISTANCE = 128
"""from which on all distances have one bias"""
_PACKED = re.compile(r"(self_attn\.)proj_[qkv]|(multihead_attn\.)proj_[kv]|_for_glu")
"""part of the name of a layer, where several are one here"""


class Attention(nn.Module):
    """Self-attention; where there are fewer keys than queries, several queries share one.

    Args:
        groups: heads of keys and values; None for as many as there are of queries
        width: of a head; None for the share of a head in `hidden`
        scale: of the products; None for the usual one
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        *,
        groups: int | None = None,
        width: int | None = None,
        causal: bool = False,
        bias: bool = True,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.width = heads, groups or heads, width or hidden // heads
        self.causal, self.scale = causal, scale
        self.query_key_value = nn.Linear(hidden, (heads + 2 * self.groups) * self.width, bias=bias)
        self.output = nn.Linear(heads * self.width, hidden, bias=bias)

    def forward(
        self,
        x: Tensor,
        *,
        turns: Tensor | None = None,
        biases: Tensor | None = None,
        cache: Tensor | None = None,
        before: int = 0,
    ) -> Tensor:
        """Return the output (B, S, H) of x (B, S, H).

        Args:
            turns: of queries and keys by position, (S, D / 2) complex
            biases: of the scores, (1, A, S, S), with the causal mask in them
            cache: (2, B, A, capacity, D), takes keys and values, after those of `before` tokens
        """
        packed = self.query_key_value(x).unflatten(-1, (-1, self.width))
        heads, groups, causal = self.heads, self.groups, self.causal
        value = packed[:, :, heads + groups :].transpose(1, 2)
        packed = packed[:, :, : heads + groups]
        if turns is not None:
            pairs = torch.view_as_complex(packed.unflatten(-1, (-1, 2)))
            packed = torch.view_as_real(pairs * turns[:, None]).flatten(-2)
        query, key = packed.transpose(1, 2).split((heads, groups), dim=1)
        if cache is not None:
            after = before + x.shape[1]
            cache[0, :, :, before:after], cache[1, :, :, before:after] = key, value
            (key, value), causal = cache[:, :, :, :after], x.shape[1] > 1
        context = functional.scaled_dot_product_attention(
            query, key, value, biases, is_causal=causal and biases is None, scale=self.scale, enable_gqa=heads > groups
        )
        return self.output(context.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class CrossAttention(nn.Module):
    """Attention of a decoder to the encoded source, as T5 has it: no biases, products as they are."""

    def __init__(self, hidden: int, heads: int, width: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, heads * width, bias=False)
        self.key_value = nn.Linear(hidden, 2 * heads * width, bias=False)
        self.output = nn.Linear(heads * width, hidden, bias=False)

    def forward(self, x: Tensor, encoded: Tensor) -> Tensor:
        """Return the output (B, T, H) of x (B, T, H) and the source (B, S, H)."""
        query = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key, value = self.key_value(encoded).unflatten(-1, (2 * self.heads, -1)).transpose(1, 2).chunk(2, dim=1)
        context = functional.scaled_dot_product_attention(query, key, value, scale=1.0)
        return self.output(context.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """The feed-forward part of a layer."""

    def __init__(
        self, hidden: int, filters: int, function: Callable[[Tensor], Tensor] = functional.gelu, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.function = function
        self.up, self.down = nn.Linear(hidden, filters, bias=bias), nn.Linear(filters, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output (B, S, H) of x (B, S, H)."""
        return self.down(self.function(self.up(x)))  # type: ignore[no-any-return]


class GatedMlp(nn.Module):
    """A feed-forward part with a gate, without biases."""

    def __init__(self, hidden: int, filters: int) -> None:
        super().__init__()
        self.up_gate = nn.Linear(hidden, 2 * filters, bias=False)
        self.down = nn.Linear(filters, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output (B, S, H) of x (B, S, H)."""
        up, gate = self.up_gate(x).chunk(2, dim=-1)
        return self.down(up * functional.silu(gate))  # type: ignore[no-any-return]


class Mixture(nn.Module):
    """Experts in place of a feed-forward part; each token meets those that its router likes best.

    `routed` keeps the probabilities (B, S, E) and choices (B, S, k) of the last call.
    """

    def __init__(self, hidden: int, filters: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(hidden, experts, bias=False)
        self.ups = nn.ModuleList(nn.Linear(hidden, filters) for _ in range(experts))
        self.downs = nn.ModuleList(nn.Linear(filters, hidden) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output (B, S, H) of x (B, S, H)."""
        probabilities = self.router(x).softmax(dim=-1)
        weights, choices = probabilities.topk(self.chosen)
        self.routed = probabilities, choices
        return self.experts(x, weights / weights.sum(dim=-1, keepdim=True), choices)

    @torch.compiler.disable
    def experts(self, x: Tensor, weights: Tensor, choices: Tensor) -> Tensor:
        """Return the weighted sum of what the chosen experts make. Not compiled: its shapes change with every step."""
        experts, order = choices.flatten().sort()
        tokens, counts = order // self.chosen, torch.bincount(experts, minlength=len(self.ups)).tolist()
        rows = x.flatten(0, 1)
        parts = zip(self.ups, self.downs, rows[tokens].split(counts), strict=True)
        made = torch.cat([down(functional.gelu(up(part))) for up, down, part in parts])
        made = made * weights.flatten()[order, None]
        return torch.zeros_like(rows, dtype=made.dtype).index_add(0, tokens, made).view_as(x)


class Block(nn.Module):
    """A transformer block with norms before its parts."""

    def __init__(self, hidden: int, attention: Attention, mlp: nn.Module, norm: Norm = nn.LayerNorm) -> None:
        super().__init__()
        self.norm1, self.attention = norm(hidden), attention
        self.norm2, self.mlp = norm(hidden), mlp

    def forward(self, x: Tensor, **seen: Any) -> Tensor:
        """Return the block's output (B, S, H) of x (B, S, H); `seen` is for attention."""
        x = x + self.attention(self.norm1(x), **seen)
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class LateNormBlock(nn.Module):
    """A transformer block with norms after its parts, as BERT has it."""

    def __init__(self, hidden: int, attention: Attention, mlp: nn.Module) -> None:
        super().__init__()
        self.attention, self.norm1 = attention, nn.LayerNorm(hidden)
        self.mlp, self.norm2 = mlp, nn.LayerNorm(hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output (B, S, H) of x (B, S, H)."""
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))  # type: ignore[no-any-return]


class Twin(nn.Module):
    """A model, with the loss that it is trained for; `forward` takes all inputs but the labels and returns logits."""

    tokens: nn.Embedding

    def loss(self, labels: Tensor, **inputs: Tensor) -> Tensor:
        """Return the mean loss of labels (B, S) in (0, V)."""
        return functional.cross_entropy(self(**inputs).flatten(0, -2), labels.flatten())

    def random_batch(self, samples: int, tokens: int) -> dict[str, Tensor]:
        """Return random inputs, and labels: of so many samples and tokens of each."""
        return {"input_ids": self.random_ids(samples, tokens), "labels": self.random_ids(samples, tokens)}

    def random_ids(self, samples: int, tokens: int) -> Tensor:
        """Return token ids (samples, tokens)."""
        return torch.randint(self.tokens.num_embeddings, (samples, tokens))


@dataclass(frozen=True)
class Gpt2Shape:
    """The sizes of a model; by default those of GPT-2 small, 124M parameters. Without experts a layer has no router.

    Source: Radford et al., "Language models are unsupervised multitask learners", 2019, table 2.
    """

    vocab_size: int = 50257
    max_position_embeddings: int = 1024
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_heads: int = 12
    filter_size: int = 3072
    num_experts: int = 0
    top_k: int = 2
    load_balancing_loss_coef: float = 0.01


class Gpt2(Twin):
    """The decoder, without dropout, its output layer tied to the token embedding."""

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__()
        self.shape, hidden, filters = shape, shape.hidden_size, shape.filter_size
        self.tokens = nn.Embedding(shape.vocab_size, hidden)
        self.positions = nn.Embedding(shape.max_position_embeddings, hidden)
        make_mlp = partial(Mixture, experts=shape.num_experts, chosen=shape.top_k) if shape.num_experts else Mlp
        self.blocks = nn.Sequential(
            *(
                Block(hidden, Attention(hidden, shape.num_heads, causal=True), make_mlp(hidden, filters))
                for _ in range(shape.num_hidden_layers)
            )
        )
        self.norm = nn.LayerNorm(hidden)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits (B, S, V) of ids (B, S)."""
        x = self.tokens(input_ids) + self.positions.weight[: input_ids.shape[1]]
        return functional.linear(self.norm(self.blocks(x)), self.tokens.weight)

    def loss(self, labels: Tensor, **inputs: Tensor) -> Tensor:
        """Return the mean loss; with experts, that of their balance in each sample is added."""
        loss = super().loss(labels, **inputs)
        if not self.shape.num_experts:
            return loss
        routed = [mlp.routed for mlp in self.modules() if isinstance(mlp, Mixture)]
        probabilities, choices = (torch.stack(each) for each in zip(*routed, strict=True))
        shares = functional.one_hot(choices, self.shape.num_experts).sum(dim=3).float().mean(dim=(0, 2))
        balance = self.shape.num_experts * (shares * probabilities.mean(dim=(0, 2))).sum(dim=1).mean()
        return loss + self.shape.load_balancing_loss_coef * balance

    @torch.inference_mode()
    def generate(self, ids: Tensor, count: int) -> Iterator[list[int]]:
        """Yield the likeliest next token of each sequence, so many times, after ids (B, n)."""
        batch, before = ids.shape[0], 0
        heads = self.shape.num_heads
        shape = 2, batch, heads, ids.shape[1] + count, self.shape.hidden_size // heads
        caches = [torch.empty(shape, dtype=self.tokens.weight.dtype) for _ in self.blocks]
        for _ in range(count):
            after = before + ids.shape[1]
            x = self.tokens(ids) + self.positions.weight[before:after]
            for block, cache in zip(self.blocks, caches, strict=True):
                x = block(x, cache=cache, before=before)
            # Of a prompt only the last token has a say.
            logits = functional.linear(self.norm(x[:, -1]), self.tokens.weight)
            ids, before = logits.argmax(dim=-1, keepdim=True), after
            yield ids[:, 0].tolist()


def turns_of(tokens: int, width: int, theta: float = 10000.0) -> Tensor:
    """Return the turns of rotary positions, (tokens, width / 2) complex."""
    angles = torch.outer(torch.arange(tokens), theta ** (-torch.arange(0, width, 2) / width))
    return torch.polar(torch.ones_like(angles), angles)


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a model: by default as wide and deep as GPT-2 small, three queries to a key."""

    vocab_size: int = 32000
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_heads: int = 12
    num_kv_groups: int = 4
    filter_size: int = 2048


class Llama(Twin):
    """The decoder: rotary positions, grouped queries, gated feed-forward parts, no biases, an untied output layer."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        hidden, heads, self.width = shape.hidden_size, shape.num_heads, shape.hidden_size // shape.num_heads
        norm: Norm = partial(nn.RMSNorm, eps=1e-5)
        attention = partial(Attention, hidden, heads, groups=shape.num_kv_groups, causal=True, bias=False)
        self.tokens = nn.Embedding(shape.vocab_size, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, attention(), GatedMlp(hidden, shape.filter_size), norm)
            for _ in range(shape.num_hidden_layers)
        )
        self.norm = norm(hidden)
        self.output = nn.Linear(hidden, shape.vocab_size, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return logits (B, S, V) of ids (B, S)."""
        turns = turns_of(input_ids.shape[1], self.width)
        x = self.tokens(input_ids)
        for block in self.blocks:
            x = block(x, turns=turns)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class BertShape:
    """The sizes of a model; by default those of BERT base, 110M parameters.

    With 0 positions these are rotary, there are no kinds of token, and norms come first.

    Source: Devlin et al., "BERT", 2019, section 3.
    """

    vocab_size: int = 30522
    max_position_embeddings: int = 512
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_heads: int = 12
    filter_size: int = 3072


class Bert(Twin):
    """The encoder, and its head for masked tokens, whose output layer is tied to the token embedding."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        hidden, self.width = shape.hidden_size, shape.hidden_size // shape.num_heads
        self.is_rotary = not shape.max_position_embeddings
        self.tokens = nn.Embedding(shape.vocab_size, hidden, padding_idx=0)
        if not self.is_rotary:
            self.positions = nn.Embedding(shape.max_position_embeddings, hidden)
            self.types = nn.Embedding(2, hidden)
        self.first_norm = nn.LayerNorm(hidden)
        make: Callable[..., nn.Module] = Block if self.is_rotary else LateNormBlock
        self.blocks = nn.ModuleList(
            make(hidden, Attention(hidden, shape.num_heads), Mlp(hidden, shape.filter_size))
            for _ in range(shape.num_hidden_layers)
        )
        self.last_norm = nn.LayerNorm(hidden) if self.is_rotary else nn.Identity()
        self.transform, self.transform_norm = nn.Linear(hidden, hidden), nn.LayerNorm(hidden)
        self.output = nn.Linear(hidden, shape.vocab_size)
        self.output.weight = self.tokens.weight

    def forward(self, input_ids: Tensor, masked_lm_positions: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return logits (B, M, V) of ids (B, S) at masked positions (B, M)."""
        x, tokens = self.tokens(input_ids), input_ids.shape[1]
        if not self.is_rotary:
            x = x + self.positions.weight[:tokens] + self.types(token_type_ids)
        seen = {"turns": turns_of(tokens, self.width)} if self.is_rotary else {}
        x = self.first_norm(x)
        for block in self.blocks:
            x = block(x, **seen)
        x = self.last_norm(x).take_along_dim(masked_lm_positions[:, :, None], dim=1)
        return self.output(self.transform_norm(functional.gelu(self.transform(x))))  # type: ignore[no-any-return]

    def random_batch(self, samples: int, tokens: int) -> dict[str, Tensor]:
        """See `Twin.random_batch`; labels are those of the masked tokens."""
        masked = -int(-MASKED_SHARE * tokens // 1)
        batch = {
            "input_ids": self.random_ids(samples, tokens),
            "masked_lm_positions": torch.rand(samples, tokens).argsort(dim=1)[:, :masked].sort(dim=1).values,
            "labels": self.random_ids(samples, masked),
        }
        return batch if self.is_rotary else batch | {"token_type_ids": torch.randint(2, (samples, tokens))}


@dataclass(frozen=True)
class T5Shape:
    """The sizes of a model; by default those of T5 base, 223M parameters.

    Source: Raffel et al., "Exploring the limits of transfer learning with a unified text-to-text transformer", 2020.
    """

    vocab_size: int = 32128
    d_model: int = 768
    d_kv: int = 64
    num_heads: int = 12
    d_ff: int = 3072
    num_hidden_layers: int = 12
    buckets: int = 32


class Stack(nn.Module):
    """The encoder or the decoder of T5: a table of biases by distance, layers, and a norm."""

    def __init__(self, shape: T5Shape, *, decodes: bool) -> None:
        super().__init__()
        hidden, self.decodes = shape.d_model, decodes
        norm: Norm = partial(nn.RMSNorm, eps=1e-6)
        self.table = nn.Embedding(shape.buckets, shape.num_heads)
        self.blocks = nn.ModuleList()
        for _ in range(shape.num_hidden_layers):
            attention = Attention(hidden, shape.num_heads, width=shape.d_kv, bias=False, scale=1.0)
            mlp = Mlp(hidden, shape.d_ff, functional.relu, bias=False)
            if decodes:
                cross = CrossAttention(hidden, shape.num_heads, shape.d_kv)
                self.blocks.append(DecoderBlock(hidden, attention, cross, mlp, norm))
            else:
                self.blocks.append(Block(hidden, attention, mlp, norm))
        self.norm = norm(hidden)

    def forward(self, x: Tensor, **seen: Tensor) -> Tensor:
        """Return the output (B, S, H) of x (B, S, H); a decoder gets what is `encoded`."""
        biases = self.biases(x.shape[1])
        for block in self.blocks:
            x = block(x, biases=biases, **seen)
        return self.norm(x)  # type: ignore[no-any-return]

    def biases(self, tokens: int) -> Tensor:
        """Return biases of scores by the distance of keys, (1, A, tokens, tokens); later keys of a decoder are out."""
        place = torch.arange(tokens)
        later = place - place[:, None]
        count = self.table.num_embeddings // (1 if self.decodes else 2)
        distance, exact = -later.clamp(max=0) if self.decodes else later.abs(), count // 2
        share = torch.log(distance.clamp(min=1) / exact) / np.log(MAX_DISTANCE / exact)
        grown = (exact + (share * (count - exact)).long()).clamp(max=count - 1)
        buckets = torch.where(distance < exact, distance, grown)
        if self.decodes:
            biases = self.table(buckets).masked_fill((later > 0)[:, :, None], -torch.inf)
        else:
            biases = self.table(buckets + count * (later > 0))
        return biases.permute(2, 0, 1)[None].contiguous()  # type: ignore[no-any-return]


class DecoderBlock(nn.Module):
    """A layer of T5's decoder."""

    def __init__(self, hidden: int, attention: Attention, cross: CrossAttention, mlp: nn.Module, norm: Norm) -> None:
        super().__init__()
        self.norm1, self.attention = norm(hidden), attention
        self.norm2, self.cross = norm(hidden), cross
        self.norm3, self.mlp = norm(hidden), mlp

    def forward(self, x: Tensor, *, biases: Tensor, encoded: Tensor) -> Tensor:
        """Return the block's output (B, T, H) of x (B, T, H) and the source (B, S, H)."""
        x = x + self.attention(self.norm1(x), biases=biases)
        x = x + self.cross(self.norm2(x), encoded)
        return x + self.mlp(self.norm3(x))  # type: ignore[no-any-return]


class T5(Twin):
    """The encoder and the decoder, with one table of tokens for both and the output layer."""

    def __init__(self, shape: T5Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab_size, shape.d_model)
        self.encoder, self.decoder = Stack(shape, decodes=False), Stack(shape, decodes=True)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Return logits (B, T, V) of a source (B, S) and a target (B, T)."""
        encoded = self.encoder(self.tokens(input_ids))
        decoded = self.decoder(self.tokens(decoder_input_ids), encoded=encoded)
        return functional.linear(decoded * decoded.shape[-1] ** -0.5, self.tokens.weight)

    def random_batch(self, samples: int, tokens: int) -> dict[str, Tensor]:
        """See `Twin.random_batch`; the tokens are those of the source."""
        made = {name: self.random_ids(samples, tokens // TARGETS_SHARE) for name in ("decoder_input_ids", "labels")}
        return {"input_ids": self.random_ids(samples, tokens), **made}


@dataclass(frozen=True)
class VitShape:
    """The sizes of a model; by default those of ViT-B/16, 87M parameters.

    Source: Dosovitskiy et al., "An image is worth 16x16 words", 2021, table 1.
    """

    patches: int = 196
    patch_values: int = 768
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_heads: int = 12
    filter_size: int = 3072
    num_classes: int = 1000


class Vit(Twin):
    """The vision transformer. It takes images as patches, as cstool does; its class token and its position are last."""

    def __init__(self, shape: VitShape) -> None:
        super().__init__()
        self.shape, hidden = shape, shape.hidden_size
        norm: Norm = partial(nn.LayerNorm, eps=1e-6)
        self.project = nn.Linear(shape.patch_values, hidden)
        self.class_token, self.positions = nn.Embedding(1, hidden), nn.Embedding(shape.patches + 1, hidden)
        self.blocks = nn.Sequential(
            *(
                Block(hidden, Attention(hidden, shape.num_heads), Mlp(hidden, shape.filter_size), norm)
                for _ in range(shape.num_hidden_layers)
            )
        )
        self.norm = norm(hidden)
        self.head = nn.Linear(hidden, shape.num_classes)

    def forward(self, patches: Tensor) -> Tensor:
        """Return logits (B, 1, classes) of patches (B, N, numbers of a patch)."""
        class_token = self.class_token.weight.expand(len(patches), 1, -1)
        x = torch.cat([self.project(patches), class_token], dim=1) + self.positions.weight
        return self.head(self.norm(self.blocks(x)[:, -1:]))  # type: ignore[no-any-return]

    def random_batch(self, samples: int, tokens: int) -> dict[str, Tensor]:  # noqa: ARG002
        """See `Twin.random_batch`; images have a size of their own."""
        patches = torch.rand(samples, self.shape.patches, self.shape.patch_values)
        return {"patches": patches, "labels": torch.randint(self.shape.num_classes, (samples, 1))}


class Digits(Twin):
    """A network for digits."""

    def __init__(self) -> None:
        super().__init__()
        sizes = nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)
        self.layers = nn.Sequential(sizes[0], nn.ReLU(), sizes[1], nn.ReLU(), sizes[2])

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (B, 1, 10) of pixels (B, 1, 784)."""
        return self.layers(x)  # type: ignore[no-any-return]

    def random_batch(self, samples: int, tokens: int) -> dict[str, Tensor]:  # noqa: ARG002
        """See `Twin.random_batch`."""
        return {"x": torch.rand(samples, 1, 784), "labels": torch.randint(10, (samples, 1))}


MODELS: dict[str, Callable[[], Twin]] = {
    "gpt2": lambda: Gpt2(Gpt2Shape()),
    "llama": lambda: Llama(LlamaShape()),
    "gpt3_xl_wide": lambda: Gpt2(Gpt2Shape(256, 512, 2048, 2, 16, 8192)),
    "gpt_tiny": lambda: Gpt2(Gpt2Shape(256, 128, 128, 4, 4, 512)),
    "moe_gpt2_wide": lambda: Gpt2(Gpt2Shape(256, 512, num_hidden_layers=4, num_experts=8)),
    "moe_tiny": lambda: Gpt2(Gpt2Shape(256, 128, 128, 4, 4, 256, num_experts=8)),
    "bert_base": lambda: Bert(BertShape()),
    "bert_tiny": lambda: Bert(BertShape(4096, 0, 128, 4, 4, 512)),
    "t5_base": lambda: T5(T5Shape()),
    "t5_tiny": lambda: T5(T5Shape(4112, 128, 32, 4, 512, 3)),
    "vit_base": lambda: Vit(VitShape()),
    "vit_tiny": lambda: Vit(VitShape(16, 49, 96, 4, 4, 384, 10)),
    "fc_mnist": Digits,
}
"""the models by name"""


def make_model(name: str) -> Twin:
    """Return a key of `MODELS` as it begins: matrices normal, biases 0."""
    torch.manual_seed(1)
    model = MODELS[name]()
    for parameter_name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.02)
        elif parameter_name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


class LoraLinear(nn.Module):
    """A frozen linear layer with a low-rank adapter beside it, as the package PEFT computes it without dropout."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, S, out)."""
        return self.base(x) + self.up(self.down(x)) * self.scale


def with_adapters(model: Twin, rank: int, scale: float) -> Twin:
    """Return a model with adapters beside the linear layers of its blocks, and all else frozen."""
    model.requires_grad_(False)
    for module in [*model.blocks.modules()]:
        for name, child in [*module.named_children()]:
            if isinstance(child, nn.Linear):
                setattr(module, name, LoraLinear(child, rank, scale))
    return model


def take_weights(model: nn.Module, weights: Mapping[str, Array]) -> None:
    """Give a model the weights of cstool's graph, by the vendor's name, in the order of the graph.

    What is one layer here lies together: query, key and value, of attention to a source key and value alone; up and
    gate; weight and bias of an expert.
    """
    modules: dict[str, dict[str, list[Array]]] = {}
    for name, array in weights.items():
        module, _, kind = _PACKED.sub(r"\1\2", name).rpartition(".")
        modules.setdefault(module, {}).setdefault(kind, []).append(array)
    arrays = [np.concatenate(parts) for kinds in modules.values() for parts in kinds.values()]
    for parameter, array in zip(model.parameters(), arrays, strict=True):
        parameter.data.copy_(torch.from_numpy(array).view_as(parameter))


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Return SGD with momentum for digits, Adafactor for T5, else AdamW with weight decay on matrices only."""
    if name == "fc_mnist":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    if name.startswith("t5"):
        return torch.optim.Adafactor(model.parameters(), lr=1e-3)
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def torch_step_runner(
    *,
    name: str,
    threads: int,
    batch_size: int,
    sequence_length: int,
    precision: str = "float32",
    compiled: bool = False,
    adapters: tuple[int, float] | None = None,
) -> Callable[[], None]:
    """Return a function that trains one step: forward, backward, clipping by norm 1.0 (not for digits), update.

    Args:
        name: a key of `MODELS`
        threads: for PyTorch to use; set anew in each step, since others in the process may change OpenMP's count
        batch_size: samples of a step
        sequence_length: tokens of a sample
        precision: "float32", or "bfloat16" for autocast
        compiled: whether model and loss go through `torch.compile`
        adapters: rank and scale of adapters beside all linear layers of blocks; None to train all weights
    """
    model = make_model(name)
    if adapters is not None:
        model = with_adapters(model, *adapters)
    optimizer = make_optimizer(name, model)
    batch = model.random_batch(batch_size, sequence_length)
    compute = torch.compile(model.loss) if compiled else model.loss

    def step() -> None:
        torch.set_num_threads(threads)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = compute(**batch)
        torch.autograd.backward(loss)
        if name != "fc_mnist":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def gradients_of(name: str, tokens: Array, precision: str) -> dict[str, Array]:
    """Return the gradients of a decoder at its first weights.

    Args:
        name: a key of `MODELS`
        tokens: (B, S + 1) int32
        precision: "float32", or "bfloat16" for autocast
    """
    model, ids = make_model(name), torch.from_numpy(tokens).long()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        loss = model.loss(ids[:, 1:], input_ids=ids[:, :-1])
    torch.autograd.backward(loss)
    return {name: found.grad.numpy() for name, found in model.named_parameters() if found.grad is not None}
