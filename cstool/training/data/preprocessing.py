"""Make a data set as a file of the vendor's preprocessing says: from records by a hook to rows of tokens.

Rows are in the layouts of text (see `hdf5_text`) and of preferences. Texts that are packed do not see each other; the
room of a row is used as `row_packing` has it, so rows are others than the vendor's, and the texts in them the same.
"""

import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cstool.foundation.errors import DataError
from cstool.foundation.random_keys import key_of
from cstool.training.data.chat_templates import ChatTemplate, SpecialTokens, chatml, find_template, special_tokens
from cstool.training.data.conversations import Notes
from cstool.training.data.dataset import Array
from cstool.training.data.instruction_preparation import write_rows, write_tokenizer
from cstool.training.data.preferences import TEXTS
from cstool.training.data.preparation import json_digest, make_whole
from cstool.training.data.preprocess_file import PreprocessPlan
from cstool.training.data.record_files import TEXT_LINES, Progress, RecordReader, record_files
from cstool.training.data.row_packing import best_fit, row_of
from cstool.training.data.sample_spool import SampleSpool
from cstool.training.data.sources import SourceFile, source_names
from cstool.training.data.text_request import check_places
from cstool.training.data.text_work import PARTS
from cstool.training.data.tokenizer import END_OF_TEXT, FileTokenizer
from cstool.training.data.tokenizer_files import TOKENIZER_FILE
from cstool.training.data.vendor_hooks import LEFT_OUT, TokensHook
from cstool.training.data.vendor_tokens import VendorTokens

FORMAT = 1
_PADDING = "<|padding|>"
_WITH_END_OF_TEXT = ("gpt2tokenizer", "neoxtokenizer")
"""tokenizers that end texts with that token, whatever their configuration says"""
_PACKED = (".gz", ".zst", ".tar")
_HELD_OUT = ("validation", "valid", "val", "dev")
"""names of the same split"""


@dataclass(frozen=True)
class PreprocessedPart:
    """Counts of a part of a data set.

    Args:
        records: with tokens in it
        samples: rows
        tokens: whose labels count
        places: that tokens take, padding left out
    """

    records: int
    samples: int
    tokens: int
    places: int


@dataclass(frozen=True)
class PreprocessSummary:
    """The data set that `preprocess` made or found.

    Args:
        parts: by name; "train" lies in the folder itself, unless the file has splits
        is_flat: whether it does
        template: of conversations, in words; "" if there are none
        packed: whether a dataloader needs use_vsl: true
        left_out: reason -> number of records, and the place of the first
        notes: kind -> number of other unusual records, and the place of the first
        broken: lines left out that are no JSON objects
        without_effect: keys of the file that change nothing, one line each
        warnings: things that are not as the file seems to say
        tokenizer: path of the one in the data set
    """

    path: Path
    mode: str
    hook: str
    parts: Mapping[str, PreprocessedPart]
    is_flat: bool
    sequence_length: int
    template: str
    packed: bool
    left_out: Mapping[str, tuple[int, str]]
    notes: Mapping[str, tuple[int, str]]
    broken: int
    without_effect: Sequence[str]
    warnings: Sequence[str]
    tokenizer: str
    vocab_size: int
    duration_s: float
    already_prepared: bool


