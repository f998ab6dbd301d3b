"""Make a data set of masked text from any text: tokens of WordPiece, whose masks are drawn when they are read.

It has the vendor's layout: a `vocab.txt`, and for each part files of CSV with a `meta.dat` that lists them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.training.data.masked_samples import LEAST_LENGTH, Pairs, Runs, WriteRows
from cstool.training.data.preparation import digest_of
from cstool.training.data.sources import SourceFile
from cstool.training.data.text_request import TextSummary
from cstool.training.data.text_work import How, PartSamples, prepare
from cstool.training.data.token_stream import TokenStream
from cstool.training.data.vocabulary import CLS, SEP, VOCABULARY_FILE, Vocabulary
from cstool.training.data.vocabulary_work import VocabularyPlan, VocabularyWork
from cstool.training.data.wordpiece import LEAST_VOCAB, train_wordpiece, wordpiece_file

FORMAT = 1
_BYTES_OF_TOKEN = 8
"""of CSV, about"""


@dataclass(frozen=True)
class MaskedTextPlan(VocabularyPlan):
    """The plan of a data set of masked text.

    Args:
        vocab_file: a vocabulary to take instead of one of WordPiece that is trained; it is copied
        do_lower: whether text is taken in lower case
        has_pairs: whether samples are pairs of texts, half of which follow each other; only other samples are packed
    """

    vocab_file: Path | None = None
    do_lower: bool = False
    has_pairs: bool = False

    instead = "--vocab_file"
    least_length = LEAST_LENGTH
    least_vocab = LEAST_VOCAB

    @property
    def is_trained(self) -> bool:
        """Whether the vocabulary is trained on the train part."""
        return self.vocab_file is None

    def check(self) -> None:
        """Check the values, one by one and together, or raise DataError."""
        super().check()
        if self.has_pairs and self.packing != "stream":
            raise DataError(
                "--packing: must be left out beside --nsp, got documents", "the texts of a pair never cross documents"
            )
        if self.vocab_file is not None:
            words = Vocabulary(self.vocab_file, do_lower=self.do_lower)
            for token in (CLS, SEP):
                words.id_of(token)

    def digest(self, files: Sequence[SourceFile]) -> str:
        """Digest that tells data sets apart: of the text and all that is asked for, the vocabulary's file included."""
        vocabulary = self.vocab_size if self.vocab_file is None else digest_of(self.vocab_file)
        return self.digest_with(files, "masked text", FORMAT, vocabulary, self.do_lower, self.has_pairs)


def prepare_masked_text(
    sources: Sequence[Path] | None, output: Path, plan: MaskedTextPlan, **how: Unpack[How]
) -> TextSummary:
    """Make a data set `output`/vocab.txt, `output`/train/*.csv and `output`/val/*.csv, see `text_work.prepare`."""
    return prepare(sources, output, plan, _Work, **how)


class _Work(VocabularyWork[MaskedTextPlan]):
    """The making of a data set of CSV files."""

    suffix = ".csv"
    train_ways = 2

    @property
    def tokenizer_source(self) -> str:
        """The vocabulary's file."""
        return str(self.request.vocab_file)

    @property
    def sample_bytes(self) -> int:
        """Tokens, and a segment for each, in text."""
        return self.request.sequence_length * (_BYTES_OF_TOKEN + 3 * self.request.has_pairs)

    def place_tokenizer(self, path: Path) -> None:
        """Train a vocabulary, or copy it; write it both ways."""
        vocabulary = path.with_name(VOCABULARY_FILE)
        if self.request.vocab_file is None:
            trained = train_wordpiece(self.train_texts, self.request.vocab_size, do_lower=self.request.do_lower)
            ids: dict[str, int] = json.loads(trained)["model"]["vocab"]
            write_replacing(vocabulary, "".join(f"{token}\n" for token in sorted(ids, key=ids.__getitem__)))
            write_replacing(path, trained)  # once it is there, both are
        else:
            write_replacing(vocabulary, self.request.vocab_file.read_bytes())
            write_replacing(path, wordpiece_file(Vocabulary(vocabulary, do_lower=self.request.do_lower)))

    def samples_of(self, part: str, stream: TokenStream) -> Runs | Pairs:
        """Cut the tokens of a part into samples."""
        plan, length = self.request, self.request.sequence_length
        if plan.has_pairs:
            return Pairs(stream.document_tokens, sequence_length=length, seed=plan.seed, part=part)
        return Runs(stream.document_tokens, room=length - 2, separator=1, packing=plan.packing)

    def writer(self, streams: Mapping[str, TokenStream], samples: Mapping[str, PartSamples]) -> WriteRows:
        """Write rows of CSV."""
        cut = {part: each for part, each in samples.items() if isinstance(each, Runs | Pairs)}
        return WriteRows(dict(streams), cut, self.partial / VOCABULARY_FILE, self.request.do_lower)

    def details(self) -> dict[str, Any]:
        """Return the settings by which samples were made."""
        plan = self.request
        return {
            "format": FORMAT,
            "do_lower": plan.do_lower,
            "has_pairs": plan.has_pairs,
        }
