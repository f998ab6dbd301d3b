"""`cstool checkpoint convert`: from one format of checkpoints to another."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cstool.convert.verbs import convert_checkpoint
from cstool.foundation.errors import CheckpointError
from cstool.foundation.terminal.options import JsonOption, argument, flag, option
from cstool.foundation.terminal.render import print_json, print_line
from cstool.foundation.terminal.screen import bars_in_bytes
from cstool.foundation.words import BYTE_UNITS, parse_quantity
from cstool.model.commands.completion import complete_checkpoint
from cstool.model.commands.options import params_option

if TYPE_CHECKING:
    from cstool.convert.convert import Converted

SourceFormat = Literal["cstool", "hf", "gguf", "vendor", "peft"]
TargetFormat = Literal["dense", "sparse", "hf", "peft"]
TARGETS = {
    **dict.fromkeys(("sparsity", "param_filter"), "sparse"),
    **dict.fromkeys(("shard_size", "tokenizer", "model_type"), "hf"),
    "base_name": "peft",
}
"""options that have an effect with one format of TARGET alone"""


def convert(
    source: Annotated[
        Path,
        argument(
            "SOURCE",
            "A checkpoint (file, DIR:STEP or DIR:latest), a safetensors file or folder of Hugging Face's or PEFT's, or "
            "a GGUF file.",
            complete_checkpoint,
        ),
    ],
    target: Annotated[Path, argument("TARGET", "The new checkpoint; for --to hf and peft a new folder.")],
    from_: Annotated[
        SourceFormat | None, flag("--from", "Format of SOURCE; found by its content if not given.")
    ] = None,
    to: Annotated[
        TargetFormat | None,
        flag(
            "--to",
            "Format of TARGET: cstool's own, dense or sparse, Hugging Face's, or, for adapters, PEFT's; hf, gguf, "
            "vendor and peft become dense.",
        ),
    ] = None,
    params: Annotated[
        Path | None, params_option("Params file of the model, if SOURCE does not name the model.")
    ] = None,
    sparsity: Annotated[
        float | None,
        option(
            "--sparsity",
            "X",
            "With --to sparse: share of zeros, the largest weights stay; if not given, by the zeros of SOURCE.",
        ),
    ] = None,
    param_filter: Annotated[
        list[str] | None,
        option("--param_filter", "GLOB", "With --to sparse: names of the weights; may be repeated."),
    ] = None,
    shard_size: Annotated[
        str | None,
        option(
            "--shard_size", "SIZE", "With --to hf: size of the largest file, such as 5GB; if not given, a single file."
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        option("--tokenizer", "bytes|FILE", "With --to hf: the tokenizer, if not the one of the training data."),
    ] = None,
    model_type: Annotated[
        str | None,
        option(
            "--model_type",
            "NAME",
            "With --to hf, or for adapters: model_type of the model, where several compute the same; if not given, the "
            "first that fits.",
        ),
    ] = None,
    base: Annotated[
        Path | None,
        option("--base", "CHECKPOINT", "For an adapter of PEFT: the checkpoint of the model beside it."),
    ] = None,
    base_name: Annotated[
        str | None,
        option("--base_name", "NAME", "With --to peft: name or path of the base; if not given, its file."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a checkpoint: dense and sparse, Hugging Face's models, GGUF, PEFT's adapters, the vendor's own files.

    It streams: a model is never whole in memory. Nothing is overwritten. Of DPO the policy is taken. Models of Hugging
    Face are supported if their model_type is gpt2, llama, mistral, mixtral, qwen2, qwen3, phi3, phi, gptj, gpt_neox,
    falcon, bloom, gpt_bigcode, starcoder2, gemma2, bert, roberta, esm, dpr, t5 or vit. GGUF files may be of gpt2,
    llama, qwen2, qwen3 or gemma2.
    """
    of_hf = {"shard_size": shard_size, "tokenizer": tokenizer}
    if to != "peft" and base is None:
        of_hf["model_type"] = model_type
    of_others = {"sparsity": sparsity, "param_filter": param_filter or None, "base_name": base_name}
    _check_targets(to, {**of_others, **of_hf})
    _check_sparsity(sparsity)
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
            model_type=model_type,
            base=base,
            base_name=base_name,
            progress=progress,
        )
    _tell(done, as_json)


def _check_targets(to: str | None, options: Mapping[str, object]) -> None:
    """Refuse options of another format."""
    for name, value in options.items():
        target = TARGETS[name]
        if value is not None and to != target:
            got = f"--to {to}" if to else "no --to"
            raise CheckpointError(f"--{name}: must stand beside --to {target}, got {got}")


def _check_sparsity(sparsity: float | None) -> None:
    """Check the share of zeros."""
    if sparsity is not None and not 0 < sparsity < 1:
        raise CheckpointError(
            f"--sparsity: must be greater than 0 and less than 1, got {sparsity:g}",
            "it is the share of zeros: 0.9 leaves a tenth of the weights",
        )


def _tell(done: "Converted", as_json: bool) -> None:
    """Print the files that were written, and the notes of a conversion."""
    if as_json:
        print_json(
            {
                "path": done.path,
                "config_path": done.config_path,
                "tokenizer_path": done.tokenizer_path,
                "from": done.source_format,
                "to": done.target_format,
                "weights": done.weights,
                "bytes": done.bytes,
                "densities": done.densities,
                "notes": done.notes,
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
    if done.tokenizer_path is not None:
        print_line(f"Tokenizer saved to {done.tokenizer_path}")


def _bytes_of(size: str) -> int:
    """Bytes of a size such as 5GB."""
    value = parse_quantity(size, BYTE_UNITS)
    if value is None or value < 1:
        rule = "must be a number with one of B, KB, MB, GB, KiB, MiB, GiB"
        raise CheckpointError(f"--shard_size: {rule}, got {size!r}", "for example 5GB")
    return int(value)
