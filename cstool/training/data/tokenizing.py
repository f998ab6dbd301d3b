"""Files of text to files of tokens, in pieces that any process may take.

A document is tokenized at once, up to `PIECE_BYTES`; a longer one is cut, where possible at the end of a line. The
places of the cuts depend on the document alone, so the tokens do, too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.training.data.sources import SourceFile, read_bytes
from cstool.training.data.token_stream import write_shard
from cstool.training.data.tokenizer import END_OF_TEXT, FileTokenizer, begun

PIECE_BYTES = 2**20
SHARD_BYTES = 2**20
"""text of a file of tokens, at least"""
LEAST_VOCAB, MOST_VOCAB = 257, 2**20
"""of a vocabulary that can be trained: at least all bytes and the end of a text; at most the limit of memory"""

_SEARCHED_BYTES = 2**16


@dataclass(frozen=True)
class Piece:
    """Bytes `start` to `stop` of a document of a part."""

    document: int
    start: int
    stop: int
    is_last: bool
    """of its document"""


def cut_documents(files: Sequence[SourceFile]) -> Iterator[Piece]:
    """Yield the pieces of documents, in order, or raise DataError."""
    for number, file in enumerate(files):
        start = 0
        while file.size_bytes - start > PIECE_BYTES:
            stop = _cut(file, start + PIECE_BYTES)
            yield Piece(number, start, stop, is_last=False)
            start = stop
        yield Piece(number, start, file.size_bytes, is_last=True)


def group_pieces(pieces: Iterator[Piece]) -> Iterator[tuple[Piece, ...]]:
    """Yield runs of pieces of about `SHARD_BYTES`, each for one file of tokens."""
    group: list[Piece] = []
    for piece in pieces:
        group.append(piece)
        if sum(p.stop - p.start for p in group) >= SHARD_BYTES:
            yield tuple(group)
            group = []
    if group:
        yield tuple(group)


@dataclass(frozen=True)
class Shard:
    """The pieces of one file of tokens."""

    path: Path
    part: str
    pieces: tuple[Piece, ...]

    @property
    def first(self) -> int:
        """The number of its first document."""
        return self.pieces[0].document

    @property
    def documents(self) -> int:
        """Number of documents that it has some of."""
        return self.pieces[-1].document - self.first + 1

    @property
    def size_bytes(self) -> int:
        """Bytes of text."""
        return sum(piece.stop - piece.start for piece in self.pieces)


@dataclass(frozen=True)
class Tokenize:
    """Make files of tokens; a task for any process.

    Args:
        files: the documents of each part
        tokenizer: the path of its file
        allow_unknown: whether characters without a token are counted, and not refused
        begins_texts: whether a document begins with the prefix of the tokenizer's template
    """

    files: dict[str, tuple[SourceFile, ...]]
    tokenizer: Path
    allow_unknown: bool
    begins_texts: bool = False

    @cached_property
    def _loaded(self) -> FileTokenizer:
        return FileTokenizer(self.tokenizer)

    def __call__(self, shard: Shard) -> None:
        """Make one file.

        Raises:
            DataError: the text is not UTF-8, or has characters without a token.
            OSError: the file cannot be written.
        """
        tokenizer = self._loaded
        counts, unknown_characters = [0] * shard.documents, 0
        tokens = []
        for piece in shard.pieces:
            file = self.files[shard.part][piece.document]
            text = text_of(file, piece)
            made, unknown = tokenizer.encode_all(text)
            if unknown and not self.allow_unknown:
                raise _unknown(file, piece, text, unknown[0])
            if self.begins_texts and piece.start == 0:
                made = begun(tokenizer.begin, made)
            if piece.is_last and tokenizer.end_of_text is not None:
                made.append(tokenizer.end_of_text)
            unknown_characters += len(unknown)
            counts[piece.document - shard.first] += len(made)
            tokens.append(np.array(made, np.int32))
        write_shard(shard.path, shard.first, counts, unknown_characters, np.concatenate(tokens))


def train_tokenizer(
    path: Path,
    texts: Iterator[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (END_OF_TEXT,),
    *,
    asked_by: str = "--train_tokenizer",
) -> None:
    """Train a byte-level BPE, and save it as a tokenizers JSON file; the same text makes the same file.

    Args:
        path: of the file
        texts: text to train on, piece by piece
        vocab_size: ids that it has at most, from 256 and the special ones; fewer if the text has fewer pairs that
            occur twice
        special_tokens: the first ids
        asked_by: the flag, for messages

    Raises:
        DataError: the package `tokenizers` is not installed.
        OSError: the file cannot be written.

    Source: Sennrich et al., "Neural machine translation of rare words with subword units", 2016; on bytes:
    Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.2.
    """
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    except ImportError:
        raise DataError(
            f"{asked_by}: needs the package tokenizers, which is not installed",
            "pip install 'cstool[tokenizers]', or tokenizers itself",
        ) from None
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(special_tokens),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    write_replacing(path, tokenizer.to_str(pretty=True) + "\n")


def text_of(file: SourceFile, piece: Piece) -> str:
    """Return the text of a piece, or raise DataError if it is not UTF-8."""
    content = read_bytes(file, piece.start, piece.stop)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        offset = file.offset(piece.start + error.start)
        raise DataError(
            f"{file.where}: must be UTF-8 text for a tokenizer, got byte {content[error.start]:#04x} at offset "
            f"{offset:,}",
            "convert the file (iconv -t UTF-8) or leave it out; --tokenizer bytes takes any file",
        ) from None


def _unknown(file: SourceFile, piece: Piece, text: str, place: int) -> DataError:
    offset = file.offset(piece.start + len(text[:place].encode()))
    return DataError(
        f"{file.where}: the tokenizer must have a token for {text[place]!r} at offset {offset:,}; it has none",
        "--allow_unknown goes on without such characters, and counts them; a tokenizer with all bytes has none",
    )


def _cut(file: SourceFile, end: int) -> int:
    """Place to cut near before `end`: after a line, else before a space, else between two characters."""
    begin = end - min(_SEARCHED_BYTES, PIECE_BYTES // 2)
    window = read_bytes(file, begin, end + 1)
    # Spaces around would be tokenized otherwise, if they were cut.
    for pattern in (rb"(?s).*\S\n(?=\S)", rb"(?s).*\S(?= \S)"):
        if found := re.match(pattern, window):
            return begin + found.end()
    starts = (i for i in range(len(window) - 1, 0, -1) if window[i] & 0xC0 != 0x80)
    return begin + next(starts, len(window) - 1)
