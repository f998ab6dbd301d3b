"""A layer of a decoder on the GPUs that share it: products, the ops between them, and messages between GPUs.

Tensor parallel: each of t GPUs has a t-th of the heads and of the inner width of the feed-forward part. Sequences may
be shared, too: norms, dropout and residual sums have a t-th of the tokens on each GPU then, so a product is preceded by
an all-gather and followed by a reduce-scatter of the activations. If not, each GPU has all tokens there, and sums of
two products a layer are all-reduced.

Bytes of ops without products, of 16 bits, in and out per element: a norm 4, dropout with its mask 5, a residual
sum 6, an activation 4, a softmax 4 and the dropout of its scores 5; backward they are 8, 5, 4, 6, 6 and 5.

Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv 2205.05198, for the
split and for activations in memory; Isaev et al., "Calculon", SC '23, for times that are operations plus bytes, each at
the rate of its size. The arithmetic is this project's own.
"""

from dataclasses import dataclass
from functools import lru_cache

from cstool.plan.timing.gpu.system import GpuSystem

OPERAND_BYTES = 2
MAIN_GRADIENT_BYTES = 4
"""size of a sum of gradients over micro-batches; each is read and written"""
BETWEEN_BYTES = 10
"""bytes per element that a layer keeps outside of the parts that GPUs share (Korthikanti et al., equation 2)"""


@dataclass(frozen=True)
class GpuModel:
    """A decoder as a GPU sees it.

    Args:
        hidden: width of the residual stream
        layers: of them
        heads: of a layer
        kv_width: of its keys
        inside: width of the feed-forward part
        gated: whether that has a third matrix
        vocabulary: words
        tokens: of a sample
        parameters: all of them
    """

    hidden: int
    layers: int
    heads: int
    kv_width: int
    inside: int
    gated: bool
    vocabulary: int
    tokens: int
    parameters: int

    @property
    def layer_weights(self) -> int:
        """Of the matrices of a layer.

        >>> GpuModel(12288, 96, 96, 12288, 49152, False, 51200, 2048, 0).layer_weights == 12 * 12288**2
        True
        """
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_width
        return attention + (2 + self.gated) * self.hidden * self.inside

    def sample_flops(self) -> int:
        """Useful operations of a training step for a sample: forward, and twice that backward; all pairs of tokens."""
        products = 2 * self.tokens * (self.layers * self.layer_weights + self.vocabulary * self.hidden)
        return 3 * (products + self.layers * 4 * self.tokens**2 * self.hidden)


@dataclass(frozen=True)
class LayerTimes:
    """Times of a micro-batch in one layer, on each of the GPUs that share it [s].

    Args:
        forward: products and the ops between them
        backward: the same, with the gradients
        attention: of forward, the scores and their softmax, for computing these again
        talk: of forward, messages between GPUs
        talk_again: further messages in backward, where sequences are parallel
    """

    forward: float
    backward: float
    attention: float
    talk: float
    talk_again: float


