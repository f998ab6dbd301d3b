"""Make a data set for span corruption from any text: plain tokens, of which spans are taken out when they are read.

It has the layout of the vendor's T5DynamicDataProcessor: a `vocab.txt`, and for each part files of text with a
`meta.dat` that lists them. A line is a sample: the tokens that become inputs of S tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.training.data.masked_samples import Runs
from cstool.training.data.preparation import digest_of
from cstool.training.data.samples import SampleFile
from cstool.training.data.sources import SourceFile
from cstool.training.data.span_corruption import span_lengths
from cstool.training.data.text_request import TextSummary
from cstool.training.data.text_work import How, PartSamples, prepare
from cstool.training.data.token_stream import TokenStream
from cstool.training.data.tokenizer import BYTE_VALUES, BYTES, FileTokenizer
from cstool.training.data.tokenizing import train_tokenizer
from cstool.training.data.vocabulary import PAIR_TOKENS, VOCABULARY_FILE
from cstool.training.data.vocabulary_work import VocabularyPlan, VocabularyWork

FORMAT = 1
_BYTES_OF_TOKEN = 6
"""in a line, about"""


@dataclass(frozen=True)
class SpanTextPlan(VocabularyPlan):
    """The plan of a data set for span corruption; the encoder reads S tokens of a sample.

    Args:
        tokenizer: a tokenizers JSON file to take instead of a byte-level BPE that is trained; it is copied
    """

    tokenizer: Path | None = None

    instead = "--tokenizer"
    least_length = 4
    least_vocab = BYTE_VALUES + len(PAIR_TOKENS)

    @property
    def is_trained(self) -> bool:
        """Whether the tokenizer is trained on the train part."""
        return self.tokenizer is None

    def check(self) -> None:
        """Check the values, one by one and together, or raise DataError."""
        super().check()
        if str(self.tokenizer) == BYTES:
            raise DataError(
                "--tokenizer: must be a tokenizers JSON file, got bytes",
                "left out, a byte-level BPE is trained, which has tokens for every text",
            )
        if self.tokenizer is not None:
            _words_of(self.tokenizer)

    def digest(self, files: Sequence[SourceFile]) -> str:
        """Digest that tells data sets apart: of the text and all that is asked for, the tokenizer's file included."""
        tokenizer = self.vocab_size if self.tokenizer is None else digest_of(self.tokenizer)
        return self.digest_with(files, "text for spans", FORMAT, tokenizer)


def prepare_span_text(
    sources: Sequence[Path] | None, output: Path, plan: SpanTextPlan, **how: Unpack[How]
) -> TextSummary:
    """Make a data set `output`/vocab.txt, `output`/train/*.txt and `output`/val/*.txt, see `text_work.prepare`."""
    return prepare(sources, output, plan, _Work, **how)


class _Work(VocabularyWork[SpanTextPlan]):
    """The making of a data set of lines of tokens."""

    suffix = ".txt"
    layout = "text"

    @property
    def tokenizer_source(self) -> str:
        """The tokenizer's file."""
        return str(self.request.tokenizer)

    @property
    def sample_bytes(self) -> int:
        """Tokens, as text."""
        return span_lengths(self.request.sequence_length).raw * _BYTES_OF_TOKEN

    def place_tokenizer(self, path: Path) -> None:
        """Train a tokenizer, or copy it; write its vocabulary."""
        made = path.with_name(f".{path.name}.made")
        if self.request.tokenizer is None:
            train_tokenizer(made, self.train_texts(), self.request.vocab_size, PAIR_TOKENS, asked_by="--vocab_size")
        else:
            write_replacing(made, self.request.tokenizer.read_bytes())
        words = _words_of(made)
        words += [token for token in PAIR_TOKENS if token not in words]
        write_replacing(path.with_name(VOCABULARY_FILE), "".join(f"{word}\n" for word in words))
        made.replace(path)  # once it is there, both are

    def samples_of(self, _part: str, stream: TokenStream) -> Runs:
        """Cut the tokens of a part into samples."""
        raw = span_lengths(self.request.sequence_length).raw
        return Runs(stream.document_tokens, room=raw, separator=0, packing=self.request.packing)

    def writer(self, streams: Mapping[str, TokenStream], samples: Mapping[str, PartSamples]) -> "WriteLines":
        """Write lines."""
        cut = {part: each for part, each in samples.items() if isinstance(each, Runs)}
        return WriteLines(dict(streams), cut, self.partial / VOCABULARY_FILE)

    def details(self) -> dict[str, Any]:
        """Return the settings by which samples were made."""
        plan = self.request
        lengths = span_lengths(plan.sequence_length)
        return {
            "format": FORMAT,
            "spans": {"tokens": lengths.raw, "target_length": lengths.targets, "sentinels": lengths.spans},
        }


@dataclass(frozen=True)
class WriteLines:
    """Write files of samples as lines of tokens; a task for any process.

    Args:
        streams: the tokens of each part
        samples: of each part
        vocabulary: the path of its file
    """

    streams: Mapping[str, TokenStream]
    samples: Mapping[str, Runs]
    vocabulary: Path

    @cached_property
    def _words(self) -> list[str]:
        return self.vocabulary.read_text(encoding="utf-8").split("\n")

    def __call__(self, file: SampleFile) -> None:
        """Write one file, or nothing; raise OSError if it cannot be written."""
        stream, samples = self.streams[file.part], self.samples[file.part]
        lines = []
        for number in range(file.first, file.first + file.count):
            spans = samples.sample(number).first
            lines.append(" ".join(self._words[token] for span in spans for token in stream.read(*span).tolist()))
        write_replacing(file.path, "".join(f"{line}\n" for line in lines).encode())


def _words_of(path: Path) -> list[str]:
    """Return the tokens of a tokenizers JSON file by their ids, or raise DataError if they cannot stand in lines."""
    words = FileTokenizer(path).words()
    for number, word in enumerate(words):
        if word.split() != [word]:
            raise DataError(
                f"{path}: tokens must be without spaces, got {word!r} as token {number:,}",
                "tokens stand in lines, with spaces between; take a tokenizer of SentencePiece, or of bytes",
            )
    return words
