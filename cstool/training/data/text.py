"""Make a language-model data set from text: of bytes from any files, or of the tokens of UTF-8 text.

Each part, train and held-out, is the tokens of its files one after another, with a token between files: 0 for bytes,
the end-of-text token of a tokenizer. That stream is cut into samples of S tokens: input_ids are tokens i to i + S,
labels the tokens one later. The end of the last sample is padded, mask 0. Packed by documents, each file begins a
sample of its own, and the end of its last one is padded. A line of JSON Lines is a document as any file is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from cstool.foundation.atomic_file import write_replacing
from cstool.training.data.hdf5_text import holds_samples
from cstool.training.data.samples import SampleFile, Samples, WriteSamples
from cstool.training.data.text_request import FORMAT, TextRequest, TextSummary
from cstool.training.data.text_work import How, PartSamples, TextWork, prepare
from cstool.training.data.token_stream import TokenStream
from cstool.training.data.tokenizer import FileTokenizer
from cstool.training.data.tokenizer_files import copy_beside
from cstool.training.data.tokenizing import train_tokenizer


def prepare_text(sources: Sequence[Path] | None, output: Path, request: TextRequest, **how: Unpack[How]) -> TextSummary:
    """Make a data set `output`/train/*.h5 and `output`/val/*.h5, see `text_work.prepare`."""
    return prepare(sources, output, request, _Work, **how)


class _Work(TextWork[TextRequest]):
    """The making of a data set of HDF5 files."""

    suffix = ".h5"

    @property
    def tokenizer_source(self) -> str:
        """The tokenizer's file."""
        return self.request.tokenizer

    @property
    def sample_bytes(self) -> int:
        """Inputs, mask and labels, int32 each."""
        return 3 * self.request.sequence_length * 4

    def place_tokenizer(self, path: Path) -> None:
        """Copy the tokenizer, or train it."""
        if self.request.train_vocab is None:
            copy_beside(Path(self.request.tokenizer), path)
            write_replacing(path, Path(self.request.tokenizer).read_bytes())
        else:
            train_tokenizer(path, self.train_texts(), self.request.train_vocab)

    def samples_of(self, _part: str, stream: TokenStream) -> Samples:
        """Cut the tokens of a part into samples."""
        return Samples(
            stream.document_tokens,
            has_ends=self.request.is_bytes or FileTokenizer(self.tokenizer_path).end_of_text is not None,
            sequence_length=self.request.sequence_length,
            packing=self.request.packing,
        )

    def writer(self, streams: Mapping[str, TokenStream], samples: Mapping[str, PartSamples]) -> WriteSamples:
        """Write samples as they are in the text, or shuffled."""
        cut = {part: each for part, each in samples.items() if isinstance(each, Samples)}
        return WriteSamples(dict(streams), cut, self.request.shuffle_seed)

    def holds(self, file: SampleFile) -> bool:
        """Tell whether a file of samples is there, whole."""
        return holds_samples(file.path, file.count, self.request.sequence_length)

    def details(self) -> dict[str, Any]:
        """Return the settings by which samples were made."""
        request = self.request
        return {
            "format": FORMAT,
            "shuffle_seed": request.shuffle_seed,
            "begins_texts": request.begins_texts,
        }
