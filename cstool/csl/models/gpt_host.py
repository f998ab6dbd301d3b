"""The host of a GPT on the fabric, as MemoryX: it streams weights in, op by op, and takes losses and gradients out.

This file is copied beside the programs that `cstool compile --emit csl` writes. It needs NumPy, and `host.Fabric`.
Arrays of tokens are [tokens, features], matrices [outputs, inputs].
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Step = Mapping[str, Any]
"""an op, as program.json has it"""


class Result(NamedTuple):
    """The results of a sample."""

    losses: Array
    """[tokens] float32, of each token [nats]"""
    gradients: dict[str, Array]
    """by weight, float32"""
    delta: Array
    """[tokens, hidden] float32, of the embedded tokens"""


class GptOnFabric:
    """Walks over the ops of a GPT, forward and back.

    Args:
        fabric: the PEs, as `host.Fabric` has them
        program: the contents of program.json
    """

    def __init__(self, fabric: Any, program: Mapping[str, Any]) -> None:
        self.fabric = fabric
        self.columns, self.rows, self.tokens = program["columns"], program["rows"], program["tokens"]
        self.steps: list[Step] = program["steps"]

    def put_tokens(self, name: str, values: Array) -> None:
        """Put [tokens, features] into an array of the PEs: features over columns, tokens dealt in turn to rows."""
        own, width = self.tokens // self.rows, values.shape[1] // self.columns
        dealt = values.reshape(own, self.rows, self.columns, width).transpose(1, 2, 0, 3)
        self.fabric.put(name, dealt.reshape(self.rows, self.columns, -1))

    def get_tokens(self, name: str, features: int) -> Array:
        """Return [tokens, features] of an array of the PEs."""
        own, width = self.tokens // self.rows, features // self.columns
        found = self.fabric.get(name, (self.rows, self.columns, own * width), np.float32)
        dealt = found.reshape(self.rows, self.columns, own, width)
        return np.asarray(dealt.transpose(2, 0, 1, 3).reshape(self.tokens, features))

    def put_labels(self, labels: Array, weights: Array) -> None:
        """Put the labels of the tokens, and their weights in the loss, onto all columns."""
        for name, values in (("labels", labels.astype(np.uint32)), ("token_weights", weights.astype(np.float32))):
            own = values.reshape(-1, self.rows).T
            self.fabric.put(name, np.repeat(own[:, None], self.columns, axis=1))

    def forward(self, step: Step, weights: Mapping[str, Array]) -> None:
        """Stream the weights of an op in, and run it."""
        self._stream_in(step, weights, is_backward=False)
        self.fabric.call(f"forward_{step['name']}")

    def backward(self, step: Step, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Stream the weights of an op in again, run it backward, and return its gradients by name."""
        self._stream_in(step, weights, is_backward=True)
        self.fabric.call(f"backward_{step['name']}")
        return self._stream_out(step) if step["weights"] else {}

    def losses(self) -> Array:
        """Return the losses of the tokens, [tokens] float32."""
        return self._of_tokens(self.steps[-1]["output"])

    def correct(self) -> Array:
        """Return for each token whether no logit is larger than the label's, [tokens] bool."""
        return np.asarray(self._of_tokens("correct") == 1.0)

    def run(self, weights: Mapping[str, Array], x: Array, labels: Array, token_weights: Array) -> Result:
        """Run a sample forward and backward.

        Args:
            weights: by name, float32
            x: [tokens, hidden] float32, after the embeddings
            labels: [tokens], classes from 0
            token_weights: [tokens], the factor of each loss in the deltas
        """
        first = self.steps[0]["arrays"][0]
        self.put_tokens(first, x)
        self.put_labels(labels, token_weights)
        for step in self.steps:
            self.forward(step, weights)
        losses, gradients = self.losses(), {}
        for step in reversed(self.steps):
            gradients.update(self.backward(step, weights))
        return Result(losses, gradients, self.get_tokens(f"delta_{first}", x.shape[1]))

    def _of_tokens(self, name: str) -> Array:
        found = self.fabric.get(name, (self.rows, 1, self.tokens // self.rows), np.float32)
        return np.asarray(found.reshape(self.rows, -1).T.ravel())

    def _stream_in(self, step: Step, weights: Mapping[str, Array], is_backward: bool) -> None:
        if not step["weights"]:
            return
        arrays = [weights[name] for name in step["weights"]]
        if step["form"] == "vectors":
            parts = np.stack([array.reshape(self.columns, -1) for array in arrays], axis=1)
        elif is_backward:
            parts = arrays[0].reshape(-1, self.columns, step["inputs"]).transpose(1, 0, 2)
        else:
            parts = arrays[0].T.reshape(self.columns, step["inputs"], -1)
            if arrays[1:]:
                row = np.zeros((self.columns, 1, step["outputs"]), np.float32)
                row[0, 0] = arrays[1]
                parts = np.concatenate([parts, row], axis=1)
        self.fabric.put("stream", parts.reshape(1, self.columns, -1))

    def _stream_out(self, step: Step) -> dict[str, Array]:
        names, inputs, outputs = step["weights"], step["inputs"], step["outputs"]
        rows, width = (inputs + len(names) - 1, outputs) if step["form"] == "matrix" else (len(names), inputs)
        found = self.fabric.get("stream", (1, self.columns, rows * width), np.float32)
        parts = found.reshape(self.columns, rows, width)
        if step["form"] == "vectors":
            return {name: parts[:, number].ravel() for number, name in enumerate(names)}
        matrix = {names[0]: parts[:, :inputs].reshape(-1, outputs).T}
        return matrix | dict.fromkeys(names[1:], parts[0, -1])
