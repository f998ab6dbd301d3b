"""`cstool checkpoint`: what is in a folder of checkpoints, and in one of them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cstool.cli.command import Command, Group
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.errors import CheckpointError

if TYPE_CHECKING:
    from cstool.store import TensorInfo

checkpoint_app = typer.Typer(cls=Group, no_args_is_help=True, help="Look at checkpoints.")


@checkpoint_app.command("list", cls=Command)
def list_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A model_dir.", show_default=False)],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List the checkpoints of a folder, the latest last."""
    with errors_as_messages(debug):
        from cstool.cli.render import bytes_text, print_json, print_table
        from cstool.store import list_checkpoints

        if not folder.is_dir():
            got = "got a file" if folder.exists() else "found nothing there"
            raise CheckpointError(f"{folder}: must be a folder, {got}", "give the model_dir of a run")
        found = [(entry.step, entry.path, entry.path.stat().st_size) for entry in list_checkpoints(folder)]
        if as_json:
            print_json({"checkpoints": [{"step": s, "path": str(path), "bytes": size} for s, path, size in found]})
        elif found:
            rows = [(str(step), bytes_text(size), path.name) for step, path, size in found]
            print_table(("step", "size", "file"), rows, right=("step", "size"))
        else:
            print(f"{folder}: no checkpoints")


@checkpoint_app.command("info", cls=Command)
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A checkpoint.", show_default=False)],
    verify: Annotated[bool, typer.Option("--verify", help="Read all of it and check its checksums.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="List all tensors, not the weights alone.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show what a checkpoint holds: version, step, weights and their sizes."""
    with errors_as_messages(debug):
        from cstool.cli.render import bytes_text, print_facts, print_json, print_table
        from cstool.store import INDICES, describe_checkpoint

        found = describe_checkpoint(file, verify=verify)
        if as_json:
            print_json({**asdict(found), "path": str(found.path), "created": found.created.isoformat()})
            return
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
        weights = [t for t in found.tensors if t.key.startswith("model.") and t.parameters]
        listed = list(found.tensors) if all_ else weights
        others = [tensor for tensor in found.tensors if tensor not in listed]
        positions = [tensor for tensor in others if not tensor.parameters and tensor.key.endswith(INDICES)]
        if positions:
            facts["positions"] = f"of non-zeros: {bytes_text(sum(tensor.bytes for tensor in positions))}"
        others = [tensor for tensor in others if tensor not in positions]
        for part in dict.fromkeys(_part(tensor) for tensor in others):
            tensors = [tensor for tensor in others if _part(tensor) == part]
            names = ", ".join(dict.fromkeys(tensor.key.rpartition(".")[2] for tensor in tensors))
            facts[part] = f"{names}: {bytes_text(sum(tensor.bytes for tensor in tensors))}"
        print_facts({**facts, "checksums": "all right"} if verify else facts)
        print()
        rows = [(t.key, _shape_text(t), t.dtype, bytes_text(t.bytes)) for t in listed]
        tied = [(key, f"is {target}", "", "") for key, target in found.links.items()]
        print_table(("tensor", "shape", "type", "size"), [*rows, *tied], right=("size",))


def _shape_text(tensor: TensorInfo) -> str:
    shape = " x ".join(map(str, tensor.sparse_shape or tensor.shape))
    return shape if tensor.sparse_shape is None else f"{shape}, {1 - tensor.shape[0] / tensor.parameters:.1%} zeros"


def _count_text(count: int | None, unit: str = "") -> str:
    return "not said" if count is None else f"{count:,}{unit}"


def _part(tensor: TensorInfo) -> str:
    return tensor.key.partition(".")[0]
