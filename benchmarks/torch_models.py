"""GPT-2, Llama and a network for digits in plain PyTorch, as someone who cares about speed on a CPU would write them.

Query, key and value are one linear layer, so are gate and up; attention is `scaled_dot_product_attention` (which skips
the masked half); the optimizer is the fused AdamW, several times as fast on a CPU as the default one. In float32
throughout, or under autocast, which takes bfloat16 for products; eager, or model and loss by `torch.compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Gpt2Shape:
    """The sizes of a model; by default those of GPT-2 small, 124M parameters.

    Source: Radford et al., "Language models are unsupervised multitask learners", 2019, table 2.
    """

    vocab_size: int = 50257
    max_position_embeddings: int = 1024
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_heads: int = 12
    filter_size: int = 3072


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__()
        hidden = shape.hidden_size
        self.num_heads = shape.num_heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query_key_value, self.output = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, shape.filter_size), nn.Linear(shape.filter_size, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output (B, S, H) of x (B, S, H)."""
        batch, sequence, hidden = x.shape
        packed = self.query_key_value(self.norm1(x)).view(batch, sequence, 3, self.num_heads, -1)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(context.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]

    def go_on(self, x: Tensor, cache: Tensor, before: int) -> Tensor:
        """Return the output for new tokens, x (B, n, H), whose keys and values join those of `before` tokens.

        cache is (2, B, A, capacity, D).
        """
        batch, sequence, hidden = x.shape
        packed = self.query_key_value(self.norm1(x)).view(batch, sequence, 3, self.num_heads, -1)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        after = before + sequence
        cache[0, :, :, before:after], cache[1, :, :, before:after] = key, value
        context = functional.scaled_dot_product_attention(
            query, cache[0, :, :, :after], cache[1, :, :, :after], is_causal=sequence > 1
        )
        x = x + self.output(context.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]


class Gpt2(nn.Module):
    """The decoder, without dropout, its output layer tied to the token embedding."""

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.positions = nn.Embedding(shape.max_position_embeddings, shape.hidden_size)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.num_hidden_layers)))
        self.norm = nn.LayerNorm(shape.hidden_size)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits (B, S, V) of ids (B, S)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        return functional.linear(self.norm(self.blocks(x)), self.tokens.weight)

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
                x = block.go_on(x, cache, before)
            # Of a prompt only the last token has a say.
            logits = functional.linear(self.norm(x[:, -1]), self.tokens.weight)
            ids, before = logits.argmax(dim=-1, keepdim=True), after
            yield ids[:, 0].tolist()


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a model: by default as wide and deep as GPT-2 small, three queries to a key."""

    vocab_size: int = 32000
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_heads: int = 12
    num_kv_groups: int = 4
    filter_size: int = 2048
    rope_theta: float = 10000.0


class LlamaBlock(nn.Module):
    """A pre-norm block with rotary positions, grouped queries and a gated feed-forward layer, without biases."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        hidden, self.shape = shape.hidden_size, shape
        self.width = hidden // shape.num_heads
        kv = shape.num_kv_groups * self.width
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.query_key_value = nn.Linear(hidden, hidden + 2 * kv, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.up_gate = nn.Linear(hidden, 2 * shape.filter_size, bias=False)
        self.down = nn.Linear(shape.filter_size, hidden, bias=False)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """Return the block's output (B, S, H) of x (B, S, H); `turns` is (S, D / 2) complex."""
        batch, sequence, hidden = x.shape
        heads, groups = self.shape.num_heads, self.shape.num_kv_groups
        packed = self.query_key_value(self.norm1(x)).view(batch, sequence, heads + 2 * groups, self.width)
        turned = torch.view_as_complex(packed[:, :, : heads + groups].unflatten(-1, (-1, 2))) * turns[:, None]
        query, key = torch.view_as_real(turned).flatten(-2).transpose(1, 2).split((heads, groups), dim=1)
        value = packed[:, :, heads + groups :].transpose(1, 2)
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.output(context.transpose(1, 2).reshape(batch, sequence, hidden))
        up, gate = self.up_gate(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(up * functional.silu(gate))  # type: ignore[no-any-return]


class Llama(nn.Module):
    """The decoder, with an output layer of its own."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.blocks = nn.ModuleList(LlamaBlock(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=1e-5)
        self.output = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits (B, S, V) of ids (B, S)."""
        width = self.shape.hidden_size // self.shape.num_heads
        frequencies = self.shape.rope_theta ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(ids.shape[1]), frequencies)
        turns = torch.polar(torch.ones_like(angles), angles)
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, turns)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": lambda: Gpt2(Gpt2Shape()),
    "llama": lambda: Llama(LlamaShape()),
    "gpt3_xl_wide": lambda: Gpt2(Gpt2Shape(256, 512, 2048, 2, 16, 8192)),
    "gpt_tiny": lambda: Gpt2(Gpt2Shape(256, 128, 128, 4, 4, 512)),
    "fc_mnist": lambda: nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    ),
}
"""the models by name"""


def make_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Return SGD with momentum for digits, else AdamW with weight decay on matrices only."""
    if name == "fc_mnist":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
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
) -> Callable[[], None]:
    """Return a function that trains one step: forward, backward, clipping by norm 1.0 (not for digits), update.

    Args:
        name: a key of `MODELS`
        threads: for PyTorch to use; set anew in each step, since others in the process may change OpenMP's count
        batch_size: samples of a step
        sequence_length: tokens of a sample
        precision: "float32", or "bfloat16" for autocast
        compiled: whether model and loss go through `torch.compile`
    """
    torch.manual_seed(1)
    model = MODELS[name]()
    optimizer = make_optimizer(name, model)
    if name == "fc_mnist":
        x, labels = torch.rand(batch_size, 784), torch.randint(10, (batch_size,))
    else:
        vocab_size: int = model.get_submodule("tokens").num_embeddings  # type: ignore[assignment]
        tokens = torch.randint(vocab_size, (batch_size, sequence_length + 1))
        x, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def loss_of(x: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(model(x).flatten(0, -2), labels.flatten())

    compute = torch.compile(loss_of) if compiled else loss_of

    def step() -> None:
        torch.set_num_threads(threads)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = compute(x, labels)
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
    torch.manual_seed(1)
    model, ids = MODELS[name](), torch.from_numpy(tokens).long()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        loss = functional.cross_entropy(model(ids[:, :-1]).flatten(0, -2), ids[:, 1:].flatten())
    torch.autograd.backward(loss)
    return {name: found.grad.numpy() for name, found in model.named_parameters() if found.grad is not None}
