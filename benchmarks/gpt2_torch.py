"""GPT-2 small in plain PyTorch eager, as someone who cares about speed on a CPU would write it.

Query, key and value are one linear layer; attention is `scaled_dot_product_attention` (which skips the masked half);
the optimizer is the fused AdamW, several times as fast on a CPU as the default one. No `torch.compile`, no reduced
precision: float32 throughout, as on the other side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


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


class Gpt2(nn.Module):
    """The decoder, without dropout, its output layer tied to the token embedding."""

    def __init__(self, shape: Gpt2Shape) -> None:
        super().__init__()
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


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW with weight decay on matrices only."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def torch_step_runner(
    *, threads: int, batch_size: int = 4, sequence_length: int = 512, shape: Gpt2Shape | None = None
) -> Callable[[], None]:
    """Return a function that trains one step: forward, backward, clipping by norm 1.0, update.

    Args:
        threads: for PyTorch to use; set anew in each step, since others in the process may change OpenMP's count
        batch_size: samples of a step
        sequence_length: tokens of a sample
        shape: of the model, GPT-2 small by default
    """
    shape = shape or Gpt2Shape()
    torch.manual_seed(1)
    model = Gpt2(shape)
    optimizer = make_optimizer(model)
    tokens = torch.randint(shape.vocab_size, (batch_size, sequence_length + 1))
    ids, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step() -> None:
        torch.set_num_threads(threads)
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(ids).flatten(0, 1), labels.flatten())
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step
