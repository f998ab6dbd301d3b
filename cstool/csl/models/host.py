"""The host of a network on the fabric, as MemoryX: it streams weights in, and takes losses and gradients out.

This file is copied beside the programs that `cstool compile --emit csl` writes. It needs NumPy, and an `SdkRuntime`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
END = 0xFFFF
"""input of the place behind the last weight of a sparse product"""


class Fabric:
    """Copies and launches on a rectangle of PEs.

    Args:
        runtime: an `SdkRuntime` that is loaded and runs
        settings: of its copies: order (ROW_MAJOR), data_type (MEMCPY_32BIT)
    """

    def __init__(self, runtime: Any, settings: Mapping[str, Any]) -> None:
        self._runtime = runtime
        self._settings = {"streaming": False, "nonblock": False, **settings}

    def put(self, symbol: str, values: Array, at: tuple[int, int] = (0, 0)) -> None:
        """Copy values to a rectangle of PEs.

        Args:
            symbol: exported name
            values: [height, width, n] of 32 bits, n for each PE
            at: column and row of the first PE
        """
        height, width, count = values.shape
        name = self._runtime.get_id(symbol)
        flat = np.ascontiguousarray(values).ravel()
        self._runtime.memcpy_h2d(name, flat, *at, width, height, count, **self._settings)

    def get(self, symbol: str, shape: tuple[int, int, int], dtype: Any, at: tuple[int, int] = (0, 0)) -> Array:
        """Copy [height, width, n] values from a rectangle of PEs."""
        height, width, count = shape
        found = np.zeros(height * width * count, dtype)
        name = self._runtime.get_id(symbol)
        self._runtime.memcpy_d2h(found, name, *at, width, height, count, **self._settings)
        return found.reshape(shape)

    def call(self, function: str, *arguments: int) -> None:
        """Run an exported function on all PEs, to its end."""
        self._runtime.launch(function, *map(np.uint16, arguments), nonblock=False)


class Result(NamedTuple):
    """Losses of a batch."""

    losses: Array
    """[samples] float32, of each token, masked ones included [nats]"""
    correct: Array
    """[samples] bool, whether no logit is larger than the label's"""


