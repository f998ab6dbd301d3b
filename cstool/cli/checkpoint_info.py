"""`cstool checkpoint info`: what is in a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cstool.cli.completion import complete_checkpoint
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.errors import CheckpointError

if TYPE_CHECKING:
    from cstool.store import CheckpointInfo, TensorInfo

CheckpointArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A checkpoint: its file, DIR:STEP or DIR:latest.",
        show_default=False,
        autocompletion=complete_checkpoint,
    ),
]


def info(
    file: CheckpointArgument,
    verify: Annotated[bool, typer.Option("--verify", help="Read all of it and check its checksums.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="List all tensors, not the weights alone.")] = False,
    tensors: Annotated[
        str | None,
        typer.Option("--tensors", metavar="GLOB", help="List the tensors of these names, whatever they are."),
    ] = None,
    norms: Annotated[bool, typer.Option("--norms", help="Compute the L2 norm of every tensor that is listed.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what a checkpoint holds: version, step, weights and their sizes."""
    with errors_as_messages(debug):
        from cstool.cli.render import print_json
        from cstool.cli.screen import progress_in_bytes
        from cstool.store import describe_checkpoint, find_checkpoint, open_checkpoint, tensor_norms

        with open_checkpoint(find_checkpoint(file)) as state:
            if verify:
                with progress_in_bytes("Verifying") as progress:
                    state.verify_all(progress)
            found = describe_checkpoint(state)
            listed = _listed(found, tensors, all_ or as_json)
            computed: dict[str, float] | None = None
            if norms:
                with progress_in_bytes("Computing norms") as progress:
                    computed = tensor_norms(state, [t.key for t in listed if t.parameters], progress)
        if as_json:
            print_json(_document(found, listed, computed))
            return
        facts = _facts(found, found.tensors if tensors else listed)
        _print(facts | {"checksums": "all right"} if verify else facts, found, listed, tensors, computed)


def _listed(found: CheckpointInfo, glob: str | None, all_: bool) -> list[TensorInfo]:
    """Return the tensors to be listed.

    Raises:
        CheckpointError: there are none of that name
    """
    if glob is None:
        return [t for t in found.tensors if all_ or (t.key.startswith("model.") and t.parameters)]
    matching = [tensor for tensor in found.tensors if fnmatchcase(tensor.key, glob)]
    if not matching and not any(fnmatchcase(key, glob) for key in found.links):
        raise CheckpointError(
            f"--tensors: must match the key of a tensor in {found.path}, got {glob!r}",
            "a key begins with its part: 'model.*' are the weights; --all lists all",
        )
    return matching


def _document(found: CheckpointInfo, listed: list[TensorInfo], norms: dict[str, float] | None) -> dict[str, Any]:
    tensors = [asdict(t) | ({} if norms is None else {"norm": norms.get(t.key)}) for t in listed]
    return {**asdict(found), "path": str(found.path), "created": found.created.isoformat(), "tensors": tensors}


def _facts(found: CheckpointInfo, listed: Sequence[TensorInfo]) -> dict[str, str]:
    """Return what is said above the table; of tensors that are not in it, in short."""
    from cstool.store import INDICES
    from cstool.words import bytes_text

    facts = {
        "file": str(found.path),
        "size": bytes_text(found.bytes),
        "created": f"{found.created:%Y-%m-%d %H:%M:%S} UTC",
        "format": f"{found.version}, written by cstool {found.cstool_version}",
        "model": "not said" if found.model_name is None else found.model_name,
        "step": _count_text(found.step),
        "seed": "not said" if found.seed is None else str(found.seed),
        "streamed": _count_text(found.batches_streamed, " batches"),
        "parameters": f"{found.parameter_count:,}",
    }
    others = [tensor for tensor in found.tensors if tensor not in listed]
    positions = [tensor for tensor in others if not tensor.parameters and tensor.key.endswith(INDICES)]
    if positions:
        facts["positions"] = f"of non-zeros: {bytes_text(sum(tensor.bytes for tensor in positions))}"
    others = [tensor for tensor in others if tensor not in positions]
    for part in dict.fromkeys(_part(tensor) for tensor in others):
        tensors = [tensor for tensor in others if _part(tensor) == part]
        names = ", ".join(dict.fromkeys(tensor.key.rpartition(".")[2] for tensor in tensors))
        facts[part] = f"{names}: {bytes_text(sum(tensor.bytes for tensor in tensors))}"
    return facts


def _print(
    facts: dict[str, str],
    found: CheckpointInfo,
    listed: list[TensorInfo],
    glob: str | None,
    norms: dict[str, float] | None,
) -> None:
    from cstool.cli.render import print_facts, print_table, shape_text
    from cstool.words import bytes_text

    print_facts(facts)
    print()
    columns, rows = ["tensor", "shape", "type", "size"], []
    for t in listed:
        shape = shape_text(t.shape) if t.sparse_shape is None else shape_text(t.sparse_shape, t.shape[0])
        rows.append([t.key, shape, t.dtype, bytes_text(t.bytes)])
    rows += [[k, f"is {to}", "", ""] for k, to in found.links.items() if glob is None or fnmatchcase(k, glob)]
    if norms is not None:
        columns.append("L2 norm")
        for row in rows:
            row.append(f"{norms[row[0]]:.6g}" if row[0] in norms else "")
    print_table(columns, rows, right=("size", "L2 norm"))


def _count_text(count: int | None, unit: str = "") -> str:
    return "not said" if count is None else f"{count:,}{unit}"


def _part(tensor: TensorInfo) -> str:
    return tensor.key.partition(".")[0]
