"""The vocabulary of WordPiece: a file with a token on each line; the number of a token is its line's, from 0.

Source: Devlin et al., "BERT: Pre-training of deep bidirectional transformers for language understanding", 2019.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from cstool.foundation.errors import DataError
from cstool.model.params.paths import unset_variable
from cstool.training.data.dataset import Array, is_special

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAIR_TOKENS = PAIR_PAD, PAIR_END, PAIR_UNKNOWN, PAIR_BEGIN = ("<pad>", "</s>", "<unk>", "<s>")
"""special tokens of encoder-decoders, by their ids in T5, and the begin that the vendor's loader wants"""
VOCABULARY_FILE = "vocab.txt"
"""in a data set that was made with one"""
CONTINUES = "##"
"""prefix of tokens that go on with a word"""
VOCAB_HINT = "vocab_size of the model must be that of the data set"
"""advice for a token that the model does not know"""
_HINT = "it is the vocab.txt of a BERT model, or of a data set of `cstool data prepare mlm`"
PAIRS_HINT = "it is the vocab.txt of a data set of `cstool data prepare span`, or that of the vendor's preparation"


class Vocabulary:
    """Tokens to numbers. Of a token that is there twice the last number counts.

    Args:
        path: of the file
        do_lower: take all tokens in lower case, special ones, too
        unknown: the token for words outside the vocabulary
        hint: source of such a file, for messages

    Raises:
        DataError: the file is missing, is no text, or is without the unknown token.
    """

    def __init__(self, path: Path, *, do_lower: bool = False, unknown: str = UNKNOWN, hint: str = _HINT) -> None:
        self.path, self.do_lower, self._hint = path, do_lower, hint
        self.written: Sequence[str] = [line.strip() for line in _lines(path, hint)]
        """the tokens as the file has them"""
        self.tokens: Sequence[str] = [self._cased(token) for token in self.written]
        self._ids = {token: number for number, token in enumerate(self.tokens)}
        self._unknown = self.id_of(unknown)

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return self._cased(token) in self._ids

    def id_of(self, token: str) -> int:
        """Return the number of a token that must be there, or raise DataError."""
        if (found := self._ids.get(self._cased(token))) is None:
            raise DataError(f"{self.path}: must have the token {token}, got {len(self):,} others", self._hint)
        return found

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Return the numbers of tokens; the number of the unknown token where they are not in the vocabulary."""
        unknown, ids = self._unknown, self._ids
        return [ids.get(token, unknown) for token in (map(str.lower, tokens) if self.do_lower else tokens)]

    def among(self, tokens: Sequence[str]) -> Array:
        """Return (V,) bool: true at the numbers of these tokens; tokens outside the vocabulary are left out."""
        found = np.zeros(len(self), bool)
        found[[self._ids[token] for token in map(self._cased, tokens) if token in self._ids]] = True
        return found

    @cached_property
    def continues(self) -> Array:
        """(V,) bool: true at tokens that go on with the word before."""
        return np.array([token.startswith(CONTINUES) for token in self.tokens], bool)

    def check_fits(self, vocab_size: int | None) -> None:
        """Check that a model has rows for all tokens, or raise DataError."""
        check_tokens(self.path, len(self), vocab_size)

    def _cased(self, token: str) -> str:
        return token.lower() if self.do_lower else token


def check_tokens(path: Path, count: int, vocab_size: int | None) -> None:
    """Check that a model has rows for all tokens of a file, or raise DataError."""
    if vocab_size is not None and count > vocab_size:
        raise DataError(f"{path}: must have at most vocab_size ({vocab_size:,}) tokens, got {count:,}", VOCAB_HINT)


def _lines(path: Path, hint: str) -> list[str]:
    rule = f"{path}: must be a vocabulary, a token on each line"
    if is_special(path):
        raise DataError(f"{rule}, got a pipe or a device", hint)
    try:
        # Other line ends of Unicode are tokens of some vocabularies.
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except FileNotFoundError:
        if (unset := unset_variable(path)) is not None:
            hint = f"{unset} is not set in the environment: set it to the folder that it stands for"
        raise DataError(f"{rule}, found nothing there", hint) from None
    except IsADirectoryError:
        raise DataError(f"{rule}, got a folder", "give the vocab.txt in it") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{rule}, got byte {error.object[error.start]:#04x} at offset {error.start:,}", hint) from None
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    return lines