@lru_cache(maxsize=1024)
def layer_times(
    gpu: GpuSystem, model: GpuModel, micro_batch: int, tensor: int, shares_sequences: bool = True
) -> LayerTimes:
    """Return the times of a layer on `tensor` GPUs for so many samples."""
    tokens, hidden = micro_batch * model.tokens, model.hidden
    inside, kv = model.inside / tensor, model.kv_width / tensor

    def product(rows: float, inner: float, columns: float, times: float = 1) -> float:
        moved = OPERAND_BYTES * times * (rows * inner + inner * columns + rows * columns)
        return gpu.product_s(2 * rows * inner * columns * times, moved)

    def between(elements: float, moved_bytes: int, flops: int = 1) -> float:
        return gpu.vector_s(elements * flops, elements * moved_bytes)

    heads, width = micro_batch * model.heads / tensor, hidden / model.heads
    scores = product(model.tokens, width, model.tokens, heads) + product(model.tokens, model.tokens, width, heads)
    pairs = heads * model.tokens**2
    matrices = (
        product(tokens, hidden, hidden / tensor + 2 * kv)
        + product(tokens, hidden / tensor, hidden)
        + (1 + model.gated) * product(tokens, hidden, inside)
        + product(tokens, inside, hidden)
    )
    shared, acts = tokens * hidden / (tensor if shares_sequences else 1), tokens * inside
    softmax = between(pairs, 4, 5) + between(pairs, 5)
    softmax_back = between(pairs, 6, 8) + between(pairs, 5)
    rest = 2 * (between(shared, 4, 9) + between(shared, 5) + between(shared, 6)) + between(acts, 4, 8)
    rest_back = 2 * (between(shared, 8, 14) + between(shared, 5) + between(shared, 4)) + between(acts, 6, 13)
    # The products of gradients add to a sum of 32 bits, and do not write one of 16.
    sums = gpu.moved_s((2 * MAIN_GRADIENT_BYTES - OPERAND_BYTES) * model.layer_weights / tensor)
    told_bytes = OPERAND_BYTES * tokens * hidden
    gather, allreduce = gpu.near.gather_s(told_bytes, tensor), gpu.near.allreduce_s(told_bytes, tensor)
    return LayerTimes(
        forward=matrices + scores + softmax + rest,
        backward=2 * (matrices + scores) + softmax_back + rest_back + sums,
        attention=scores + softmax,
        talk=4 * gather if shares_sequences else 2 * allreduce,
        talk_again=2 * gather if shares_sequences else 0.0,
    )


def head_s(gpu: GpuSystem, model: GpuModel, micro_batch: int, tensor: int, shares_sequences: bool = True) -> float:
    """Time of the product with the vocabulary, its loss and its gradients, for so many samples [s]."""
    tokens, words = micro_batch * model.tokens, model.vocabulary / tensor
    moved = OPERAND_BYTES * (tokens * model.hidden + model.hidden * words + tokens * words)
    product = gpu.product_s(2 * tokens * model.hidden * words, moved)
    told_bytes = OPERAND_BYTES * tokens * model.hidden
    told_s = 2 * gpu.near.gather_s(told_bytes, tensor)
    if not shares_sequences:
        told_s = gpu.near.allreduce_s(told_bytes, tensor)
    sums = gpu.moved_s((2 * MAIN_GRADIENT_BYTES - OPERAND_BYTES) * model.hidden * words)
    return 3 * product + gpu.vector_s(10 * tokens * words, 20 * tokens * words) + told_s + sums


def kept_bytes(model: GpuModel, micro_batch: int, tensor: int, recompute: str, shares_sequences: bool = True) -> float:
    """Activations that a layer keeps on each GPU for its backward pass [bytes].

    s b h (34 + 5 a s / h) / t for everything, without the second term where attention is computed again, and its input
    alone, 2 s b h / t, where all of it is. Where sequences are not shared, 10 of the 34 and the 2 are not divided by t.

    >>> gpt3 = GpuModel(12288, 96, 96, 12288, 49152, False, 51200, 2048, 0)
    >>> [round(kept_bytes(gpt3, 1, 8, how) / 1e6) for how in ("none", "attention", "all")]
    [359, 107, 6]

    Source: Korthikanti et al., arXiv 2205.05198, equations 1 to 6 and table 2; of other widths inside and of keys in
    proportion.
    """
    each = model.tokens * micro_batch * model.hidden
    elements, between = each / tensor, each / (tensor if shares_sequences else 1)
    if recompute == "all":
        return 2 * between
    # Of 34: 11 of attention, 4 of them keys and values; 19 of the feed-forward part, 16 of them inside; norms 4.
    kv, inside = model.kv_width / model.hidden, model.inside / model.hidden
    parts = 7 + 4 * kv + 3 + 4 * inside * (1.5 if model.gated else 1) + 4
    scores = 5 * model.heads * model.tokens / model.hidden if recompute == "none" else 0
    return BETWEEN_BYTES * between + elements * (parts - BETWEEN_BYTES + scores)
