"""Data sets: made, looked at, checked, read; the verbs behind `cstool data`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cstool.foundation.progress.screen import told_in_bytes

if TYPE_CHECKING:
    import numpy as np

    from cstool.foundation.progress import Progress
    from cstool.training.data import DataCheck, DataInfo, DigitsSummary, PreferenceSummary, TextSummary


def prepare_text(
    sources: str | Path | Sequence[str | Path] | None,
    output: str | Path,
    *,
    sequence_length: int,
    val_fraction: float = 0.05,
    seed: int = 1,
    tokenizer: str | Path = "bytes",
    train_tokenizer: int | None = None,
    allow_unknown: bool = False,
    packing: Literal["stream", "documents"] = "stream",
    shuffle_seed: int | None = None,
    jsonl_key: str | None = None,
    csv_column: str | None = None,
    begins_texts: bool = False,
    any_file: bool = False,
    processes: int = 1,
    overwrite: bool = False,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> TextSummary:
    """Make a text data set, of bytes or of a tokenizer's tokens, split into train and held-out by document.

    One that was made before from the same text with the same arguments is kept; one that was begun is gone on with.

    Args:
        sources: a file or folder, or several; None for the running Python's standard library
        output: a folder that does not exist, is empty, or was made by this function
        sequence_length: tokens of a sample
        val_fraction: share of the text that is held out, in [0, 1)
        seed: of the choice of held-out files
        tokenizer: "bytes" or a tokenizers JSON file
        train_tokenizer: number of tokens of a byte-level BPE to train on the train part, and use
        allow_unknown: count characters that no token stands for; else they are an error
        packing: documents back to back, or each at the start of a sample
        shuffle_seed: of the order of the samples; None for the order of the text
        jsonl_key: where each line of a .jsonl or .ndjson has its text; None for a usual key, or the only text's
        csv_column: of each table of .csv or .tsv that has the texts; without it such tables are no text
        begins_texts: begin each document with the prefix of the tokenizer's template, for example <s>
        any_file: take files that are no text as they are, as bytes
        processes: that do the work; the files are the same
        overwrite: replace a different data set
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        Size of the text, samples and tokens of each part

    Raises:
        DataError: an argument is out of range, the text cannot be read, or the data set not be written
        Interrupted: Ctrl-C, when something was finished
    """
    from cstool.training.data import TextRequest

    request = TextRequest(
        sequence_length=sequence_length,
        val_fraction=val_fraction,
        seed=seed,
        tokenizer=str(tokenizer),
        train_vocab=train_tokenizer,
        allow_unknown=allow_unknown,
        packing=packing,
        shuffle_seed=shuffle_seed,
        jsonl_key=jsonl_key,
        csv_column=csv_column,
        begins_texts=begins_texts,
        any_file=any_file,
    )
    return _prepare("prepare_text", sources, output, request, processes, overwrite, progress)


def prepare_mlm(
    sources: str | Path | Sequence[str | Path] | None,
    output: str | Path,
    *,
    sequence_length: int,
    vocab_size: int = 8192,
    vocab_file: str | Path | None = None,
    do_lower: bool = False,
    nsp: bool = False,
    packing: Literal["stream", "documents"] = "stream",
    val_fraction: float = 0.05,
    seed: int = 1,
    jsonl_key: str | None = None,
    csv_column: str | None = None,
    processes: int = 1,
    overwrite: bool = False,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> TextSummary:
    """Make a data set of masked text: tokens of WordPiece, whose masks are drawn when it is read.

    Args:
        sequence_length: tokens of a sample, special ones included
        vocab_size: of the vocabulary that is trained on the train part
        vocab_file: a vocabulary to take instead
        do_lower: take text in lower case
        nsp: samples are pairs of texts, of which half follow each other: next sentence prediction
        sources, output, packing, val_fraction, seed, jsonl_key, csv_column, processes, overwrite, progress: as of
            `prepare_text`

    Returns, Raises:
        As `prepare_text` does
    """
    from cstool.training.data import MaskedTextPlan

    plan = MaskedTextPlan(
        sequence_length=sequence_length,
        vocab_size=vocab_size,
        vocab_file=None if vocab_file is None else Path(vocab_file),
        do_lower=do_lower,
        has_pairs=nsp,
        packing=packing,
        val_fraction=val_fraction,
        seed=seed,
        jsonl_key=jsonl_key,
        csv_column=csv_column,
    )
    return _prepare("prepare_masked_text", sources, output, plan, processes, overwrite, progress)


def prepare_span(
    sources: str | Path | Sequence[str | Path] | None,
    output: str | Path,
    *,
    sequence_length: int,
    vocab_size: int = 8192,
    tokenizer: str | Path | None = None,
    packing: Literal["stream", "documents"] = "stream",
    val_fraction: float = 0.05,
    seed: int = 1,
    jsonl_key: str | None = None,
    csv_column: str | None = None,
    processes: int = 1,
    overwrite: bool = False,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> TextSummary:
    """Make a data set for span corruption: plain tokens; spans are taken out when it is read.

    Args:
        sequence_length: tokens of a sample that the encoder reads, spans taken out
        vocab_size: of the byte-level BPE that is trained on the train part
        tokenizer: a tokenizers JSON file to take instead
        sources, output, packing, val_fraction, seed, jsonl_key, csv_column, processes, overwrite, progress: as of
            `prepare_text`

    Returns, Raises:
        As `prepare_text` does
    """
    from cstool.training.data import SpanTextPlan

    plan = SpanTextPlan(
        sequence_length=sequence_length,
        vocab_size=vocab_size,
        tokenizer=None if tokenizer is None else Path(tokenizer),
        packing=packing,
        val_fraction=val_fraction,
        seed=seed,
        jsonl_key=jsonl_key,
        csv_column=csv_column,
    )
    return _prepare("prepare_span_text", sources, output, plan, processes, overwrite, progress)


def _prepare(
    maker: Literal["prepare_text", "prepare_masked_text", "prepare_span_text"],
    sources: str | Path | Sequence[str | Path] | None,
    output: str | Path,
    plan: Any,
    processes: int,
    overwrite: bool,
    progress: Literal["auto", "none"] | Progress,
) -> TextSummary:
    """Make a data set of text by a function of `cstool.training.data`."""
    from cstool.training import data

    named = [sources] if isinstance(sources, str | Path) else sources
    paths = None if named is None else [Path(source) for source in named]
    make = getattr(data, maker)
    with told_in_bytes("Preparing text", progress) as tell:
        made: TextSummary = make(paths, Path(output), plan, processes=processes, overwrite=overwrite, progress=tell)
        return made


def prepare_preferences(
    sources: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    sequence_length: int,
    val_fraction: float = 0.05,
    seed: int = 1,
    tokenizer: str | Path = "bytes",
    overwrite: bool = False,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> PreferenceSummary:
    """Make a data set of preferences (DPO) from JSON Lines: objects with `prompt`, `chosen` and `rejected`.

    Objects with `prompt`, `completion` and `label`, which is true for a desirable answer, become one for KTO.
    One that was made before from the same lines with the same arguments is kept.

    Args:
        sources: a file .jsonl or .ndjson, or a folder with such files, or several
        output: a folder that does not exist, is empty, or was made by this function
        sequence_length: tokens of each text; a prompt that is too long loses its begin, then an answer its end
        val_fraction: share of the pairs that is held out, in [0, 1)
        seed: of the choice of held-out pairs
        tokenizer: "bytes" or a tokenizers JSON file
        overwrite: replace a different data set
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        Numbers of pairs and tokens of answers in each part, of pairs cut, and of lines left out

    Raises:
        DataError: an argument is out of range, a line is not as it must be, or the data set cannot be written
    """
    from cstool.training.data import PreferencePlan
    from cstool.training.data import prepare_preferences as prepare

    named = [sources] if isinstance(sources, str | Path) else sources
    plan = PreferencePlan(sequence_length, str(tokenizer), val_fraction, seed)
    with told_in_bytes("Preparing pairs", progress) as tell:
        return prepare([Path(source) for source in named], Path(output), plan, overwrite=overwrite, progress=tell)


def prepare_digits(
    output: str | Path, *, val_fraction: float = 0.2, seed: int = 1, overwrite: bool = False
) -> DigitsSummary:
    """Make files of MNIST of scikit-learn's handwritten digits: 1,797 pictures of 28 x 28, scaled up from 8 x 8.

    Args:
        output: a folder that does not exist, is empty, or was made by this function
        val_fraction: share of the pictures that is held out, in (0, 1)
        seed: of the choice of held-out pictures
        overwrite: replace a different data set

    Returns:
        Number of pictures in each part

    Raises:
        DataError: scikit-learn is not installed, an argument is out of range, or the files cannot be written
    """
    from cstool.training.data import prepare_digits as prepare

    return prepare(Path(output), val_fraction=val_fraction, seed=seed, overwrite=overwrite)


def data_info(folder: str | Path) -> DataInfo:
    """Describe a data set: its parts, tokenizer, padding, source, and first text.

    Args:
        folder: of a data set made here, of the vendor's files of HDF5 or CSV, of tables of GLUE, of images in files,
            or of the files of MNIST

    Returns:
        The known facts about it; None where they are unknown

    Raises:
        DataError: there is none, or it is damaged
    """
    from cstool.training.data import data_info as info

    return info(Path(folder))


def check_data(
    folder: str | Path, *, vocab_size: int | None = None, progress: Literal["auto", "none"] | Progress = "auto"
) -> DataCheck:
    """Read all of a data set, and list all its faults.

    Args:
        folder: as for `data_info`
        vocab_size: token ids must be below it; None for the one of the record, if there is one
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        Its `findings` are empty where nothing is wrong

    Raises:
        DataError: there is no data set
    """
    from cstool.training.data import check_data as check

    with told_in_bytes("Checking data", progress) as tell:
        return check(Path(folder), vocab_size=vocab_size, progress=tell)


def read_samples(
    folder: str | Path, numbers: Sequence[int], *, part: str = "train"
) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """Read samples of a data set by their numbers.

    Args:
        folder: as for `data_info`
        numbers: n integers, from 0, in any order
        part: of the data set

    Returns:
        An array for each field. Of text: input_ids and labels (n, S) int32, mask (n, S) float32; of masked text:
        input_ids and attention_mask (n, S) int32, masked_lm_positions and labels (n, M) int32, mask (n, M) float32; of
        pictures: x (n, 784) float32, mask (n,) float32, labels (n,) int32

    Raises:
        DataError: there is no such part or sample, or a file is damaged
    """
    import numpy as np

    from cstool.foundation.errors import DataError
    from cstool.training.data import allocate, open_part

    with closing(open_part(Path(folder), part)) as dataset:
        wanted = np.asarray(numbers, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < dataset.sample_count:
            rule = f"sample numbers must be from 0 to {dataset.sample_count - 1:,}"
            wrong = wanted[(wanted < 0) | (wanted >= dataset.sample_count)][0]
            raise DataError(f"{folder}: {rule}, got {wrong:,}")
        arrays = allocate(dataset.fields, len(wanted))
        dataset.read(wanted, arrays)
        return arrays


@dataclass(frozen=True)
class Baseline:
    """The mark that a model has to beat: the held-out loss of a bigram model.

    Args:
        loss: [nats per token]
        vocab_size: of the tokens; 256 where they are bytes
    """

    loss: float
    vocab_size: int


def bigram_baseline(folder: str | Path) -> Baseline:
    """Count the pairs of tokens of a text data set, and predict its held-out part from them.

    Args:
        folder: of a data set that `prepare_text` made

    Raises:
        DataError: there is none, it is damaged, or its vocabulary is too large
    """
    from cstool.training.data import bigram_loss, open_dataset, read_record, vocab_size_of

    vocab_size = vocab_size_of(read_record(Path(folder)) or {})
    with ExitStack() as stack:
        train, val = (
            stack.enter_context(
                closing(open_dataset("GptHDF5MapDataProcessor", [Path(folder) / part], vocab_size=vocab_size))
            )
            for part in ("train", "val")
        )
        return Baseline(bigram_loss(train, val, vocab_size), vocab_size)