class NetworkOnFabric:
    """Walks over the ops of a network, forward and back.

    Weights are [outputs, inputs] float32, biases [outputs]; sparse weights are the same with zeros.

    Args:
        fabric: the PEs
        plan: the contents of `network.json`
    """

    def __init__(self, fabric: Fabric, plan: Mapping[str, Any]) -> None:
        self.fabric = fabric
        self.columns, self.rows, self.tokens = plan["columns"], plan["rows"], plan["tokens"]
        self.samples, self.layers = plan["samples"], plan["layers"]
        self.names = [layer["name"] for layer in self.layers]
        self._passing = plan["rows_at_a_time"]
        sizes = [self.layers[0]["inputs"], *(layer["outputs"] for layer in self.layers)]
        self.width = [-(-size // self.columns) for size in sizes]

    def put_inputs(self, x: Array) -> None:
        """Put the batch, [samples, features], onto the PEs."""
        whole = np.zeros((self.rows * self.tokens, self.columns * self.width[0]), np.float32)
        whole[: len(x), : x.shape[1]] = x
        parts = whole.reshape(self.rows, self.tokens, self.columns, self.width[0]).transpose(0, 2, 3, 1)
        self.fabric.put("arena", parts.reshape(self.rows, self.columns, -1))

    def put_labels(self, labels: Array, scale: Array) -> None:
        """Put labels, [samples], and the factors of their losses, 0 for one that does not count."""
        for symbol, values, dtype in (("labels", labels, np.uint32), ("scale", scale, np.float32)):
            whole = np.zeros(self.rows * self.tokens, dtype)
            whole[: len(values)] = values
            parts = np.broadcast_to(whole.reshape(self.rows, 1, self.tokens), (self.rows, self.columns, self.tokens))
            self.fabric.put(symbol, parts)

    def forward(self, number: int, weight: Array) -> None:
        """Stream the rows of a matrix past the activations: partial sums of its outputs, on each column of PEs."""
        self.fabric.call("zero_sums")
        self._stream(number, weight, "forward")

    def activation(self, number: int, bias: Array | None) -> None:
        """Sum along the rows; add the bias; ReLU."""
        if bias is not None:
            own = self.width[number + 1]
            whole = np.zeros(self.columns * own, np.float32)
            whole[: len(bias)] = bias
            self.fabric.put("stream", whole.reshape(1, self.columns, own))
        self.fabric.call(f"{self._name(number)}_activation")

    def loss(self, bias: Array | None) -> Result:
        """Sum the logits; their losses; their deltas stay on the PEs."""
        if bias is not None:
            self.fabric.put("stream", np.broadcast_to(bias, (1, self.columns, len(bias))))
        self.fabric.call("loss")
        shape = self.rows, 1, self.tokens
        losses = self.fabric.get("losses", shape, np.float32).ravel()[: self.samples]
        correct = self.fabric.get("correct", shape, np.uint32).ravel()[: self.samples] == 1
        return Result(losses, correct)

    def gather(self, number: int) -> None:
        """Bring the deltas of all outputs to all PEs of a row; the gradients and the delta need them."""
        self.fabric.call(f"{self._name(number)}_gather")

    def gradient(self, number: int) -> Array:
        """The gradient of a matrix, [outputs, inputs] float32."""
        layer, own, bottom = self.layers[number], self.width[number], (0, self.rows - 1)
        found = np.zeros((layer["outputs"], layer["inputs"]), np.float32)
        for first, rows in self._cuts(number):
            self.fabric.call(f"{self._name(number)}_gradient", first, rows)
            part = self.fabric.get("gradient", (1, self.columns, own * rows), np.float32, bottom)
            part = part.reshape(self.columns, own, rows).transpose(2, 0, 1).reshape(rows, -1)
            found[first : first + rows] = part[:, : layer["inputs"]]
        return found

    def bias_gradient(self, number: int) -> Array:
        """The gradient of a bias, [outputs] float32."""
        self.fabric.call(f"{self._name(number)}_bias_gradient")
        shape = 1, self.columns, self.width[number + 1]
        found = self.fabric.get("gradient", shape, np.float32, (0, self.rows - 1))
        return found.ravel()[: self.layers[number]["outputs"]]

    def delta(self, number: int, weight: Array) -> None:
        """Stream the matrix again: the deltas of its inputs, then deltas of the outputs of the layer before."""
        self.fabric.call("zero_deltas")
        self._stream(number, weight, "delta")
        self.fabric.call(f"{self._name(number)}_relu_delta")

    def run_forward(self, x: Array, labels: Array, scale: Array, weights: Mapping[str, Array]) -> Result:
        """Run a batch forward.

        Args:
            x: [samples, features]
            labels: [samples], classes from 0
            scale: [samples], the factor of each loss in the deltas
            weights: by name, LAYER.weight and LAYER.bias
        """
        self.put_inputs(x)
        self.put_labels(labels, scale)
        last = len(self.layers) - 1
        for number, name in enumerate(self.names):
            self.forward(number, weights[f"{name}.weight"])
            if number < last:
                self.activation(number, weights.get(f"{name}.bias"))
        return self.loss(weights.get(f"{self.names[last]}.bias"))

    def run_backward(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Run the same batch backward; return the gradients by name."""
        found = {}
        for number in reversed(range(len(self.layers))):
            name = self.names[number]
            self.gather(number)
            found[f"{name}.weight"] = self.gradient(number)
            if self.layers[number]["has_bias"]:
                found[f"{name}.bias"] = self.bias_gradient(number)
            if number:
                self.delta(number, weights[f"{name}.weight"])
        return found

    def _name(self, number: int) -> str:
        return "".join(letter if letter.isalnum() else "_" for letter in self.names[number])

    def _cuts(self, number: int) -> Iterator[tuple[int, int]]:
        """The first row and number of rows of a matrix that pass at a time."""
        outputs, most = self.layers[number]["outputs"], self._passing[number]
        return ((first, min(most, outputs - first)) for first in range(0, outputs, most))

    def _stream(self, number: int, weight: Array, phase: str) -> None:
        own = self.width[number]
        whole = np.zeros((len(weight), self.columns * own), np.float32)
        whole[:, : weight.shape[1]] = weight
        parts = whole.reshape(-1, self.columns, own).transpose(1, 0, 2)
        for first, rows in self._cuts(number):
            part = parts[:, first : first + rows]
            if self.layers[number]["is_sparse"]:
                self._put_sparse(part, first, phase)
                self.fabric.call(f"{self._name(number)}_{phase}")
            else:
                self.fabric.put("stream", part.reshape(1, self.columns, -1))
                self.fabric.call(f"{self._name(number)}_{phase}", first, rows)

    def _put_sparse(self, part: Array, first: int, phase: str) -> None:
        """Put weights that are not zero, row after row: `places` begins with their number, and ends with an end.

        A place is two numbers of elements behind the first ones: of the factors, and of the sums.
        """
        kept = [np.nonzero(column) for column in part]
        most = max(len(outputs) for outputs, _ in kept)
        values = np.zeros((1, self.columns, max(1, most)), np.float32)
        places = np.zeros((1, self.columns, most + 2), np.uint32)
        for x, (outputs, inputs) in enumerate(kept):
            values[0, x, : len(outputs)] = part[x][outputs, inputs]
            places[0, x, 0] = len(outputs)
            x_place, y_place = inputs * self.tokens, (outputs + first) * self.tokens
            factor, into = (x_place, y_place) if phase == "forward" else (y_place, x_place)
            places[0, x, 1 : len(outputs) + 1] = factor | into << 16
            places[0, x, len(outputs) + 1] = END
        self.fabric.put("stream", values)
        self.fabric.put("places", places)
