"""Tokenizers: text to tokens and back, by bytes as they are or a tokenizers JSON file."""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol
from unicodedata import combining

from cstool.foundation.errors import DataError
from cstool.training.data.record import read_record
from cstool.training.data.tokenizer_files import config_beside, text_of

BYTES = "bytes"
"""names the tokenizer of bytes"""

END_OF_TEXT = "<|endoftext|>"
_ENDS_OF_TEXT = (END_OF_TEXT, "</s>", "<|end_of_text|>", "<eos>")
BYTE_VALUES = 256
_REPLACEMENT = "\ufffd"


class Tokenizer(Protocol):
    """Text to tokens and back. Tokens that make no text come out as U+FFFD."""

    name: str
    """"bytes", or the path of a file"""
    vocab_size: int
    """ids are below it"""
    end_of_text: int | None
    """the token between documents, None if there is none"""
    begin: tuple[int, ...]
    """prefix of a text by its template, for example <s>; empty without one"""
    begins_texts: bool
    """whether the texts of its data set begin so; True where no data set is known"""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, its begin and end unmarked, or raise DataError if a character has none."""

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; incomplete characters and ids beyond the vocabulary are U+FFFD."""


class ByteTokenizer:
    """Each byte of UTF-8 is a token; 0 is between documents."""

    name = BYTES
    vocab_size = BYTE_VALUES
    end_of_text: int | None = 0
    begin: tuple[int, ...] = ()
    begins_texts = True

    def encode(self, text: str) -> list[int]:
        """Return the bytes of a text; bytes from the command line that are no UTF-8 come back as they were."""
        try:
            return list(text.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError as error:
            raise _not_a_character(text, error.start) from None

    def encode_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the bytes of a text, and of each the character that it belongs to: its place, and the next."""
        tokens = self.encode(text)
        sizes = [len(character.encode("utf-8", "surrogateescape")) for character in text]
        return tokens, [(i, i + 1) for i, size in enumerate(sizes) for _ in range(size)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of bytes."""
        runs = groupby((int(token) for token in tokens), lambda token: 0 <= token < BYTE_VALUES)
        return "".join(
            bytes(run).decode("utf-8", "replace") if known else _REPLACEMENT * len(list(run)) for known, run in runs
        )


class FileTokenizer:
    """The tokenizer of a file as the package `tokenizers` writes it.

    A special token written out in a text becomes that token. No special tokens are added.

    Args:
        path: of the file
        begins_texts: see `Tokenizer`

    Raises:
        DataError: it is missing or damaged, or the package is not installed.
    """

    def __init__(self, path: Path, *, begins_texts: bool = True) -> None:
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            raise DataError(
                f"{path}: reading a tokenizer needs the package tokenizers, which is not installed",
                "pip install 'cstool[tokenizers]', or tokenizers itself",
            ) from None
        try:
            content = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DataError(f"{path}: must be bytes or a tokenizers JSON file, found nothing there") from None
        except IsADirectoryError:
            raise DataError(
                f"{path}: must be bytes or a tokenizers JSON file, got a folder", "give the tokenizer.json in it"
            ) from None
        except UnicodeDecodeError:
            raise DataError(f"{path}: must be a tokenizers JSON file, got something that is not text") from None
        except OSError as error:
            raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
        try:
            document = json.loads(content)
            loaded = Loaded.from_str(content)
        # The package raises Exception itself; its parts in Rust panic with a BaseException on some files.
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, MemoryError)):
                raise
            raise DataError(
                f"{path}: must be a tokenizers JSON file, got: {' '.join(str(error).split())}",
                "it is what `tokenizers` saves, tokenizer.json of a Hugging Face model for example",
            ) from None
        loaded.no_truncation()
        loaded.no_padding()
        self.name = str(path)
        self.loaded = loaded
        """of the package"""
        ids = loaded.get_vocab(with_added_tokens=True)
        if not ids:
            raise DataError(f"{path}: must be a tokenizer with at least one token, got an empty vocabulary")
        self._ids = ids
        self._known = frozenset(ids.values())
        self.vocab_size = max(self._known) + 1
        # The end of a turn, where a model was made to chat.
        ends = (text_of(config_beside(path).get("eos_token")), *_ENDS_OF_TEXT)
        self.end_of_text: int | None = next((ids[end] for end in ends if end in ids), None)
        self.begin = _begin(loaded)
        self.begins_texts = begins_texts
        self._unknown = _unknown_id(document["model"], ids)
        self._drops = self._unknown is None and _may_drop(document, ids)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        tokens, unknown = self.encode_all(text)
        self._refuse(text, unknown)
        return tokens

    def encode_all(self, text: str) -> tuple[list[int], list[int]]:
        """Return the tokens of a text, and the places of characters without a token, ascending.

        Such a character is one unknown token, if the tokenizer has one, or nothing. Half a character raises DataError.
        """
        if self._unknown is None and not self._drops:  # where each token comes from need not be known
            try:
                [encoding] = self.loaded.encode_batch_fast([text], add_special_tokens=False)
            except TypeError:
                raise _not_a_character(text, _half(text)) from None
            return [int(token) for token in encoding.ids], []
        tokens, _, unknown = self._encoded(text)
        return tokens, unknown

    def encode_spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a text, and of each the characters that it stands for: the first, and the end.

        Characters without a token raise DataError, as with `encode`.
        """
        tokens, spans, unknown = self._encoded(text)
        self._refuse(text, unknown)
        return tokens, spans

    def _encoded(self, text: str) -> tuple[list[int], list[tuple[int, int]], list[int]]:
        """Return the tokens of a text, their characters, and the places of characters without a token."""
        try:
            encoding = self.loaded.encode(text, add_special_tokens=False)
        except TypeError:
            raise _not_a_character(text, _half(text)) from None
        tokens = [int(token) for token in encoding.ids]
        if self._unknown is not None:
            unknown = [
                start for token, (start, _) in zip(tokens, encoding.offsets, strict=True) if token == self._unknown
            ]
        elif self._drops:
            covered = bytearray(len(text))
            for start, end in encoding.offsets:
                covered[start:end] = b"\1" * (end - start)
            # Normalizers join marks with the letter before, which alone counts as covered then.
            unknown = [i for i, c in enumerate(text) if not covered[i] and not c.isspace() and not combining(c)]
        else:
            unknown = []
        return tokens, encoding.offsets, unknown

    def _refuse(self, text: str, unknown: Sequence[int]) -> None:
        """Raise DataError if a character has no token."""
        if unknown:
            raise DataError(
                f"{self.name}: must have a token for {text[unknown[0]]!r}, character {unknown[0]:,} of the text; it "
                "has none",
                "leave the character out, or take a tokenizer that has all bytes",
            )

    def by_template(self, texts: Sequence[str], most: int | None = None) -> tuple[list[int], list[int]]:
        """Return the tokens of one text or two with those that the template of the file adds, and of each its segment.

        Args:
            most: tokens; longer texts are cut, the longer of two first. None for any number
        """
        if most is None:
            self.loaded.no_truncation()
        else:
            self.loaded.enable_truncation(most)
        text, *pair = texts
        found = self.loaded.encode(text, pair[0] if pair else None)
        return list(found.ids), list(found.type_ids)

    def words(self) -> list[str]:
        """Return the tokens by their ids, (vocab_size,); an id that has none is `<unused_id>`."""
        names = {number: token for token, number in self._ids.items()}
        return [names.get(number, f"<unused_{number}>") for number in range(self.vocab_size)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones written out."""
        runs = groupby((int(token) for token in tokens), self._known.__contains__)
        return "".join(
            self.loaded.decode(list(run), skip_special_tokens=False) if known else _REPLACEMENT * len(list(run))
            for known, run in runs
        )


