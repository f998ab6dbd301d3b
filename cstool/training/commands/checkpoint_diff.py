"""`cstool checkpoint diff`: the differences and common parts of two checkpoints."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cstool.foundation.errors import CheckpointError
from cstool.foundation.terminal.options import JsonOption, flag, option
from cstool.foundation.terminal.render import print_facts, print_json, print_table, shape_text
from cstool.foundation.terminal.screen import bars_in_bytes
from cstool.foundation.words import counted
from cstool.model.commands.options import checkpoint_argument
from cstool.training.verbs.checkpoints import diff_checkpoints

if TYPE_CHECKING:
    from cstool.training.store import CheckpointDiff, TensorComparison, TensorForm

LONGEST_VALUE = 120
"""characters of a value that are printed"""


def diff(
    left: Annotated[str, checkpoint_argument("LEFT")],
    right: Annotated[str, checkpoint_argument("RIGHT")],
    tensor_comparison_op: Annotated[
        Literal["equal", "allclose"], flag("--tensor_comparison_op", "Whether tensors must be equal, or close.")
    ] = "equal",
    rtol: Annotated[float | None, option("--rtol", "X", "allclose: relative tolerance.", show_default="1e-5")] = None,
    atol: Annotated[float | None, option("--atol", "X", "allclose: absolute tolerance.", show_default="1e-8")] = None,
    tensors_only: Annotated[
        bool, flag("--tensors_only", "Compare the tensors alone: are the weights and states the same?")
    ] = False,
    with_paths: Annotated[bool, flag("--with_paths", "Count other paths in the params as a difference, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two checkpoints: keys, shapes, types, numbers and values.

    Sparse and dense tensors are compared by their values. NaN equals NaN if the bits are the same.
    Different paths of a run's files in the params are reported, but do not count as a difference.
    The exit code is 0 if the checkpoints match, 1 if they differ, 2 if one cannot be read or is damaged.
    """
    is_close = tensor_comparison_op == "allclose"
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not is_close:
            raise CheckpointError(f"--{name}: must go with --tensor_comparison_op allclose, got equal")
        if value is not None and not value >= 0:
            raise CheckpointError(f"--{name}: must be at least 0, got {value:g}")
    if tensors_only and with_paths:
        raise CheckpointError("--with_paths: must go without --tensors_only, which leaves out the params")
    with bars_in_bytes() as progress:
        found = diff_checkpoints(
            left,
            right,
            rtol=rtol,
            atol=atol,
            is_close=is_close,
            tensors_only=tensors_only,
            with_paths=with_paths,
            progress=progress,
        )
    if as_json:
        print_json(
            {
                "left": found.left,
                "right": found.right,
                "tensor_comparison_op": tensor_comparison_op,
                **({} if found.tolerance is None else asdict(found.tolerance)),
                "match": found.match,
                "tensors": found.tensors,
                "values": found.values,
                "paths": found.paths,
            }
        )
    else:
        _print(found, tensors_only)
    if not found.match:
        raise typer.Exit(1)


def _print(found: CheckpointDiff, tensors_only: bool) -> None:
    print_facts({"left": str(found.left), "right": str(found.right)})
    columns = ("tensor", "left", "right", "difference", "MSE", "greatest")
    rows = [_row(tensor) for tensor in found.tensors if tensor.difference or tensor.note]
    if rows:
        print()
        print_table(columns, rows, right=("MSE", "greatest"))
    for name, values in (("value", found.values), ("path, no difference", found.paths)):
        if values:
            print()
            # A path is whole: two of them often differ at their ends.
            longest = LONGEST_VALUE if values is found.values else sys.maxsize
            texts = [(v.key, _value_text(v.left, longest), _value_text(v.right, longest)) for v in values]
            print_table((name, "left", "right"), texts)
    differing = sum(tensor.difference is not None for tensor in found.tensors)
    differences = counted(len(found.values), "difference")
    compared = f"{found.value_count:,} values compared, {differences}"
    values_text = "values are left out" if tensors_only else compared
    print(f"\n{len(found.tensors):,} tensors compared, {differing:,} differ; {values_text}.")
    print("Checkpoints match." if found.match else "Checkpoints differ.")


def _row(tensor: TensorComparison) -> tuple[str, ...]:
    what = tensor.difference or "none"
    if tensor.difference == "numbers":
        what = "1 number" if tensor.differing == 1 else f"{tensor.differing:,} numbers"
    said = f"{what} ({tensor.note})" if tensor.note else what
    measures = ("" if x is None else f"{x:.3g}" for x in (tensor.mean_square, tensor.greatest))
    return (tensor.key, _form_text(tensor.left), _form_text(tensor.right), said, *measures)


def _form_text(form: TensorForm | None) -> str:
    if form is None:
        return "not there"
    shape = shape_text(form.shape)
    zeros = shape_text(form.shape, form.stored).removeprefix(shape)
    return f"{shape} {form.dtype}{zeros}".strip()


def _value_text(value: str | None, longest: int) -> str:
    if value is None:
        return "not there"
    return value if len(value) <= longest else f"{value[:longest]}..."
