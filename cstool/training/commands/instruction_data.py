"""`cstool data prepare instruct`, and samples in which the learned part is marked."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cstool.foundation.plain_text import lines
from cstool.foundation.progress.screen import is_terminal
from cstool.foundation.terminal.options import JsonOption, argument, flag, option
from cstool.foundation.terminal.render import print_json, print_line, print_table
from cstool.foundation.terminal.surroundings import raw_stream
from cstool.foundation.words import counted
from cstool.training.commands.data_flags import OutputOption, OverwriteOption, SeedOption, TokenizerOption, prepared
from cstool.training.verbs.instruction_data import prepare_instructions

if TYPE_CHECKING:
    from cstool.training.data import InstructionSummary, PreprocessSummary, ShownSample

_LEARNED, _RESET = "\x1b[32m", "\x1b[0m"
_WARNINGS = {
    "endless": "the end of an assistant's turn is not learned, so a model may not stop; the template must write an "
    "end, within its tags of generation",
    "system": "the template leaves out the system's message",
    "twice": "the text has two begins; the template writes one too many",
    "unbegun": "the text lacks the begin of the tokenizer's texts; the template does not write it",
    "spelled": "a message spells out a special token, and becomes it",
    "marks": "a message has a byte order mark (U+FEFF)",
    "across": "a token across the begin or end of a learned text is learned",
}
"""kind of a note -> something unusual about conversations"""
KeyOption = str | None


@dataclass(frozen=True, kw_only=True)
class _InstructFlags:
    """The flags, named as the arguments of the verb."""

    sources: Annotated[
        list[Path], argument("SOURCES", "Files .jsonl, .ndjson, .json, .csv, .tsv or .parquet, and folders of them.")
    ]
    output: OutputOption
    sequence_length: Annotated[int, option("--sequence_length", "N", "Tokens of a row.")]
    tokenizer: TokenizerOption = "bytes"
    chat_template: Annotated[
        str | None,
        option(
            "--chat_template",
            "cstool|plain|FILE",
            "A Jinja template; cstool is one for any tokenizer, plain joins prompts and completions.",
            show_default="the tokenizer's; else cstool for messages, plain for pairs",
        ),
    ] = None
    form: Annotated[
        Literal["messages", "prompt_completion", "alpaca", "sharegpt"] | None,
        flag("--form", "Form of the records.", show_default="found by a look at each file"),
    ] = None
    messages_key: Annotated[
        KeyOption, option("--messages_key", "KEY", "Key of the list of messages.", show_default="messages, ...")
    ] = None
    role_key: Annotated[
        KeyOption, option("--role_key", "KEY", "Key of a message's role.", show_default="role or from")
    ] = None
    content_key: Annotated[
        KeyOption, option("--content_key", "KEY", "Key of a message's text.", show_default="content or value")
    ] = None
    prompt_key: Annotated[
        KeyOption, option("--prompt_key", "KEY", "Key of a prompt.", show_default="prompt, instruction, ...")
    ] = None
    completion_key: Annotated[
        KeyOption, option("--completion_key", "KEY", "Key of its completion.", show_default="completion, output, ...")
    ] = None
    separator: Annotated[
        str,
        option("--separator", "TEXT", "Text between prompt and completion, if plain.", show_default="a line end"),
    ] = "\n"
    packing: Annotated[
        Literal["best_fit", "none"],
        flag("--packing", "Put several conversations into a row, unseen by each other, or one."),
    ] = "best_fit"
    truncate: Annotated[
        Literal["drop", "keep_start", "keep_end"],
        flag("--truncate", "Leave long conversations out, or cut them; first the user's texts lose end or begin."),
    ] = "drop"
    skip_broken: Annotated[bool, flag("--skip_broken", "Leave lines out that are no JSON objects.")] = False
    val_fraction: Annotated[float, option("--val_fraction", "X", "Share of held-out conversations.")] = 0.05
    seed: SeedOption = 1
    overwrite: OverwriteOption = False


def instruct(flags: _InstructFlags, as_json: JsonOption = False) -> None:
    """Make a data set for fine-tuning from conversations: the assistant's text is learned, its end included.

    Records are messages (role, content), sharegpt (from, value), prompt and completion, or alpaca (instruction, input,
    output). Messages are written by the tokenizer's chat template. Rows are for GptHDF5MapDataProcessor, packed ones
    with use_vsl: true. `cstool data info DIR --show 3` shows the learned text.
    """
    made = prepared(prepare_instructions, flags)
    if as_json:
        print_json(made)
    else:
        _print_summary(made)


def print_samples(samples: Sequence[ShownSample]) -> None:
    """Print samples of text; the learned part is green, and where there are no colours, in brackets."""
    has_colours = is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")
    begin, end = (_LEARNED, _RESET) if has_colours else ("[", "]")
    for sample in samples:
        print()
        print_line(f"{sample.part}, row {sample.row:,}, text {sample.text:,}: {counted(sample.tokens, 'token')}")
        text = "".join(f"{begin}{lines(text)}{end}" if learned else lines(text) for text, learned in sample.pieces)
        # Else the terminal would be shown the colours, not obey them.
        print(text, file=raw_stream(sys.stdout), flush=True)


def print_left_out(made: InstructionSummary | PreprocessSummary, noun: str) -> None:
    """Print the counts of records that are left out or cut, each with the place of the first."""
    for reason, (count, where) in made.left_out.items():
        print_line(f"Left out: {counted(count, noun)} with {reason}, the first at {where}")
    if made.broken:
        print(f"Left out: {counted(made.broken, 'line')} that {'is' if made.broken == 1 else 'are'} no JSON object")
    if "cut" in made.notes:
        count, where = made.notes["cut"]
        print_line(f"Cut: {counted(count, noun)}, the first at {where}")


def _print_summary(made: InstructionSummary) -> None:
    how = "already prepared" if made.already_prepared else f"prepared in {made.duration_s:.1f} s"
    print_line(f"{made.path}: {how}")
    print_line(f"Form: {'; '.join(made.forms)}")
    print_line(f"Template: {'; '.join(template or 'none, texts are joined' for template in made.templates)}")
    rows = [
        (
            name,
            f"{part.conversations:,}",
            f"{part.samples:,}",
            f"{part.places:,}",
            f"{part.tokens:,}",
            f"{1 - part.places / (part.samples * made.sequence_length):.1%}" if part.samples else "-",
        )
        for name, part in (("train", made.train), ("val", made.val))
    ]
    columns = ("part", "conversations", "rows", "tokens", "learned", "padding")
    print_table(columns, rows, right=columns[1:])
    if made.tokenizer != "bytes":
        print_line(f"Tokenizer: {made.tokenizer}, {made.vocab_size:,} tokens")
    if made.packing != "none":
        print("Packed: a dataloader needs use_vsl: true")
    print_left_out(made, "conversation")
    for kind, told in _WARNINGS.items():
        if kind in made.notes:
            count, where = made.notes[kind]
            print_line(f"Warning: in {counted(count, 'conversation')}, the first at {where}, {told}")
    if made.unknown:
        print_line(f"Warning: the template writes {', '.join(made.unknown)}, no special token of the tokenizer")
