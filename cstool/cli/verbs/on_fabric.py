"""Models on the simulated fabric: the compiler's layout of a network becomes a program in CSL."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from cstool.csl.models.emit import write_folder
from cstool.csl.models.gpt_program import HOST_KINDS, GptProgram, Grid, gpt_program
from cstool.csl.models.network import Linear, Network
from cstool.foundation.errors import CompileError
from cstool.foundation.words import counted
from cstool.model.ir import Artifact, Graph, Layout, Op, OpKind, matrices_of, vectors_of

CORNER = 8, 8
"""columns and rows of PEs, if nothing else is asked for"""
MOST_PES = 32
"""PEs along a side: the simulator does some hundred PEs in bearable time"""


def network_of(artifact: Artifact, sparse: Collection[str] = ()) -> Network:
    """Return the network of an artifact on its rectangle.

    Args:
        artifact: compiled for weight streaming
        sparse: names of weights of which only numbers that are not zero are sent

    Raises:
        CompileError: the model, or its layout, is none that there is CSL for
    """
    layout, name = layout_of(artifact), artifact.graph.name
    layers = _layers(artifact.graph, frozenset(sparse))
    # An odd number of tokens would have the reads of a vector meet in a bank.
    tokens = layout.tokens_per_pe + layout.tokens_per_pe % 2
    return Network(name, layout.columns, layout.rows, tokens, artifact.batch_size, tuple(layers))


def layout_of(artifact: Artifact) -> Layout:
    """Return the layout of an artifact on its rectangle.

    Raises:
        CompileError: there is none, or no program in CSL for it
    """
    plan, name = artifact.streaming, artifact.graph.name
    if plan is None:
        raise CompileError(f"{name}: must be compiled for weight_streaming to become CSL, got {artifact.mode}")
    layout = plan.layout
    for rule, number in (
        ("one CSX", artifact.num_csx),
        ("one micro-batch", plan.micro_batches),
        ("one group of columns", layout.groups),
        ("samples in one part", layout.parts),
    ):
        if number != 1:
            raise CompileError(f"{name}: must have {rule} to become CSL, got {number}", "a smaller batch_size may do")
    if max(layout.columns, layout.rows) > MOST_PES:
        raise CompileError(
            f"{name}: must lie on at most {MOST_PES} x {MOST_PES} PEs to become CSL, "
            f"got {layout.columns} x {layout.rows}",
            "--pes 8,8 takes a corner of the wafer",
        )
    return layout


def gpt_of(artifact: Artifact) -> GptProgram:
    """Return the program of a GPT on its rectangle: its ops behind the embeddings, on one sample.

    Raises:
        CompileError: the model, or its layout, is none that there is CSL for
    """
    layout, graph = layout_of(artifact), artifact.graph
    if artifact.batch_size != 1:
        raise CompileError(
            f"{graph.name}: a batch must have one sample to become CSL, got {artifact.batch_size}",
            "--set trainer.fit.train_dataloader.batch_size=1",
        )
    return gpt_on(graph, Grid(layout.columns, layout.rows, artifact.tokens))


def gpt_on(graph: Graph, grid: Grid) -> GptProgram:
    """Return the program of a GPT, its ops behind the embeddings, on a rectangle.

    Raises:
        CompileError: there is no CSL for an op, or it does not fit
    """
    ops = [op for op in graph.ops if op.kind not in HOST_KINDS]
    first = graph.tensors[ops[0].inputs[0]]
    shapes = {name: weight.shape for name, weight in graph.weights.items()}
    return gpt_program(ops, {first.name: first.shape[-1]}, shapes, grid)


def emit_csl(artifact: Artifact, folder: Path) -> str:
    """Write the program of an artifact into a folder; return a line about it.

    Raises:
        CompileError: there is no CSL for the model, or it does not fit; or the folder cannot be written
    """
    if any(op.kind is OpKind.ATTENTION for op in artifact.graph.ops):
        program = gpt_of(artifact)
        names = _written(program.write, folder)
        grid, last = program.grid, program.steps[-1]
        return (
            f"{folder}: {counted(len(names), 'file')}, {grid.columns} x {grid.rows} PEs of wse3, "
            f"{counted(grid.own_tokens, 'token')} and {last.inputs} features to each"
        )
    network = network_of(artifact)
    names = _written(partial(write_folder, network), folder)
    return (
        f"{folder}: {counted(len(names), 'file')}, {network.columns} x {network.rows} PEs of wse3, "
        f"{network.tokens} tokens and {', '.join(map(str, network.width))} features to each"
    )


def _written(write: Callable[[Path], list[str]], folder: Path) -> list[str]:
    try:
        return write(folder)
    except OSError as error:
        raise CompileError(f"{error.filename or folder}: cannot be written, got: {error.strerror}") from error


def _layers(graph: Graph, sparse: Collection[str]) -> list[Linear]:
    """The layers of a graph of linear ops with ReLU between them and a softmax loss at the end."""
    ops, found = list(graph.ops), []
    *inner, last = ops
    x = graph.inputs[0].name
    for product, activation in zip(inner[::2], [*inner[1::2], None], strict=False):
        _check(graph, product, OpKind.LINEAR, x, {})
        if activation is None:
            raise _no_csl(graph, product, "followed by relu")
        _check(graph, activation, OpKind.ACTIVATION, product.outputs[0], {"function": "relu", "dropout": 0.0})
        found.append(_layer(graph, product, vectors_of(activation), sparse))
        x = activation.outputs[0]
    _check(graph, last, OpKind.SOFTMAX_LOSS, x, {"logits_scale": 1.0, "logits_softcap": None})
    return [*found, _layer(graph, last, vectors_of(last), sparse)]


def _layer(graph: Graph, op: Op, biases: Collection[str], sparse: Collection[str]) -> Linear:
    (matrix,) = matrices_of(op)
    outputs, inputs = graph.weights[matrix].shape
    return Linear(matrix.removesuffix(".weight"), inputs, outputs, bool(biases), matrix in sparse)


def _check(graph: Graph, op: Op, kind: OpKind, x: str, attributes: dict[str, object]) -> None:
    if op.kind is not kind:
        raise _no_csl(graph, op, f"{kind.value} to become CSL", op.kind.value)
    if op.inputs[0] != x or len(matrices_of(op)) + len(vectors_of(op)) != len(op.weights):
        raise _no_csl(graph, op, "behind the op before it, alone")
    for key, value in attributes.items():
        if op.attributes[key] != value:
            raise _no_csl(graph, op, f"of {key} {value} to become CSL", str(op.attributes[key]))


def _no_csl(graph: Graph, op: Op, rule: str, got: str | None = None) -> CompileError:
    return CompileError(
        f"{graph.name}: {op.name} must be {rule}{'' if got is None else f', got {got}'}",
        "there is CSL for fc_mnist with relu and without dropout",
    )
