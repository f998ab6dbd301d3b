"""The host's side of a GPT on a grid of PEs: weights in, op by op, and gradients out.

A wafer is an object with `put(symbol, values, at)`, `get(symbol, size, at)` and `call(function)`, arrays [height, width,
words] of PEs; the program is program.json beside its CSL. Arrays of tokens are (tokens, features), matrices (outputs,
inputs).
"""

import numpy as np


class Gpt:
    """A program that runs on a wafer.

    Args:
        wafer: with the program loaded
        program: columns, rows and tokens; `steps`, the ops in order
    """

    def __init__(self, wafer, program):
        self._wafer = wafer
        self._columns, self._rows = program["columns"], program["rows"]
        self._tokens = program["tokens"]
        self.steps = program["steps"]

    def put_tokens(self, name, values):
        """Copy (tokens, features) to an array of the PEs; features over columns, tokens dealt in turn to rows."""
        own, width = self._tokens // self._rows, values.shape[1] // self._columns
        dealt = values.reshape(own, self._rows, self._columns, width).transpose(1, 2, 0, 3)
        self._wafer.put(name, np.ascontiguousarray(dealt).reshape(self._rows, self._columns, -1))

    def get_tokens(self, name, width):
        """Return an array of the PEs, (tokens, features).

        Args:
            name: of the array
            width: features, of all columns
        """
        own, part = self._tokens // self._rows, width // self._columns
        found = self._wafer.get(name, (self._rows, self._columns, own * part))
        dealt = found.reshape(self._rows, self._columns, own, part)
        return dealt.transpose(2, 0, 1, 3).reshape(self._tokens, width)

    def put_labels(self, labels, weights):
        """Copy the labels of the tokens, and their weights in the loss, to all columns."""
        for name, values in (("labels", labels.astype(np.uint32)), ("token_weights", weights.astype(np.float32))):
            own = values.reshape(-1, self._rows).T
            self._wafer.put(name, np.repeat(own[:, None], self._columns, axis=1))

    def forward(self, step, weights):
        """Hand an op its weights, and run it."""
        self._stream_in(step, weights, is_backward=False)
        self._wafer.call(f"forward_{step['name']}")

    def backward(self, step, weights):
        """Hand an op its weights once more, run it backward, and return its gradients by name."""
        self._stream_in(step, weights, is_backward=True)
        self._wafer.call(f"backward_{step['name']}")
        return self._stream_out(step)

    def losses(self):
        """Return the loss of each token."""
        found = self._wafer.get(self.steps[-1]["output"], (self._rows, 1, self._tokens // self._rows))
        return found.reshape(self._rows, -1).T.ravel()

    def _stream_in(self, step, weights, is_backward):
        if not step["weights"]:
            return
        arrays = [np.asarray(weights[name], np.float32) for name in step["weights"]]
        if step["form"] == "matrix":
            matrix, *bias = arrays
            parts = matrix.T.reshape(self._columns, step["inputs"], -1)
            if is_backward:
                parts = parts.transpose(0, 2, 1)
            elif bias:
                row = np.zeros((self._columns, 1, matrix.shape[0]), np.float32)
                row[0, 0] = bias[0]
                parts = np.concatenate([parts, row], axis=1)
        else:
            parts = np.stack([array.reshape(self._columns, -1) for array in arrays], axis=1)
        self._wafer.put("stream", np.ascontiguousarray(parts, np.float32).reshape(1, self._columns, -1))

    def _stream_out(self, step):
        if not step["weights"]:
            return {}
        names, inputs, outputs = step["weights"], step["inputs"], step["outputs"]
        if step["form"] == "matrix":
            rows = inputs + len(names) - 1
            found = self._wafer.get("stream", (1, self._columns, rows * outputs)).reshape(self._columns, rows, outputs)
            gradients = {names[0]: found[:, :inputs].reshape(-1, outputs).T}
            return gradients | {name: found[0, inputs] for name in names[1:]}
        found = self._wafer.get("stream", (1, self._columns, len(names) * inputs))
        parts = found.reshape(self._columns, len(names), inputs)
        return {name: parts[:, number].ravel() for number, name in enumerate(names)}


def train_step(gpt, weights, x, labels, token_weights):
    """Run a sample forward and backward.

    Args:
        gpt: the program
        weights: by name
        x: (tokens, hidden), after the embeddings
        labels: of the tokens
        token_weights: of the tokens in the loss

    Returns:
        the loss of each token, gradients by name, and the delta of x
    """
    first = gpt.steps[0]["arrays"][0]
    gpt.put_tokens(first, x)
    gpt.put_labels(labels, token_weights)
    for step in gpt.steps:
        gpt.forward(step, weights)
    losses, gradients = gpt.losses(), {}
    for step in reversed(gpt.steps):
        gradients.update(gpt.backward(step, weights))
    return losses, gradients, gpt.get_tokens(f"delta_{first}", x.shape[1])