def load_tokenizer(where: str | Path, data_folders: Sequence[Path] = ()) -> Tokenizer:
    """Return the tokenizer that "bytes", or the path of a tokenizers JSON file, names; see `FileTokenizer`.

    Args:
        data_folders: data sets of the model that it is for; the first record says whether texts have the prefix
    """
    if str(where) == BYTES:
        return ByteTokenizer()
    records = (_record_of(folder) for folder in data_folders)
    begins = next((_begins(found[1]) for found in records if found is not None), True)
    return FileTokenizer(Path(where), begins_texts=begins)


def begun(begin: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """Return the tokens of a text behind the prefix `begin`, which is added unless the text has it already.

    >>> begun([1], [5, 6]), begun([1], [1, 5, 6])
    ([1, 5, 6], [1, 5, 6])
    """
    head = list(begin)
    return list(tokens) if [*tokens[: len(head)]] == head else [*head, *tokens]


def template_begin(tokenizer: Tokenizer | None) -> str | None:
    """Return the text that the template of a tokenizer puts before others, for example <s>; None for nothing."""
    return tokenizer.decode(tokenizer.begin) if tokenizer is not None and tokenizer.begin else None


def tokenizer_beside(path: Path) -> Path:
    """Path of the tokenizers JSON file of a converted checkpoint, or of its params: for a.mdl a.tokenizer.json."""
    return path.with_suffix(".tokenizer.json")


def tokenizer_of(data_dir: Path) -> Tokenizer | None:
    """Tokenizer that a prepared data set, or one of its parts, was made with; None if its record is not there.

    Raises:
        DataError: the tokenizer cannot be loaded, see `load_tokenizer`; or the record is damaged.
    """
    if (found := _record_of(data_dir)) is None:
        return None
    folder, record = found
    file = record.get("tokenizer", {"file": None})["file"]  # the first records were all of bytes
    return ByteTokenizer() if file is None else FileTokenizer(folder / file, begins_texts=_begins(record))


def _record_of(data_dir: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """Return folder and record of a data set of text, by its folder or the folder of a part."""
    place = Path(os.path.realpath(data_dir))
    for folder in (data_dir, place.parent):
        record = read_record(folder) or {}
        # Pictures have a record without a length.
        if "sequence_length" in record and (folder == data_dir or place.name in record["parts"]):
            return folder, record
    return None


def _begins(record: Mapping[str, Any]) -> bool:
    """Whether texts begin as the template of their tokenizer says: preferences do, others if asked for."""
    return bool(record.get("begins_texts", "texts" in record))


def _begin(loaded: Any) -> tuple[int, ...]:
    """Return the tokens that the template of a tokenizer puts before a text."""
    plain, whole = (loaded.encode("a", add_special_tokens=adds).ids for adds in (False, True))
    added = next((n for n in range(len(whole)) if plain and whole[n : n + len(plain)] == plain), 0)
    return tuple(int(token) for token in whole[:added])


def _unknown_id(model: Mapping[str, Any], ids: Mapping[str, int]) -> int | None:
    """Return the unknown token."""
    if isinstance(place := model.get("unk_id"), int):
        return ids.get(model["vocab"][place][0])
    return ids.get(model.get("unk_token") or "")


def _may_drop(document: Mapping[str, Any], ids: Mapping[str, int]) -> bool:
    """Tell whether characters may be left out in silence: a vocabulary without some bytes, and no unknown token."""
    from tokenizers.pre_tokenizers import ByteLevel

    if document["model"].get("byte_fallback"):
        return not all(f"<0x{value:02X}>" in ids for value in range(BYTE_VALUES))
    return not ('"ByteLevel"' in json.dumps(document.get("pre_tokenizer")) and set(ByteLevel.alphabet()) <= ids.keys())


def _half(text: str) -> int:
    """Return the place of the first half of a character."""
    return next(i for i, character in enumerate(text) if "\ud800" <= character <= "\udfff")


def _not_a_character(text: str, place: int) -> DataError:
    return DataError(f"the text must be made of whole characters, got half of one, {text[place]!a}, at {place:,}")
