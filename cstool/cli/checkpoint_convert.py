"""`cstool checkpoint convert`: from one format of checkpoints to another."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cstool.cli.completion import complete_checkpoint, complete_params
from cstool.cli.render import print_line
from cstool.cli.report import DebugOption, JsonOption, errors_as_messages
from cstool.errors import CheckpointError
from cstool.words import BYTE_UNITS, parse_quantity

CONVERT_EPILOG = """\
Example: cstool checkpoint convert checkpoints/gpt_tiny/checkpoint_600.mdl gpt_tiny_hf --to hf
Example: cstool checkpoint convert checkpoints/gpt_tiny/checkpoint_600.mdl sparse.mdl --to sparse --sparsity 0.8
Example: cstool checkpoint convert gpt2_folder gpt2.mdl --params gpt2_small"""


class SourceFormat(StrEnum):
    """What can be read."""

    CSTOOL = "cstool"
    HF = "hf"
    VENDOR = "vendor"


class TargetFormat(StrEnum):
    """What can be written."""

    DENSE = "dense"
    SPARSE = "sparse"
    HF = "hf"


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A checkpoint (file, DIR:STEP or DIR:latest), or a safetensors file or folder of Hugging Face's.",
            show_default=False,
            autocompletion=complete_checkpoint,
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(metavar="TARGET", help="The new checkpoint; for --to hf a new folder.", show_default=False),
    ],
    from_: Annotated[
        SourceFormat | None,
        typer.Option("--from", help="Format of SOURCE; without it, what it looks like.", show_default=False),
    ] = None,
    to: Annotated[
        TargetFormat | None,
        typer.Option(
            "--to", help="cstool's own with dense or sparse weights, or Hugging Face's; hf and vendor become dense."
        ),
    ] = None,
    params: Annotated[
        Path | None,
        typer.Option(
            "-p",
            "--params",
            metavar="FILE",
            help="Params file of the model, where SOURCE does not say which it is.",
            autocompletion=complete_params,
        ),
    ] = None,
    sparsity: Annotated[
        float | None,
        typer.Option(
            "--sparsity", metavar="X", help="With --to sparse: share of zeros, the largest stay; without it, by zeros."
        ),
    ] = None,
    param_filter: Annotated[
        list[str] | None,
        typer.Option(
            "--param_filter", metavar="GLOB", help="With --to sparse: names of the weights; may be given again."
        ),
    ] = None,
    shard_size: Annotated[
        str | None,
        typer.Option("--shard_size", metavar="SIZE", help="With --to hf: largest file, such as 5GB; without it, one."),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", metavar="bytes|FILE", help="With --to hf: the tokenizer, if not that of the training data."
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Convert a checkpoint: dense and sparse, Hugging Face's GPT-2 and Llama, the vendor's own files.

    It streams: no model is ever in memory. Nothing is overwritten.
    """
    with errors_as_messages(debug):
        _check_flags(to, sparsity, param_filter, shard_size, tokenizer)
        from cstool.cli.render import print_json
        from cstool.cli.screen import bars_in_bytes
        from cstool.verbs.checkpoints import convert_checkpoint

        with bars_in_bytes() as progress:
            done = convert_checkpoint(
                source,
                target,
                source_format=from_,
                to=to,
                params=params,
                sparsity=sparsity,
                param_filter=param_filter or (),
                shard_bytes=None if shard_size is None else _bytes_of(shard_size),
                tokenizer=tokenizer,
                progress=progress,
            )
        if as_json:
            print_json(
                {
                    "path": str(done.path),
                    "config_path": None if done.config_path is None else str(done.config_path),
                    "from": done.source_format,
                    "to": done.target_format,
                    "weights": done.weights,
                    "bytes": done.bytes,
                    "densities": dict(done.densities),
                    "notes": list(done.notes),
                }
            )
            return
        for note in done.notes:
            print_line(f"note: {note}")
        if done.densities:
            share = 1 - sum(done.densities.values()) / len(done.densities)
            print(f"{len(done.densities)} of {done.weights} weights are sparse, with {share:.1%} zeros on average")
        print_line(f"Checkpoint saved to {done.path}")
        if done.config_path is not None:
            print_line(f"Config saved to {done.config_path}")


def _check_flags(
    to: TargetFormat | None,
    sparsity: float | None,
    param_filter: list[str] | None,
    shard_size: str | None,
    tokenizer: str | None,
) -> None:
    """Check that flags go together and hold what they must."""
    of_target = {
        "--sparsity": (TargetFormat.SPARSE, sparsity),
        "--param_filter": (TargetFormat.SPARSE, param_filter or None),
        "--shard_size": (TargetFormat.HF, shard_size),
        "--tokenizer": (TargetFormat.HF, tokenizer),
    }
    for flag, (target, value) in of_target.items():
        if value is not None and to is not target:
            raise CheckpointError(f"{flag}: must stand beside --to {target}, got {f'--to {to}' if to else 'no --to'}")
    if sparsity is not None and not 0 < sparsity < 1:
        raise CheckpointError(
            f"--sparsity: must be greater than 0 and less than 1, got {sparsity:g}",
            "it is the share of zeros: 0.9 leaves a tenth of the weights",
        )


def _bytes_of(size: str) -> int:
    """Bytes of a size such as 5GB."""
    value = parse_quantity(size, BYTE_UNITS)
    if value is None or value < 1:
        rule = "must be a number with one of B, KB, MB, GB, KiB, MiB, GiB"
        raise CheckpointError(f"--shard_size: {rule}, got {size!r}", "for example 5GB")
    return int(value)
