"""Calls of the kernels of an op, in which nothing is written yet, and processes that load the kernels anew."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from cstool.model.ir import OP_RULES, OpKind
from cstool.training.kernels.bfloat16 import float_dtype
from cstool.training.kernels.call import Call
from cstool.training.kernels.table import KERNELS

Array = np.ndarray


def make_call(kind, inputs, weights=(), *, y=None, delta_y=None, delta_x=None, sequence=1, of_call=None, **attributes):
    """Return a call; what it is to write is full of NaN.

    Args:
        y, delta_x: where they are to be written; None for somewhere else than all others
        of_call: other fields of the call
        attributes: of the op
    """
    x, rules = inputs[0], OP_RULES[kind]
    dtype = next(float_dtype(array) for array in (*inputs, *weights) if array is not None and array.dtype != np.int32)

    def nan(*shape: int) -> Array:
        return np.full(shape, np.nan, dtype)

    deltas = [nan(*array.shape) for array in inputs]
    return Call(
        attributes,
        sequence,
        tuple(inputs),
        ((nan(len(x)) if rules.losses else nan(*x.shape)) if y is None else y,),
        **{
            "kept": {name: nan(*shape) for name, shape in rules.statistics_shapes(attributes, len(x)).items()},
            "delta_outputs": (delta_y,),
            "delta_inputs": tuple(deltas if delta_x is None else [delta_x, *deltas[1:]]),
            "accumulate": (False,),
            "weights": weights,
            "gradients": [nan(x.shape[1]) if weight is None else nan(*weight.shape) for weight in weights],
            **(of_call or {}),
        },
    )


def forward(kind: OpKind, inputs: Sequence[Array], weights: Sequence[Array | None] = (), **more: Any) -> list[Array]:
    """Return the output of an op, and what it keeps."""
    call = make_call(kind, inputs, weights, **more)
    KERNELS[kind].forward(call)
    return [*call.outputs, *call.kept.values()]


def backward(kind, inputs, weights, delta_y, **more):
    """Return the deltas of the inputs of an op, and the gradients of its weights."""
    call = make_call(kind, inputs, weights, delta_y=delta_y, **more)
    KERNELS[kind].forward(call)
    KERNELS[kind].backward(call)
    return [*call.delta_inputs, *call.gradients]


def said_by_a_process(script: str, *arguments: str, **variables: str) -> tuple[str, str]:
    """Return what a script prints, and says of errors, in a process with other environment variables."""
    command, environment = [sys.executable, "-c", script, *arguments], {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr
