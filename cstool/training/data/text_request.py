"""The plan of a text data set, and the summary of its preparation."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from cstool.foundation.errors import DataError
from cstool.training.data.csv_rows import has_csv_rows
from cstool.training.data.json_lines import has_json_lines
from cstool.training.data.preparation import digest_of, json_digest
from cstool.training.data.samples import BLOCK_TOKENS, Packing
from cstool.training.data.sources import SourceFile, source_roots
from cstool.training.data.tokenizer import BYTE_VALUES, BYTES, load_tokenizer, template_begin, tokenizer_of
from cstool.training.data.tokenizing import LEAST_VOCAB, MOST_VOCAB

FORMAT = 2


@dataclass(frozen=True)
class TextPart:
    """Counts of the train or the held-out part."""

    files: int
    """that it has text from"""
    size_bytes: int
    samples: int
    tokens: int
    """unmasked positions"""
    documents: int | None = None
    """None where each is a file"""


@dataclass(frozen=True)
class Continued:
    """Work that an earlier, stopped preparation had finished: files of samples, and of tokens on the way to them."""

    files: int
    of_files: int
    tokenized: int
    of_tokenized: int


@dataclass(frozen=True)
class TextSummary:
    """The data set that `prepare_text` made or found."""

    path: Path
    train: TextPart
    val: TextPart
    duration_s: float
    already_prepared: bool
    tokenizer: str = BYTES
    vocab_size: int = BYTE_VALUES
    unknown_characters: int = 0
    """that no token stands for"""
    template_begin: str | None = None
    """prefix of a text by the template of the tokenizer, for example <s>; None for nothing"""
    begins_texts: bool = False
    """whether the texts begin so"""
    continued: Continued | None = None
    """None if nothing was there"""
    other_files: Mapping[str, int] = field(default_factory=dict)
    """files in folders that are no text, by kind"""

    @property
    def held_out_share(self) -> float:
        """Share of the bytes of the text that is held out."""
        return self.val.size_bytes / (self.train.size_bytes + self.val.size_bytes)


@dataclass(frozen=True)
class TextPlan(ABC):
    """The plan common to all data sets of text; with a subclass's fields and the text it determines every byte.

    Args:
        sequence_length: S, tokens of a sample, up to 2**20
        val_fraction: share of the bytes that is held out, in [0, 1), see `split_text`; with 0 there is no val part
        seed: of the choice of held-out files
        packing: "stream", or "documents": each document begins a sample
        jsonl_key: of the text in each object of JSON Lines; None for a usual one, see `text_key`
        csv_column: of the text in each row of CSV; None where tables of CSV are no text
    """

    sequence_length: int
    val_fraction: float = 0.05
    seed: int = 1
    packing: Packing = "stream"
    jsonl_key: str | None = None
    csv_column: str | None = None

    least_length: ClassVar[int] = 2

    @property
    def any_file(self) -> bool:
        """Whether files that are no text are taken as they are."""
        return False

    @property
    def begins_texts(self) -> bool:
        """Whether documents begin as the template of the tokenizer says."""
        return False

    @property
    def allow_unknown(self) -> bool:
        """Whether characters that no token stands for are counted, and not refused."""
        return True

    @property
    def is_bytes(self) -> bool:
        """Whether bytes are the tokens."""
        return False

    @property
    @abstractmethod
    def is_trained(self) -> bool:
        """Whether the tokenizer, or the vocabulary, is trained on the train part."""

    @abstractmethod
    def digest(self, files: Sequence[SourceFile]) -> str:
        """Digest that tells data sets apart: of the text and all that is asked for, files of tokenizers included."""

    def check(self) -> None:
        """Check the values, one by one and together, or raise DataError."""
        length = self.sequence_length
        if not self.least_length <= length <= BLOCK_TOKENS:
            raise DataError(f"--sequence_length: must be from {self.least_length} to {BLOCK_TOKENS:,}, got {length:,}")
        if not 0 <= self.val_fraction < 1:
            raise DataError(f"--val_fraction: must be at least 0 and less than 1, got {self.val_fraction}")


@dataclass(frozen=True)
class TextRequest(TextPlan):
    """The plan of a data set of samples for decoders.

    Args:
        tokenizer: "bytes" or a tokenizers JSON file, which is copied into the data set
        train_vocab: number of tokens of a byte-level BPE to train on the train part instead
        allow_unknown: whether characters that no token stands for are counted, and not refused
        shuffle_seed: of the order in which the samples of a part are written; None for the order of the text
        begins_texts: whether a document begins with the prefix of the tokenizer's template, for example <s>
        any_file: whether files that are no text are taken as they are; bytes alone can be made of them
    """

    tokenizer: str = BYTES
    train_vocab: int | None = None
    allow_unknown: bool = False
    shuffle_seed: int | None = None
    begins_texts: bool = False
    any_file: bool = False

    @property
    def is_bytes(self) -> bool:
        """Whether bytes are the tokens."""
        return self.tokenizer == BYTES and self.train_vocab is None

    @property
    def is_trained(self) -> bool:
        """Whether the tokenizer is trained on the train part."""
        return self.train_vocab is not None

    def check(self) -> None:
        """Check the values, one by one and together, or raise DataError."""
        super().check()
        if self.train_vocab is not None and self.tokenizer != BYTES:
            raise DataError(
                f"--train_tokenizer: must stand without another tokenizer, got --tokenizer {self.tokenizer}",
                "leave one of the two out",
            )
        if self.train_vocab is not None and not LEAST_VOCAB <= self.train_vocab <= MOST_VOCAB:
            raise DataError(
                f"--train_tokenizer: must be from {LEAST_VOCAB} to {MOST_VOCAB:,} tokens, got {self.train_vocab:,}",
                "256 are the bytes, and one stands between documents",
            )
        if self.any_file and not self.is_bytes:
            raise DataError("--any_file: must stand beside --tokenizer bytes; others need text", "leave it out")
        if self.allow_unknown and (self.tokenizer == BYTES):
            raise DataError(
                "--allow_unknown: must stand beside --tokenizer FILE; bytes stand for all there is", "leave it out"
            )
        tokenizer = load_tokenizer(self.tokenizer)
        if self.begins_texts and not tokenizer.begin:
            raise DataError(
                f"--begin_texts: must stand beside a tokenizer whose template begins texts, {self.tokenizer} does not",
                "leave it out, or take a tokenizer.json with a template such as `<s> $A`",
            )

    def digest(self, files: Sequence[SourceFile]) -> str:
        """Digest that tells data sets apart: of the text and all that is asked for, the tokenizer's file included."""
        text = [(file.name, file.size_bytes, file.digest) for file in files]
        content: list[Any] = [FORMAT, self.sequence_length, float(self.val_fraction), self.seed, text]
        # Settings that were not asked for are left out: the digests of data sets made before those settings stay.
        more = {
            "tokenizer": None if self.tokenizer == BYTES else digest_of(Path(self.tokenizer)),
            "train_vocab": self.train_vocab,
            "allow_unknown": self.allow_unknown or None,
            "packing": None if self.packing == "stream" else self.packing,
            "shuffle_seed": self.shuffle_seed,
            "json_lines": any(map(has_json_lines, files)) or None,
            "jsonl_key": self.jsonl_key,
            "begins_texts": self.begins_texts or None,
            "csv_column": self.csv_column if any(map(has_csv_rows, files)) else None,
        }
        if given := {key: value for key, value in more.items() if value is not None}:
            content.append(given)
        return json_digest(content)


def check_places(sources: Sequence[Path] | None, output: Path) -> None:
    """Check that a data set does not go where its text is, or raise DataError."""
    for source in source_roots(sources):
        if output.is_relative_to(source) or source.is_relative_to(output):
            raise DataError(f"{output}: must lie apart from the sources, got {source} as one", "give another --output")


def summary(
    output: Path, record: Mapping[str, Any], duration_s: float, *, already_prepared: bool, continued: Continued | None
) -> TextSummary:
    """Summary of a data set, from its record."""
    train, val = (TextPart(**record["parts"][name]) for name in ("train", "val"))
    tokenizer = record.get("tokenizer")
    loaded = tokenizer_of(output)
    return TextSummary(
        output,
        train,
        val,
        duration_s,
        already_prepared,
        tokenizer=BYTES if tokenizer is None else str(output / tokenizer["file"]),
        vocab_size=BYTE_VALUES if tokenizer is None else tokenizer["vocab_size"],
        unknown_characters=record.get("unknown_characters", 0),
        template_begin=template_begin(loaded),
        begins_texts=loaded is not None and bool(loaded.begin) and loaded.begins_texts,
        continued=continued,
        other_files=record.get("other_files", {}),
    )