def preprocess(plan: PreprocessPlan, *, overwrite: bool = False, progress: Progress | None = None) -> PreprocessSummary:
    """Make the data set of a file, completely or not at all; one that was made before in the same way is kept.

    Args:
        plan: the file
        overwrite: whether a different data set made before is replaced
        progress: told the bytes of files done, about, and in all

    Raises:
        DataError: a record or the template is not as it must be, no record is left, or the data set cannot be written
    """
    began = time.perf_counter()
    source, output = Path(plan.setup.data.source), Path(os.path.realpath(plan.setup.output_dir))
    check_places([source], output)
    files = _of_split(record_files([source], (TEXT_LINES,)), plan, source)
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = FileTokenizer(_tokenizer_file(plan, Path(folder)))
        tokens = _tokens(plan, tokenizer)

        def make(partial: Path) -> dict[str, Any]:
            with tempfile.TemporaryFile(dir=partial) as spooled:
                made = _Work(partial, RecordReader(files, progress), tokens, SampleSpool(spooled)).make()
            return {"sources": list(source_names([source])), **made}

        of_template = [tokens.template.source, tokens.template.day, dict(tokens.special.named)]
        text = [(file.name, file.size_bytes, file.digest) for file in files]
        digest = json_digest(["preprocessed", FORMAT, *plan.digested(), of_template, text])
        record, was_there = make_whole(output, digest, overwrite, make, needs="hook")
    return _summary(plan, output, record, time.perf_counter() - began, already_prepared=was_there)


def _of_split(files: Sequence[SourceFile], plan: PreprocessPlan, source: Path) -> Sequence[SourceFile]:
    """Return the files of the split that is asked for, by the first word of their names or a folder's name."""
    if packed := sorted(path for path in source.rglob("*") if path.suffix in _PACKED):
        raise DataError(f"{packed[0]}: must be unpacked: of packed files nothing is read", "gunzip or zstd -d does it")
    split = plan.setup.data.split
    if split is None or plan.setup.data.type == "local" or source.is_file():
        return files
    names = _HELD_OUT if split in _HELD_OUT else (split,)
    found = [
        file
        for file in files
        if any(re.split(r"[-_.]", part)[0] in names for part in PurePosixPath(file.name).parts[-2:])
    ]
    if not found:
        raise DataError(
            f"{source}: must hold files of the split {split}, got none whose name begins so",
            f"call them {split}.jsonl or {split}-00000.parquet, or leave setup.data.split out",
        )
    return found


def _tokenizer_file(plan: PreprocessPlan, folder: Path) -> Path:
    """File of the tokenizer; GPT-2's is made in `folder` from vocabulary and merges."""
    if len(plan.files) == 1:
        return plan.files[0]
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    except ImportError:
        return plan.files[0]  # which says that the package is not installed
    try:
        made = Tokenizer(models.BPE.from_file(*map(str, plan.files)))
    except Exception as error:  # of no narrower class
        names = " and ".join(map(str, plan.files))
        raise DataError(f"{names}: must be a vocabulary and merges, got: {error}") from None
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([END_OF_TEXT])
    made.save(str(folder / TOKENIZER_FILE))
    return folder / TOKENIZER_FILE


def _tokens(plan: PreprocessPlan, tokenizer: FileTokenizer) -> VendorTokens:
    """Return the way from records to tokens; the ends of texts and of turns are those of the file."""
    processing, params = plan.processing, plan.processing.tokenizer_params
    special, words = special_tokens(tokenizer), tokenizer.words()
    ids = {word: number for number, word in enumerate(words)}
    end = params.eos_token_id if processing.eos_id is None else processing.eos_id
    if end is None:
        usual = special.named.get("eos_token", END_OF_TEXT)
        named = END_OF_TEXT if processing.custom_tokenizer in _WITH_END_OF_TEXT and END_OF_TEXT in ids else usual
        end = ids.get(named)
    if end is None:
        raise DataError(
            f"{tokenizer.name}: must have a token that ends texts, got none",
            "processing.eos_id gives one; in a tokenizer_config.json beside it, eos_token does",
        )
    pad = params.pad_token_id if processing.pad_id is None else processing.pad_id
    if pad is None and processing.eos_id is None and processing.custom_tokenizer in (None, "neoxtokenizer"):
        pad = ids.get(special.named.get("pad_token", _PADDING))
    pad = end if pad is None else pad
    for key, number in (("eos_id", end), ("pad_id", pad)):
        if number >= len(words):
            raise DataError(f"processing.{key}: must be below the {len(words):,} tokens, got {number:,}")
    special = SpecialTokens({**special.named, "eos_token": words[end]}, {**special.ids, words[end]: end})
    written = plan.dataset.chat_template if plan.setup.mode == "finetuning" else None
    template = None if written is None else ChatTemplate(written, "dataset.chat_template", special.named)
    template = template or find_template(None, tokenizer, special) or chatml(special)
    return VendorTokens(plan, tokenizer, special, template, end, pad, Notes())


