"""`cstool checkpoint info`: the content of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cstool.foundation.terminal.options import JsonOption, flag, option
from cstool.foundation.terminal.render import print_facts, print_json, print_table, shape_text
from cstool.foundation.terminal.screen import bars_in_bytes
from cstool.foundation.words import bytes_text
from cstool.model.commands.options import CheckpointArgument
from cstool.training.verbs.checkpoints import describe_checkpoint

if TYPE_CHECKING:
    from cstool.training.store import CheckpointInfo, TensorInfo
    from cstool.training.verbs.checkpoints import Described


def info(
    file: CheckpointArgument,
    verify: Annotated[bool, flag("--verify", "Read all of it and check its checksums.")] = False,
    all_: Annotated[bool, flag("--all", "List all tensors, not the weights alone.")] = False,
    tensors: Annotated[str | None, option("--tensors", "GLOB", "List the tensors of these names, of any kind.")] = None,
    norms: Annotated[bool, flag("--norms", "Compute the L2 norm of every tensor that is listed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the contents of a checkpoint: version, step, weights and their sizes."""
    with bars_in_bytes() as progress:
        found = describe_checkpoint(
            file, tensors=tensors, everything=all_ or as_json, verifies=verify, norms=norms, progress=progress
        )
    if as_json:
        tensors_found = [
            asdict(t) | ({} if found.norms is None else {"norm": found.norms.get(t.key)}) for t in found.listed
        ]
        print_json(asdict(found.info) | {"created": found.info.created.isoformat(), "tensors": tensors_found})
        return
    facts = _facts(found.info, found.info.tensors if tensors else found.listed)
    _print(facts | {"checksums": "all right"} if verify else facts, found)


def _facts(found: CheckpointInfo, listed: Sequence[TensorInfo]) -> dict[str, str]:
    """The lines above the table; of tensors that are not in it, in short."""
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
    positions = [tensor for tensor in others if tensor.is_positions]
    if positions:
        facts["positions"] = f"of non-zeros: {bytes_text(sum(tensor.bytes for tensor in positions))}"
    others = [tensor for tensor in others if tensor not in positions]
    for part in dict.fromkeys(_part(tensor) for tensor in others):
        tensors = [tensor for tensor in others if _part(tensor) == part]
        names = ", ".join(dict.fromkeys(tensor.key.rpartition(".")[2] for tensor in tensors))
        facts[part] = f"{names}: {bytes_text(sum(tensor.bytes for tensor in tensors))}"
    return facts


def _print(facts: dict[str, str], found: Described) -> None:
    print_facts(facts)
    print()
    columns, rows = ["tensor", "shape", "type", "size"], []
    for t in found.listed:
        shape = shape_text(t.shape) if t.sparse_shape is None else shape_text(t.sparse_shape, t.shape[0])
        rows.append([t.key, shape, t.dtype, bytes_text(t.bytes)])
    rows += [[key, f"is {to}", "", ""] for key, to in found.links.items()]
    if (norms := found.norms) is not None:
        columns.append("L2 norm")
        for row in rows:
            row.append(f"{norms[row[0]]:.6g}" if row[0] in norms else "")
    print_table(columns, rows, right=("size", "L2 norm"))


def _count_text(count: int | None, unit: str = "") -> str:
    return "not said" if count is None else f"{count:,}{unit}"


def _part(tensor: TensorInfo) -> str:
    return tensor.key.partition(".")[0]
