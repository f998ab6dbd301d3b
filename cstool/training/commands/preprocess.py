"""`cstool data preprocess`: a data set by a file of the vendor's preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cstool.foundation.terminal.options import JsonOption, argument, option
from cstool.foundation.terminal.render import print_json, print_line, print_table
from cstool.foundation.terminal.screen import bars_in_bytes
from cstool.foundation.words import counted
from cstool.training.commands.data_flags import OverwriteOption
from cstool.training.commands.instruction_data import print_left_out
from cstool.training.verbs.instruction_data import preprocess_data

if TYPE_CHECKING:
    from cstool.training.data import PreprocessSummary

_ENDLESS = (
    "the end of an answer is no special token, so a model may not stop; processing.end_of_turn_token names the end"
)


def preprocess(
    config: Annotated[Path, argument("CONFIG", "A YAML file with setup, processing and dataset.")],
    set_: Annotated[
        list[str] | None, option("--set", "KEY=VALUE", "Change a value of the file, for example setup.output_dir=out.")
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make a data set by a YAML file of the vendor's preprocessing, with its tokens and masks.

    Modes are pretraining, finetuning, dpo and nlg; hooks those of the Model Zoo, by name; tokenizers and data lie on
    this machine. Files are in the output_dir itself, or with data_splits in a folder for each split.
    """
    with bars_in_bytes() as progress:
        made = preprocess_data(config, overrides=set_ or (), overwrite=overwrite, progress=progress)
    if as_json:
        print_json(made)
    else:
        _print_summary(made)


def _print_summary(made: PreprocessSummary) -> None:
    how = "already prepared" if made.already_prepared else f"prepared in {made.duration_s:.1f} s"
    print_line(f"{made.path}: {how}")
    print_line(f"Mode: {made.mode}, by {made.hook}")
    if made.template:
        print_line(f"Template: {made.template}")
    texts = made.sequence_length * (2 if made.mode == "dpo" else 1)
    rows = [
        (
            "-" if made.is_flat else name,
            f"{part.records:,}",
            f"{part.samples:,}",
            f"{part.places:,}",
            f"{part.tokens:,}",
            f"{1 - part.places / (part.samples * texts):.1%}" if part.samples else "-",
        )
        for name, part in made.parts.items()
    ]
    columns = ("split", "records", "rows", "tokens", "learned", "padding")
    print_table(columns, rows, right=columns[1:])
    print_line(f"Tokenizer: {made.tokenizer}, {made.vocab_size:,} tokens")
    if made.packed:
        print("Packed: a dataloader needs use_vsl: true")
    print_left_out(made, "record")
    for note in made.without_effect:
        print_line(f"Note: {note}")
    for warning in made.warnings:
        print_line(f"Warning: {warning}")
    if "endless" in made.notes:
        count, where = made.notes["endless"]
        print_line(f"Warning: in {counted(count, 'record')}, the first at {where}, {_ENDLESS}")
