"""Data sets of text that come with a vocabulary: `vocab.txt`, and for each part files that its `meta.dat` lists."""

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.training.data.csv_rows import has_csv_rows
from cstool.training.data.json_lines import has_json_lines
from cstool.training.data.preparation import json_digest
from cstool.training.data.row_files import META, Layout, index_file
from cstool.training.data.samples import SampleFile
from cstool.training.data.sources import SourceFile
from cstool.training.data.text_request import TextPlan
from cstool.training.data.text_work import TextWork
from cstool.training.data.tokenizing import MOST_VOCAB
from cstool.training.data.vocabulary import VOCABULARY_FILE

DEFAULT_VOCAB = 8192


@dataclass(frozen=True)
class VocabularyPlan(TextPlan, ABC):
    """The plan of a data set with a vocabulary.

    Args:
        vocab_size: of the vocabulary, where it is trained on the train part
    """

    vocab_size: int = DEFAULT_VOCAB

    least_vocab: ClassVar[int]
    instead: ClassVar[str]
    """the flag with a file that replaces training a vocabulary"""

    def check(self) -> None:
        """Check the values, one by one and together, or raise DataError."""
        super().check()
        if not self.is_trained and self.vocab_size != DEFAULT_VOCAB:
            raise DataError(
                f"--vocab_size: must be left out beside {self.instead}, whose tokens are taken as they are, got "
                f"{self.vocab_size:,}"
            )
        if not self.least_vocab <= self.vocab_size <= MOST_VOCAB:
            raise DataError(
                f"--vocab_size: must be from {self.least_vocab} to {MOST_VOCAB:,} tokens, got {self.vocab_size:,}"
            )

    def digest_with(self, files: Sequence[SourceFile], kind: str, version: int, *more: Any) -> str:
        """Digest that tells data sets apart: of their kind, their settings, and the text."""
        content = [
            kind,
            version,
            self.sequence_length,
            *more,
            self.packing,
            float(self.val_fraction),
            self.seed,
            self.jsonl_key if any(map(has_json_lines, files)) else None,
            [(file.name, file.size_bytes, file.digest) for file in files],
        ]
        if any(map(has_csv_rows, files)):
            content.append(self.csv_column)
        return json_digest(content)


P = TypeVar("P", bound=VocabularyPlan)


class VocabularyWork(TextWork[P], ABC):
    """The making of a data set of files of rows."""

    suffix = ".csv"
    layout: ClassVar[Layout] = "csv"

    def holds(self, file: SampleFile) -> bool:
        """Tell whether a file of samples is there, whole."""
        return file.path.is_file() and len(index_file(file.path, self.layout).starts) == file.count

    def finish(self, written: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
        """List the files of each part; return the sizes of the lists and of the vocabulary."""
        made = {VOCABULARY_FILE: (self.partial / VOCABULARY_FILE).stat().st_size}
        for part in {name.partition("/")[0] for name in written}:
            lines = [f"{Path(name).name} {counts[name]}\n" for name in written if name.startswith(f"{part}/")]
            write_replacing(self.partial / part / META, "".join(lines))
            made[f"{part}/{META}"] = (self.partial / part / META).stat().st_size
        return made
