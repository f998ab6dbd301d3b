"""The memory of a PE: places of activations, sums and deltas, and rows of a matrix that pass at a time."""

from dataclasses import dataclass

from cstool.csl.fabric.arch import SRAM_BYTES
from cstool.csl.models.network import Linear, Network
from cstool.foundation.errors import CompileError

FLOAT_BYTES = 4
CODE_BYTES, LAYER_BYTES = 3_712, 768
"""kept for code and small variables, and more for each layer; a test compiles networks and looks"""
WORK_VECTORS = 4
"""of `loss.csl`, an element of each token and one more"""


@dataclass(frozen=True)
class Memory:
    """The arena of a PE, in elements of float32, and the rows of the matrices that pass at a time.

    Two reads of an operation come in one cycle if their places differ modulo 8 bytes, as banks of the memory have it.
    So sums and deltas of all outputs begin at an odd element, all others at an even one; tokens and rows are even.

    Args:
        activations: place of the input of each layer
        delta: of deltas of a layer's own inputs, and of the factors of ReLU behind them
        turned: of deltas of the rows that pass, [tokens, rows]
        outputs: of sums, logits and deltas of all outputs of a layer, [columns x width, tokens]
        gradient: of a gradient that passes, transposed, [inputs, rows]
        size: of the arena
        rows: of each layer's matrix at a time
        stream: elements that the host puts into a top PE at a time
    """

    activations: tuple[int, ...]
    delta: int
    turned: int
    outputs: int
    gradient: int
    size: int
    rows: tuple[int, ...]
    stream: int


def room_bytes(network: Network) -> int:
    """Memory of a PE beside the code, and beside the vectors that functions of the loss work with [bytes]."""
    vectors = WORK_VECTORS * (network.tokens + 1)
    return SRAM_BYTES - CODE_BYTES - LAYER_BYTES * len(network.layers) - FLOAT_BYTES * vectors


def plan_memory(network: Network) -> Memory:
    """Return the memory of a PE.

    Raises:
        CompileError: naming the layer that does not fit, and the bytes that are too many
    """
    tokens, width = network.tokens, network.width
    places, end = [], 0
    for size in width[:-1]:
        places.append(end)
        end += size * tokens
    delta = end
    own = max([0, *(size * tokens for size in width[1:-1])])
    outputs = delta + 2 * own + 1
    end = outputs + max(network.columns * size for size in width[1:]) * tokens
    end += end % 2
    # A vector of the top PE's column is no longer than what passes at a time.
    least = [_passing(network, number, 2) for number in range(len(network.layers))]
    room = room_bytes(network)
    free = room // FLOAT_BYTES - end
    if free < max(least):
        # The layer that alone would need most: its sums of all outputs, or a row of its matrix.
        alone = [size + network.columns * outputs * tokens for size, outputs in zip(least, width[1:], strict=True)]
        worst = network.layers[alone.index(max(alone))]
        raise _misfit(network, worst, FLOAT_BYTES * (end + max(least)))
    rows = tuple(_rows(network, number, free) for number in range(len(least)))
    most = [(width[number], count) for number, count in enumerate(rows)]
    turned = end + 1
    gradient = turned + max(count for _, count in most) * tokens
    gradient += gradient % 2
    passing = max(max(size * count for size, count in most), *width[1:], network.layers[-1].outputs)
    return Memory(tuple(places), delta, turned, outputs, gradient, gradient + passing, rows, passing)


def _passing(network: Network, number: int, rows: int) -> int:
    """Elements of a PE for rows of a matrix: these, places of sparse ones, turned deltas, the gradient, and one row."""
    size = network.width[number]
    biases = max(network.width[number + 1], network.layers[-1].outputs)
    arrays = 3 if any(layer.is_sparse for layer in network.layers) else 2
    return arrays * max(size * rows, biases) + network.tokens * rows + size + 8


def _rows(network: Network, number: int, free: int) -> int:
    """Rows of a matrix that pass at a time: an even number, no more than fit."""
    outputs = network.layers[number].outputs
    rows = outputs + outputs % 2
    while _passing(network, number, rows) > free:
        rows -= 2
    return rows


def _misfit(network: Network, layer: Linear, need: int) -> CompileError:
    room = room_bytes(network)
    return CompileError(
        f"{layer.name}: must fit {room:,} bytes of a PE beside the code, needs {need:,}, {need - room:,} more "
        f"({network.columns} x {network.rows} PEs, {network.tokens} tokens to each)",
        "narrower hidden_sizes, a smaller batch_size, or a larger rectangle",
    )