@dataclass
class _Work:
    """The making of one data set in a folder that this process alone has."""

    partial: Path
    reader: RecordReader
    tokens: VendorTokens
    spool: SampleSpool
    _names: list[str] = field(default_factory=list)
    """of the record of each sample"""
    _sizes: list[int] = field(default_factory=list)
    """bytes of the record of each sample, 0 for all but its first"""
    _begins: bool = True
    """whether texts begin as the tokenizer's template has it"""

    def make(self) -> dict[str, Any]:
        """Make all files but the record; return that."""
        plan, notes = self.tokens.plan, self.tokens.notes
        self._read()
        self.spool.finish()
        splits = plan.setup.data_splits or {}
        parts: dict[str, Any] = dict.fromkeys(PARTS, {})
        sizes: dict[str, int] = {}
        for part, numbers in self._parts().items():
            begin = f"{part}/" if splits else ""
            counts, files = self._write(begin, numbers)
            parts[part] = {"files": len(self.reader.files), **counts}
            sizes |= files
        nothing = dict.fromkeys(("files", "size_bytes", "samples", "tokens", "documents", "places"), 0)
        template = self.tokens.template if plan.hook.has_template else None
        made, more = write_tokenizer(
            self.partial, Path(self.tokens.tokenizer.name), str(plan.files[0]), template, self.tokens.special
        )
        return {
            "format": FORMAT,
            "mode": plan.setup.mode,
            "hook": plan.processing.read_hook.rpartition(":")[2],
            "template": "" if template is None else template.told,
            "is_flat": not splits,
            "sequence_length": plan.processing.max_seq_length,
            "packing": self._packing,
            "notes": dict(notes.counts),
            "first_notes": notes.first,
            "broken": self.reader.broken.count,
            "begins_texts": bool(self.tokens.tokenizer.begin) and self._begins,
            "parts": {name: part or nothing for name, part in parts.items()},
            "files": {**sizes, **more},
            **made,
        }

    @property
    def _is_packed(self) -> bool:
        return self.tokens.plan.dataset.use_vsl and self.tokens.plan.setup.mode in ("pretraining", "finetuning")

    @property
    def _packing(self) -> str:
        if self._is_packed:
            return "best_fit"
        is_stream = self.tokens.plan.setup.mode == "pretraining" and self.tokens.plan.dataset.pack_sequences
        return "stream" if is_stream else "none"

    def _read(self) -> None:
        """Read all records, and spool their samples."""
        for _, record, size_bytes in self.reader.records():
            self._add(self.tokens.samples(record), record.name, size_bytes)
        self._add(self.tokens.rest(), "rest", 0)
        if not self.tokens.plan.processing.skip_broken:
            self.reader.broken.refuse("processing.UNSAFE_skip_jsonl_decoding_errors: true")
        if not self.spool.lengths:
            counts = self.tokens.notes.counts
            reasons = [f"{count:,} with {LEFT_OUT[kind]}" for kind, count in counts.items() if kind in LEFT_OUT]
            left = f"; left out are {', '.join(reasons)}" if reasons else ""
            rule = f"must have records to learn from, got none of {self.reader.count:,}{left}"
            raise DataError(f"{self.reader.files[0].path}: {rule}")

    def _add(self, samples: Sequence[Any], name: str, size_bytes: int) -> None:
        for number, sample in enumerate(samples):
            highest = int(sample.tokens.max())
            if highest >= self.tokens.tokenizer.vocab_size and isinstance(self.tokens.plan.hook, TokensHook):
                limit = self.tokens.tokenizer.vocab_size
                raise DataError(f"{name}: token ids must be below the tokenizer's {limit:,}, got {highest:,}")
            begin = [*self.tokens.tokenizer.begin]
            self._begins &= (
                self.tokens.plan.setup.mode == "pretraining" or sample.tokens[: len(begin)].tolist() == begin
            )
            self.spool.add(sample)
            self._names.append(name)
            self._sizes.append(0 if number else size_bytes)

    def _parts(self) -> dict[str, list[int]]:
        """Return the numbers of the samples of each part, or of the first of each pair of samples of a preference."""
        plan = self.tokens.plan
        step = len(TEXTS) if plan.setup.mode == "dpo" else 1
        numbers = np.arange(0, len(self._names), step)
        seed = plan.processing.split_seed
        splits = plan.setup.data_splits
        if not splits:
            return {PARTS[0]: numbers.tolist()}
        # The samples of a record stay together, and a record stays where it is when others are added.
        places = {name: key_of(seed, f"split/{name}")[0] / 2**32 for name in self._names}
        bounds = np.cumsum([split.split_fraction for split in splits.values()])
        chosen = np.searchsorted(bounds[:-1], [places[self._names[number]] for number in numbers], side="right")
        return {name: numbers[chosen == place].tolist() for place, name in enumerate(splits)}

    def _write(self, begin: str, numbers: Sequence[int]) -> tuple[dict[str, int], dict[str, int]]:
        """Write the rows of some samples; return counts of the part, and the size of each file."""
        processing, is_pair = self.tokens.plan.processing, self.tokens.plan.setup.mode == "dpo"
        length = processing.max_seq_length
        lengths = [self.spool.lengths[number] - 1 for number in numbers]
        rows = best_fit(lengths, length) if self._is_packed else [[place] for place in range(len(numbers))]
        if processing.shuffle:
            seed = processing.shuffle_seed
            rows = [rows[place] for place in sorted(range(len(rows)), key=lambda n: key_of(seed, f"row/{n}"))]
        learned = places = 0

        def made() -> Iterator[Array]:
            nonlocal learned, places
            for row in rows:
                first = numbers[row[0]]
                of_row = range(first, first + len(TEXTS)) if is_pair else [numbers[place] for place in row]
                samples = [self.spool.read(number) for number in of_row]
                learned += sum(int(sample.learned[1:].sum()) for sample in samples)
                places += sum(len(sample.tokens) - 1 for sample in samples)
                if is_pair:
                    yield np.concatenate([row_of([sample], length, is_packed=False) for sample in samples])
                else:
                    yield row_of(samples, length, is_packed=self._is_packed)

        sizes = write_rows(self.partial, begin, made(), len(rows))
        records = len({self._names[number] for number in numbers})
        size_bytes = sum(self._sizes[number] for number in numbers)
        counts = {"documents": records, "samples": len(rows), "tokens": learned, "places": places}
        return {**counts, "size_bytes": size_bytes}, sizes


def _summary(
    plan: PreprocessPlan, output: Path, record: Mapping[str, Any], duration_s: float, *, already_prepared: bool
) -> PreprocessSummary:
    named = plan.setup.data_splits or PARTS[:1]
    parts = {
        name: PreprocessedPart(part["documents"], part["samples"], part["tokens"], part["places"])
        for name, part in record["parts"].items()
        if name in named
    }
    notes = {kind: (count, record["first_notes"][kind]) for kind, count in record["notes"].items()}
    return PreprocessSummary(
        output,
        record["mode"],
        record["hook"],
        parts,
        record["is_flat"],
        record["sequence_length"],
        record["template"],
        record["packing"] == "best_fit",
        {reason: notes[kind] for kind, reason in LEFT_OUT.items() if kind in notes},
        {kind: note for kind, note in notes.items() if kind not in LEFT_OUT},
        record["broken"],
        plan.notes,
        plan.warnings,
        str(output / record["tokenizer"]["file"]),
        record["tokenizer"]["vocab_size"],
        duration_s,
        already_prepared,
    )
