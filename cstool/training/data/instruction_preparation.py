"""Make a data set for fine-tuning from conversations: the text of the assistant is learned, and nothing else.

It has the layout of text, see `hdf5_text`: a row is one conversation, or several that do not see each other.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.foundation.random_keys import key_of
from cstool.training.data.chat_regions import InexactRegions
from cstool.training.data.chat_templates import (
    PLAIN,
    ChatTemplate,
    SpecialTokens,
    find_template,
    special_tokens,
    usual_template,
)
from cstool.training.data.conversation_tokens import ConversationTokens
from cstool.training.data.conversations import (
    Form,
    Notes,
    conversation_of,
    find_form,
    special_texts,
)
from cstool.training.data.dataset import Array
from cstool.training.data.hdf5_text import write_hdf5_text
from cstool.training.data.instruction_request import FORMAT, LEFT_OUT, InstructionPlan, InstructionSummary, summary
from cstool.training.data.preparation import make_whole
from cstool.training.data.record_files import Progress, Record, RecordReader, record_files
from cstool.training.data.row_packing import best_fit, row_of
from cstool.training.data.sample_spool import SampleSpool
from cstool.training.data.sources import SourceFile, source_names
from cstool.training.data.text_request import check_places
from cstool.training.data.text_work import FILE_SAMPLES, PARTS, described_tokenizer
from cstool.training.data.tokenizer import BYTES, ByteTokenizer, FileTokenizer
from cstool.training.data.tokenizer_files import CONFIG_FILE, TEMPLATE_FILE, TOKENIZER_FILE

_CHUNK_NUMBERS = 2**21
"""numbers in memory at a time; a single row may have more"""
_MOST_INEXACT = 1000
"""conversations without exact regions that are counted"""


def prepare_instructions(
    sources: Sequence[Path],
    output: Path,
    plan: InstructionPlan,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> InstructionSummary:
    """Make a data set `output`/train/*.h5 and `output`/val/*.h5, completely or not at all.

    One that was made before from the same records with the same arguments is kept. In memory are a few numbers of each
    conversation, and of a file of JSON that is an array all of it.

    Args:
        sources: files of JSON Lines, JSON, CSV or Parquet, or folders with such files
        output: a folder that does not exist, is empty, or was made by this program
        plan: of the data set
        overwrite: whether a different data set made before is replaced
        progress: told the bytes of files done, about, and in all

    Raises:
        DataError: an argument is out of range, a record or template is not as it must be, nothing can be learned, or
            the data set cannot be written.
    """
    began = time.perf_counter()
    output = Path(os.path.realpath(output))
    plan.check()
    check_places(sources, output)
    tokenizer = ByteTokenizer() if plan.tokenizer == BYTES else FileTokenizer(Path(plan.tokenizer))
    special = special_tokens(tokenizer)
    template = find_template(plan.chat_template, tokenizer, special)
    files = record_files(sources)
    tokens = ConversationTokens(
        tokenizer,
        special,
        template,
        None if plan.chat_template == PLAIN else usual_template(special),
        plan.separator,
        plan.sequence_length + 1,
        plan.truncate,
        Notes(),
    )

    def make(partial: Path) -> dict[str, Any]:
        with tempfile.TemporaryFile(dir=partial) as spooled:
            made = _Work(partial, RecordReader(files, progress), plan, tokens, SampleSpool(spooled)).make()
        return {"sources": list(source_names(sources)), **made}

    digest = plan.digest(files, template, special)
    record, was_there = make_whole(output, digest, overwrite, make, needs="forms")
    return summary(output, record, time.perf_counter() - began, already_prepared=was_there)


def write_rows(partial: Path, begin: str, rows: Iterator[Array], count: int) -> dict[str, int]:
    """Write the files of a part of a data set; return the size of each by its name.

    Args:
        partial: folder of the data set
        begin: of the names of files, "train/" for example
        rows: (features, S) int32 each, of one shape
        count: of the rows
    """
    sizes: dict[str, int] = {}
    for number, first in enumerate(range(0, count, FILE_SAMPLES)):
        name, of_file = f"{begin}data_{number:05d}.h5", min(FILE_SAMPLES, count - first)
        path = partial / name
        path.parent.mkdir(exist_ok=True)
        row = next(rows)
        features, length = row.shape
        most, rest = max(1, _CHUNK_NUMBERS // row.size), chain([row], islice(rows, of_file - 1))
        chunks = (np.stack(list(islice(rest, most))) for _ in range(0, of_file, most))
        write_hdf5_text(path, chunks, of_file, length, features)
        sizes[name] = path.stat().st_size
    return sizes


def write_tokenizer(
    partial: Path, file: Path | None, made_from: str, template: ChatTemplate | None, special: SpecialTokens
) -> tuple[dict[str, Any], dict[str, int]]:
    """Write tokenizer and template, for questions to the model; return entries of the record, and sizes.

    Args:
        partial: folder of the data set
        file: of the tokenizer; None for bytes
        made_from: the source of the tokenizer, in words
        template: of the conversations, if one has been used
        special: names of special tokens
    """
    contents: dict[str, str | bytes] = {}
    if template is not None:
        contents[TEMPLATE_FILE] = template.source
    made = {}
    if file is not None:
        write_replacing(partial / TOKENIZER_FILE, file.read_bytes())
        made["tokenizer"] = described_tokenizer(partial / TOKENIZER_FILE, made_from)
        contents[CONFIG_FILE] = json.dumps(dict(special.named), indent=1, sort_keys=True) + "\n"
    for name, content in contents.items():
        write_replacing(partial / name, content)
    return made, {name: (partial / name).stat().st_size for name in contents}


@dataclass
class _Work:
    """The making of one data set in a folder that this process alone has."""

    partial: Path
    reader: RecordReader
    plan: InstructionPlan
    tokens: ConversationTokens
    spool: SampleSpool
    _forms: list[str] = field(default_factory=list)
    _sizes: list[int] = field(default_factory=list)
    """bytes of the messages of each sample"""
    _inexact: list[InexactRegions] = field(default_factory=list)
    """errors of conversations whose regions are not exact"""

    def make(self) -> dict[str, Any]:
        """Make all files but the record; return that."""
        places = self._read()
        if not self.plan.skip_broken:
            self.reader.broken.refuse()
        self._refuse_inexact()
        self._check(len(places))
        self.spool.finish()
        held_out = places < self._limit(places)
        parts: dict[str, Any] = {}
        sizes: dict[str, int] = {}
        for part, is_here in zip(PARTS, (~held_out, held_out), strict=True):
            counts, files = self._write(part, np.flatnonzero(is_here).tolist())
            parts[part] = {"files": len(self.reader.files), **counts}
            sizes |= files
        made, more = self._write_tokenizer()
        return {
            "format": FORMAT,
            "sequence_length": self.plan.sequence_length,
            "packing": self.plan.packing,
            "truncate": self.plan.truncate,
            "val_fraction": self.plan.val_fraction,
            "seed": self.plan.seed,
            "forms": self._forms,
            "templates": [template or "" for template in self.tokens.used],
            "notes": dict(self.tokens.notes.counts),
            "first_notes": self.tokens.notes.first,
            "broken": self.reader.broken.count,
            "unknown": self._unknown_words(),
            "begins_texts": bool(self.tokens.tokenizer.begin) and "unbegun" not in self.tokens.notes.counts,
            "parts": parts,
            "files": {**sizes, **more},
            **made,
        }

    def _read(self) -> Array:
        """Read all records, and spool their samples; return (n,) a number for each, the held-out ones first."""
        places: list[float] = []
        forms: dict[SourceFile, Form] = {}
        for file, record, _ in self.reader.records():
            if file not in forms:
                forms[file] = find_form(record, self.plan.form, self.plan.keys)
            if self._add(record, forms[file]):
                places.append(key_of(self.plan.seed, f"held out/{record.name}")[0] / 2**32)
        self._forms = list(dict.fromkeys(map(str, forms.values())))
        return np.array(places)

    def _add(self, record: Record, form: Form) -> bool:
        """Spool the sample of a record; tell whether it has one."""
        conversation = conversation_of(record, form, self.tokens.notes)
        try:
            sample = None if conversation is None else self.tokens.sample(conversation)
        except InexactRegions as error:
            self._inexact.append(error)
            if len(self._inexact) == _MOST_INEXACT:
                self._refuse_inexact()
            return False
        if sample is not None:
            assert conversation is not None
            self.spool.add(sample)
            self._sizes.append(sum(len(message["content"].encode()) for message in conversation.messages))
        return sample is not None

    def _refuse_inexact(self) -> None:
        """Raise DataError if there are conversations whose regions are not exact: the first, and their number."""
        if not self._inexact:
            return
        first, count = self._inexact[0], len(self._inexact)
        more = f"; such are {count:,} of {self.reader.count:,} records" if count > 1 else ""
        raise DataError(f"{first.message}{more}", first.hint)

    def _check(self, count: int) -> None:
        """Check that there are enough conversations, or raise DataError."""
        needed = 2 if self.plan.val_fraction else 1
        if count >= needed:
            return
        counts = self.tokens.notes.counts
        reasons = [f"{counts[kind]:,} with {reason}" for kind, reason in LEFT_OUT.items() if counts[kind]]
        left = f"; left out are {', '.join(reasons)}" if reasons else ""
        rule = f"must have at least {needed} conversations to learn from"
        hint = "a larger --sequence_length has room for more, --truncate cuts them" if counts["long"] else None
        raise DataError(f"{self.reader.files[0].path}: {rule}, got {count} of {self.reader.count:,}{left}", hint)

    def _limit(self, places: Array) -> float:
        """Return the limit of the places of held-out conversations: the wanted share of all places is below it."""
        if not self.plan.val_fraction:
            return 0.0
        count = min(max(1, round(len(places) * self.plan.val_fraction)), len(places) - 1)
        return float(np.sort(places)[count])

    def _write(self, part: str, numbers: Sequence[int]) -> tuple[dict[str, int], dict[str, int]]:
        """Write the rows of some samples; return counts of the part, and the size of each file."""
        length, is_packed = self.plan.sequence_length, self.plan.packing == "best_fit"
        lengths = [self.spool.lengths[number] - 1 for number in numbers]
        rows = best_fit(lengths, length) if is_packed else [[place] for place in range(len(numbers))]
        learned = 0

        def made() -> Iterator[Array]:
            nonlocal learned
            for row in rows:
                samples = [self.spool.read(numbers[place]) for place in row]
                learned += sum(int(sample.learned[1:].sum()) for sample in samples)
                yield row_of(samples, length, is_packed=is_packed)

        sizes = write_rows(self.partial, f"{part}/", made(), len(rows))
        counts = {"documents": len(numbers), "samples": len(rows), "tokens": learned, "places": sum(lengths)}
        return {**counts, "size_bytes": sum(self._sizes[number] for number in numbers)}, sizes

    def _write_tokenizer(self) -> tuple[dict[str, Any], dict[str, int]]:
        template = next((template for template in self.tokens.used.values() if template is not None), None)
        file = None if self.plan.tokenizer == BYTES else Path(self.plan.tokenizer)
        return write_tokenizer(self.partial, file, self.plan.tokenizer, template, self.tokens.special)

    def _unknown_words(self) -> list[str]:
        """Return words of the templates that look like special tokens, and are none."""
        if not isinstance(self.tokens.tokenizer, FileTokenizer):
            return []
        names = self.tokens.tokenizer.loaded.get_vocab(with_added_tokens=True)
        sources = [template.source for template in self.tokens.used.values() if template is not None]
        return special_texts(names, "".join(sources))
