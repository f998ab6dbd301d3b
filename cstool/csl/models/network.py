"""A network to be trained on the fabric, as plain data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """y = W x + b, and max(y, 0) if it is not the last.

    Args:
        name: of the layer; its weights are NAME.weight, [outputs, inputs], and NAME.bias, [outputs]
        inputs, outputs: features
        has_bias: whether there is a bias
        is_sparse: whether only weights that are not zero are sent, each with its place
    """

    name: str
    inputs: int
    outputs: int
    has_bias: bool
    is_sparse: bool = False


@dataclass(frozen=True)
class Network:
    """Linear layers with ReLU between them, then softmax cross entropy, on a rectangle of PEs.

    Args:
        name: of the model
        columns: PEs that share the features
        rows: PEs that share the tokens
        tokens: of each PE; rows x tokens may be more than there are, the rest count nothing
        samples: tokens of a batch
        layers: in order
    """

    name: str
    columns: int
    rows: int
    tokens: int
    samples: int
    layers: tuple[Linear, ...]

    @property
    def width(self) -> list[int]:
        """Features of a PE of every activation, the input first; the last are the classes."""
        sizes = [self.layers[0].inputs, *(layer.outputs for layer in self.layers)]
        return [-(-size // self.columns) for size in sizes]
