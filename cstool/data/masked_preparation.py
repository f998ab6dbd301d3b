"""Make a data set of masked text from any text: tokens of WordPiece, whose masks are drawn when they are read.

It has the vendor's layout: a `vocab.txt`, and for each part files of CSV with a `meta.dat` that lists them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cstool.atomic_file import write_replacing
from cstool.data.json_lines import has_json_lines
from cstool.data.masked_samples import LEAST_LENGTH, Pairs, Runs, WriteRows
from cstool.data.row_files import META, index_file
from cstool.data.samples import BLOCK_TOKENS, Packing, SampleFile
from cstool.data.sources import SourceFile
from cstool.data.text_request import TextSummary, digest_of
from cstool.data.text_work import PartSamples, Progress, TextWork, prepare
from cstool.data.token_stream import TokenStream
from cstool.data.tokenizing import MOST_VOCAB
from cstool.data.vocabulary import CLS, SEP, VOCABULARY_FILE, Vocabulary
from cstool.data.wordpiece import LEAST_VOCAB, train_wordpiece, wordpiece_file
from cstool.errors import DataError

FORMAT = 1
DEFAULT_VOCAB = 8192
_BYTES_OF_TOKEN = 8
"""of CSV, about"""


@dataclass(frozen=True)
class MaskedTextPlan:
    """What a data set of masked text is to be; together with the text it says every byte of it.

    Args:
        sequence_length: S, special tokens included, from 8 to 2**20
        vocab_size: of the WordPiece vocabulary that is trained on the train part
        vocab_file: a vocabulary to take instead; it is copied
        do_lower: whether text is taken in lower case
        has_pairs: whether samples are pairs of texts, of which half follow each other
        packing: of samples that are no pairs, "stream", or "documents", each of which begins a sample then
        val_fraction: share of the bytes that is held out, in [0, 1); with 0 there is no val part
        seed: of the choice of held-out files, and of the pairs
        jsonl_key: of the text in each object of JSON Lines; None for a usual one
    """

    sequence_length: int
    vocab_size: int = DEFAULT_VOCAB
    vocab_file: Path | None = None
    do_lower: bool = False
    has_pairs: bool = False
    packing: Packing = "stream"
    val_fraction: float = 0.05
    seed: int = 1
    jsonl_key: str | None = None

    is_bytes = False
    allow_unknown = True

    @property
    def is_trained(self) -> bool:
        """Whether the vocabulary is trained on the train part."""
        return self.vocab_file is None

    def check(self) -> None:
        """Check the values, one by one and together, or raise DataError."""
        length = self.sequence_length
        if not LEAST_LENGTH <= length <= BLOCK_TOKENS:
            raise DataError(f"--sequence_length: must be from {LEAST_LENGTH} to {BLOCK_TOKENS:,}, got {length:,}")
        if not 0 <= self.val_fraction < 1:
            raise DataError(f"--val_fraction: must be at least 0 and less than 1, got {self.val_fraction}")
        if not LEAST_VOCAB <= self.vocab_size <= MOST_VOCAB:
            raise DataError(
                f"--vocab_size: must be from {LEAST_VOCAB} to {MOST_VOCAB:,} tokens, got {self.vocab_size:,}"
            )
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
        content: list[Any] = [
            "masked text",
            FORMAT,
            self.sequence_length,
            self.vocab_size if self.vocab_file is None else digest_of(self.vocab_file),
            self.do_lower,
            self.has_pairs,
            self.packing,
            float(self.val_fraction),
            self.seed,
            self.jsonl_key if any(map(has_json_lines, files)) else None,
            [(file.name, file.size_bytes, file.digest) for file in files],
        ]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()


def prepare_masked_text(
    sources: Sequence[Path] | None,
    output: Path,
    plan: MaskedTextPlan,
    *,
    processes: int = 1,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> TextSummary:
    """Make a data set `output`/vocab.txt, `output`/train/*.csv and `output`/val/*.csv, completely or not at all.

    One that was made before from the same text with the same arguments is kept. One that was begun is gone on with,
    from the files that are finished. The same files come of any number of processes.

    Args:
        sources: files and folders (see `find_files`); None for the running Python's standard library
        output: a folder that does not exist, is empty, or was made by this program
        plan: what to make
        processes: that do the work
        overwrite: whether a different data set made before is replaced
        progress: told how far it is

    Raises:
        DataError: an argument is out of range, the text cannot be read, or the data set cannot be written.
        Interrupted: Ctrl-C, when something was finished.
    """

    def begin(partial: Path, files: Sequence[SourceFile]) -> _Work:
        return _Work(partial, files, plan, processes, progress)

    return prepare(sources, output, plan, begin, processes=processes, overwrite=overwrite)


class _Work(TextWork[MaskedTextPlan]):
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
        return Runs(stream.document_tokens, sequence_length=length, packing=plan.packing)

    def writer(self, streams: Mapping[str, TokenStream], samples: Mapping[str, PartSamples]) -> WriteRows:
        """Write rows of CSV."""
        cut = {part: each for part, each in samples.items() if isinstance(each, Runs | Pairs)}
        return WriteRows(dict(streams), cut, self.partial / VOCABULARY_FILE, self.request.do_lower)

    def holds(self, file: SampleFile) -> bool:
        """Tell whether a file of samples is there, whole."""
        return file.path.is_file() and len(index_file(file.path).starts) == file.count

    def finish(self, written: Mapping[str, int], counts: Mapping[str, int]) -> dict[str, int]:
        """List the files of each part; return the sizes of the lists and of the vocabulary."""
        made = {VOCABULARY_FILE: (self.partial / VOCABULARY_FILE).stat().st_size}
        for part in {name.partition("/")[0] for name in written}:
            lines = [f"{Path(name).name} {counts[name]}\n" for name in written if name.startswith(f"{part}/")]
            write_replacing(self.partial / part / META, "".join(lines))
            made[f"{part}/{META}"] = (self.partial / part / META).stat().st_size
        return made

    def details(self) -> dict[str, Any]:
        """Return how samples were made."""
        plan = self.request
        return {
            "format": FORMAT,
            "sequence_length": plan.sequence_length,
            "packing": plan.packing,
            "do_lower": plan.do_lower,
            "has_pairs": plan.has_pairs,
        }
