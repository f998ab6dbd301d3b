"""Samples of a data set of text, for people to read: text in pieces, each learned or not."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.training.data.dataset import Array
from cstool.training.data.hdf5_rows import is_sample_file, open_hdf5
from cstool.training.data.hdf5_text import INPUT_IDS, LABELS, MASK, PACKED_FEATURES, SPAN, inspect_file
from cstool.training.data.parts import find_parts
from cstool.training.data.sample_kinds import CONVERSATIONS, TEXT
from cstool.training.data.tokenizer import Tokenizer, tokenizer_of


@dataclass(frozen=True)
class ShownSample:
    """A text of a row.

    Args:
        part: of the data set
        row: its number in the part
        text: its number in the row
        tokens: of the text
        pieces: of the text, each with whether it is learned
    """

    part: str
    row: int
    text: int
    tokens: int
    pieces: Sequence[tuple[str, bool]]


def shown_samples(folder: Path, count: int, *, part: str = "train") -> list[ShownSample]:
    """Return the first texts of a part, or raise DataError if it has none, or no tokenizer is known."""
    found = find_parts(folder)
    if found.kind not in (TEXT.name, CONVERSATIONS.name):
        raise DataError(f"{folder}: --show needs samples of text, got {found.kind}", "leave it out")
    tokenizer = tokenizer_of(folder)
    if tokenizer is None:
        raise DataError(f"{folder}: --show needs the tokenizer of the data set, which is not known", "leave it out")
    part = part if part in found.parts else next(iter(found.parts))
    shown: list[ShownSample] = []
    for number, row in enumerate(_rows(found.parts[part])):
        for text, (tokens, learned) in enumerate(_texts(row)):
            if len(shown) == count:
                return shown
            shown.append(ShownSample(part, number, text, len(tokens), _pieces(tokens, learned, tokenizer)))
    return shown


def _rows(folder: Path) -> Iterator[Array]:
    """Yield the rows (features, S) of the files of a part."""
    for path in sorted(entry for entry in folder.iterdir() if is_sample_file(entry.name)):
        info = inspect_file(path)
        with open_hdf5(path) as file:
            for number in range(info.sample_count):
                yield np.asarray(file["data"][number])


def _texts(row: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the tokens of each text of a row, and whether they are learned; padding is left out."""
    used = np.flatnonzero(row[: LABELS + 1].any(axis=0))
    end = int(used[-1]) + 1 if len(used) else 0
    if len(row) == len(PACKED_FEATURES):
        stops = [place + 1 for place in np.flatnonzero(row[SPAN, :end] == 0).tolist()]
    else:
        stops = [end] if end else []
    start = 0
    for stop in stops:
        tokens = np.append(row[INPUT_IDS, start:stop], row[LABELS, stop - 1])
        yield tokens, np.append(0, row[MASK, start:stop]) == 1
        start = stop


def _pieces(tokens: Array, learned: Array, tokenizer: Tokenizer) -> list[tuple[str, bool]]:
    """Return the text of tokens, cut where learning begins or ends."""
    pieces, shown, end = [], "", 0
    for is_learned, run in groupby(learned.tolist()):
        end += len(list(run))
        # Some tokenizers write the first token of a text unlike others.
        whole = tokenizer.decode(tokens[:end].tolist())
        pieces.append((whole[len(shown) :], bool(is_learned)))
        shown = whole
    return pieces
