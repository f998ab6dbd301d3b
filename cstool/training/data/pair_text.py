"""Texts of an encoder-decoder: tokens of a source, and the text of the decoder's output, sentinels written out."""

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from cstool.foundation.errors import DataError
from cstool.model.params import DataloaderParams, TokenLinesParams
from cstool.training.data.tokenizer import FileTokenizer, Tokenizer, load_tokenizer, tokenizer_of
from cstool.training.data.vocabulary import PAIR_END, PAIR_PAD, PAIR_UNKNOWN, Vocabulary

_SENTINEL = re.compile(r"<extra_id_(\d+)>")
_HINT = "--tokenizer names the tokenizers JSON file of the training data"


class WordTokenizer:
    """Words with spaces between, as a vocabulary has them.

    Args:
        path: of the vocabulary
        do_lower: whether all is taken in lower case
        unknown: the token for words outside the vocabulary
        end: the token that ends a text

    Raises:
        DataError: the file is missing, or without these tokens
    """

    begin: tuple[int, ...] = ()
    begins_texts = True

    def __init__(self, path: Path, *, do_lower: bool, unknown: str = PAIR_UNKNOWN, end: str = PAIR_END) -> None:
        self._vocabulary = Vocabulary(path, do_lower=do_lower, unknown=unknown)
        self.name, self.vocab_size = str(path), len(self._vocabulary)
        self.end_of_text: int | None = self._vocabulary.id_of(end)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return self._vocabulary.ids(text.split())

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        words = self._vocabulary.tokens
        return " ".join(words[token] if 0 <= token < len(words) else "\ufffd" for token in tokens)


class PairTokenizer:
    """Turns texts into the input of an encoder, and the output of a decoder into text.

    The sentinels of span corruption are `<extra_id_0>`, `<extra_id_1>` and so on, from the last token of the model
    downwards.

    Args:
        tokenizer: of texts without sentinels
        sentinels: number of sentinels, the last tokens of the model
        vocab_size: tokens of the model
        start: the token that the decoder reads first
        ends_sources: whether sources of the training data ended with the token that ends a text

    Raises:
        DataError: the tokenizer has no token that ends a text
    """

    begin: tuple[int, ...] = ()
    begins_texts = True

    def __init__(
        self, tokenizer: Tokenizer, *, sentinels: int, vocab_size: int, start: int, ends_sources: bool = True
    ) -> None:
        if tokenizer.end_of_text is None:
            raise DataError(
                f"{tokenizer.name}: must have a token that ends a text, such as {PAIR_END}, it has none", _HINT
            )
        self._tokenizer, self._first, self._sentinels = tokenizer, vocab_size - 1, sentinels
        self.name, self.vocab_size = tokenizer.name, vocab_size
        self.start, self.ends_sources = start, ends_sources
        self.end_of_text: int | None = tokenizer.end_of_text

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a source, the end not among them."""
        tokens: list[int] = []
        at = 0
        for found in _SENTINEL.finditer(text) if self._sentinels else ():
            if (number := int(found[1])) >= self._sentinels:
                raise DataError(
                    f"the text must have sentinels below <extra_id_{self._sentinels}>, got {found[0]}",
                    "extra_ids of the model says how many there are",
                )
            tokens += [*self._part(text[at : found.start()]), self._first - number]
            at = found.end()
        return tokens + self._part(text[at:])

    def _part(self, text: str) -> list[int]:
        return self._tokenizer.encode(text) if text.strip() else []

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        least = self._first - self._sentinels
        return " ".join(
            " ".join(f"<extra_id_{self._first - token}>" for token in run) if is_sentinel else self._text(list(run))
            for is_sentinel, run in groupby((int(token) for token in tokens), lambda token: token > least)
        )

    def _text(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens).strip()


def pair_tokenizer(
    loaders: Sequence[DataloaderParams],
    named: str | None,
    *,
    sentinels: int,
    vocab_size: int,
    start: int | None,
) -> PairTokenizer:
    """Return the tokenizer of an encoder-decoder: as named, else the tokenizer of its data.

    Args:
        loaders: of its data, the first that knows its tokens counts
        named: "bytes", or the path of a tokenizers JSON file; None for the tokenizer of the data
        sentinels, vocab_size: see `PairTokenizer`
        start: the token that the decoder reads first; None for the choice of the data, or padding, as T5 has it

    Raises:
        DataError: none is known, or it cannot be loaded
    """
    found: Tokenizer | None = None if named is None else load_tokenizer(named)
    lines = next((loader for loader in loaders if isinstance(loader, TokenLinesParams)), None)
    if found is None:
        folders = [folder for loader in loaders for folder in loader.data_dir]
        found = next((each for folder in folders if (each := tokenizer_of(folder)) is not None), None)
    if found is None and lines is not None:
        path, names = lines.src_vocab_file.path, (lines.oov_token, lines.eos_token)
        found = WordTokenizer(path, do_lower=lines.do_lower, unknown=names[0], end=names[1])
    if found is None:
        raise DataError("--tokenizer: must be given where the data set does not say how it was made", _HINT)
    if start is None:
        start = start_of(found) if lines is None else _start_of_lines(lines)
    # The vendor's readers of lines put no end behind a source.
    return PairTokenizer(found, sentinels=sentinels, vocab_size=vocab_size, start=start, ends_sources=lines is None)


def _start_of_lines(lines: TokenLinesParams) -> int:
    vocabulary = Vocabulary(lines.src_vocab_file.path, do_lower=lines.do_lower, unknown=lines.oov_token)
    return vocabulary.id_of(lines.sos_token)


def start_of(tokenizer: Tokenizer) -> int:
    """Return the token that a decoder reads first unless another is named: padding, as T5 has it."""
    padding = tokenizer.loaded.token_to_id(PAIR_PAD) if isinstance(tokenizer, FileTokenizer) else None
    return int(padding or 0)
