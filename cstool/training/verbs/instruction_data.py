"""Data sets for fine-tuning: made of conversations or by a vendor's file, and shown; verbs behind `cstool data`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cstool.foundation.progress.screen import told_in_bytes

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.training.data import InstructionSummary, PreprocessSummary, ShownSample


def prepare_instructions(
    sources: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    sequence_length: int,
    tokenizer: str | Path = "bytes",
    chat_template: str | Path | None = None,
    form: Literal["messages", "prompt_completion", "alpaca", "sharegpt"] | None = None,
    messages_key: str | None = None,
    role_key: str | None = None,
    content_key: str | None = None,
    prompt_key: str | None = None,
    completion_key: str | None = None,
    separator: str = "\n",
    packing: Literal["best_fit", "none"] = "best_fit",
    truncate: Literal["drop", "keep_start", "keep_end"] = "drop",
    skip_broken: bool = False,
    val_fraction: float = 0.05,
    seed: int = 1,
    overwrite: bool = False,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> InstructionSummary:
    """Make a data set for fine-tuning from conversations: the text of the assistant is learned, its end included.

    One that was made before from the same records with the same arguments is kept.

    Args:
        sources: a file of JSON Lines, JSON, CSV or Parquet, or a folder with such files, or several
        output: a folder that does not exist, is empty, or was made by this function
        sequence_length: tokens of a row
        tokenizer: "bytes" or a tokenizers JSON file
        chat_template: a file with a template of Jinja; "cstool" for one of ours, "plain" to join prompts and
            completions; None for the tokenizer's own, if it has one
        form: of the records; None to find it by a look at each file
        messages_key, role_key, content_key: of the list of messages, and of the role and text of each
        prompt_key, completion_key: of pairs of texts
        separator: between prompt and completion, where they are joined
        packing: several conversations in a row that do not see each other, or one
        truncate: leave conversations out that are too long; or cut them, where first the user's texts lose their ends
            ("keep_start") or begins ("keep_end")
        skip_broken: leave lines out that are no JSON objects; else they are an error
        val_fraction: share of the conversations that is held out, in [0, 1)
        seed: of the choice of held-out conversations
        overwrite: replace a different data set
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        Numbers of conversations, rows and learned tokens in each part, and of unusual conversations

    Raises:
        DataError: an argument is out of range, a record or the template is not as it must be, nothing can be learned,
            or the data set cannot be written
    """
    from cstool.training.data import InstructionPlan
    from cstool.training.data import prepare_instructions as prepare
    from cstool.training.data.conversations import Keys

    plan = InstructionPlan(
        sequence_length=sequence_length,
        tokenizer=str(tokenizer),
        chat_template=None if chat_template is None else str(chat_template),
        form=form,
        keys=Keys(messages_key, role_key, content_key, prompt_key, completion_key),
        separator=separator,
        packing=packing,
        truncate=truncate,
        skip_broken=skip_broken,
        val_fraction=val_fraction,
        seed=seed,
    )
    named = [sources] if isinstance(sources, str | Path) else sources
    with told_in_bytes("Preparing conversations", progress) as tell:
        return prepare([Path(source) for source in named], Path(output), plan, overwrite=overwrite, progress=tell)


def preprocess_data(
    config: str | Path,
    *,
    overrides: Sequence[str] = (),
    overwrite: bool = False,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> PreprocessSummary:
    """Make a data set as a YAML file of the vendor's preprocessing says: tokens and masks are those of its hooks.

    One that was made before from the same records with the same file is kept.

    Args:
        config: the file, with `setup`, `processing` and `dataset`; paths in it count from the working directory
        overrides: values by dotted key, `["setup.output_dir=out"]`
        overwrite: replace a different data set
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        Numbers of records, rows and learned tokens in each part, and of records left out

    Raises:
        ParamsError: the file has faults; all of them are told
        DataError: a record or the template is not as it must be, no record is left, or the data set cannot be written
    """
    from cstool.training.data import preprocess, read_preprocess_file

    plan = read_preprocess_file(Path(config), overrides)
    with told_in_bytes("Preprocessing", progress) as tell:
        return preprocess(plan, overwrite=overwrite, progress=tell)


def show_samples(folder: str | Path, count: int, *, part: str = "train") -> list[ShownSample]:
    """Return the first texts of a data set of text, in pieces that are learned or not.

    Args:
        folder: of a data set of text or conversations, which has a tokenizer
        count: number of texts, fewer if there are not as many
        part: of the data set

    Raises:
        DataError: there is none, it is damaged, or of another kind
    """
    from cstool.training.data import shown_samples

    return shown_samples(Path(folder), count, part=part)
