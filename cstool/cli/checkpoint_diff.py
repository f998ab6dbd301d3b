"""`cstool checkpoint diff`: what two checkpoints have and have not in common."""

from __future__ import annotations

import sys
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cstool.cli.completion import complete_checkpoint
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.errors import CheckpointError

if TYPE_CHECKING:
    from cstool.verbs.results import CheckpointDiff, TensorComparison, TensorForm

LONGEST_VALUE = 120
"""characters of a value that are printed"""


class ComparisonOp(StrEnum):
    """When two tensors are alike."""

    equal = "equal"
    allclose = "allclose"


def _side(name: str) -> Any:
    return typer.Argument(
        metavar=name,
        help="A checkpoint: its file, DIR:STEP or DIR:latest.",
        show_default=False,
        autocompletion=complete_checkpoint,
    )


def diff(
    left: Annotated[str, _side("LEFT")],
    right: Annotated[str, _side("RIGHT")],
    tensor_comparison_op: Annotated[
        ComparisonOp, typer.Option("--tensor_comparison_op", help="Whether tensors must be equal, or close.")
    ] = ComparisonOp.equal,
    rtol: Annotated[
        float | None,
        typer.Option("--rtol", metavar="X", help="allclose: relative tolerance.", show_default="1e-5"),
    ] = None,
    atol: Annotated[
        float | None,
        typer.Option("--atol", metavar="X", help="allclose: absolute tolerance.", show_default="1e-8"),
    ] = None,
    tensors_only: Annotated[
        bool, typer.Option("--tensors_only", help="Compare the tensors alone: are the weights and states the same?")
    ] = False,
    with_paths: Annotated[
        bool, typer.Option("--with_paths", help="Take other paths in the params for a difference, too.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Compare two checkpoints: keys, shapes, types, numbers and values.

    Sparse and dense tensors are compared by what they mean. NaN equals NaN if the bits are the same.
    Where a run found and left its files (paths in the params) is told, and is no difference.
    The exit code is 0 if the checkpoints match, 1 if they differ, 2 if one cannot be read or is damaged.
    """
    with errors_as_messages(debug):
        is_close = tensor_comparison_op is ComparisonOp.allclose
        _check_tolerances({"rtol": rtol, "atol": atol}, is_close)
        if tensors_only and with_paths:
            raise CheckpointError("--with_paths: must go without --tensors_only, which leaves out the params")
        from cstool.cli.render import print_json
        from cstool.cli.screen import bars_in_bytes
        from cstool.verbs.checkpoints import diff_checkpoints

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
            print_json(_document(found, tensor_comparison_op))
        else:
            _print(found, tensors_only)
        if not found.match:
            raise typer.Exit(1)


def _check_tolerances(given: dict[str, float | None], is_close: bool) -> None:
    """Check how close tensors must be."""
    for name, value in given.items():
        if value is not None and not is_close:
            raise CheckpointError(f"--{name}: must go with --tensor_comparison_op allclose, got equal")
        if value is not None and not value >= 0:
            raise CheckpointError(f"--{name}: must be at least 0, got {value:g}")


def _document(found: CheckpointDiff, op: ComparisonOp) -> dict[str, Any]:
    return {
        "left": str(found.left),
        "right": str(found.right),
        "tensor_comparison_op": op.value,
        **({} if found.tolerance is None else asdict(found.tolerance)),
        "match": found.match,
        "tensors": [asdict(tensor) for tensor in found.tensors],
        "values": [asdict(value) for value in found.values],
        "paths": [asdict(value) for value in found.paths],
    }


def _print(found: CheckpointDiff, tensors_only: bool) -> None:
    from cstool.cli.render import print_facts, print_table

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
    differences = "1 difference" if len(found.values) == 1 else f"{len(found.values):,} differences"
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
    from cstool.cli.render import shape_text

    if form is None:
        return "not there"
    shape = shape_text(form.shape)
    zeros = shape_text(form.shape, form.stored).removeprefix(shape)
    return f"{shape} {form.dtype}{zeros}".strip()


def _value_text(value: str | None, longest: int) -> str:
    if value is None:
        return "not there"
    return value if len(value) <= longest else f"{value[:longest]}..."
