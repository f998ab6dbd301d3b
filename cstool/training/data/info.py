"""Facts about a data set: its parts, its tokenizer, its source, its first tokens."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cstool.training.data.dataset import NO_LIMIT, Dataset, read_blocks
from cstool.training.data.hdf5_rows import is_sample_file
from cstool.training.data.image_folder import images_of_part
from cstool.training.data.mnist import CLASS_COUNT, open_mnist
from cstool.training.data.parts import IMAGES, PICTURES, ROWS, DataFolder, find_parts, made_tokens, open_part
from cstool.training.data.row_kinds import rows_of
from cstool.training.data.sample_kinds import LABELLED, PREFERENCES, SAMPLE_KINDS, SampleKind
from cstool.training.data.tokenizer import FileTokenizer, template_begin, tokenizer_of

SHOWN_TOKENS = 48
"""of the first sample"""
SHOWN_SOURCES = 3
COUNTED_SAMPLES = 4096
"""samples whose padding is counted where there is no record of it"""


@dataclass(frozen=True)
class PartInfo:
    """Sizes of a part of a data set."""

    files: int
    size_bytes: int
    samples: int
    tokens: int | None = None
    """labels that count; None for pictures, and where only some samples were read"""
    padding: float | None = None
    """share of the positions whose label does not count; None for pictures, and of prompts and their answers the share
    of positions without a token, if that is known"""
    read_samples: int = 0
    """samples behind `tokens`, from the first; all of them where a record gives the count"""
    classes: Sequence[int] | None = None
    """pictures of each class, from class 0; None for text"""
    class_names: Sequence[str] | None = None
    """names of the folders of image files, in the order of their numbers"""


@dataclass(frozen=True)
class DataInfo:
    """Facts about a data set; None where they are unknown, or do not apply to its kind."""

    path: Path
    format: str
    parts: dict[str, PartInfo]
    sequence_length: int | None = None
    spans: Mapping[str, int] | None = None
    """inputs, targets and sentinels that the text of a sample becomes, where spans are taken out as it is read"""
    contexts: Mapping[str, int] | None = None
    """beside the question of a sample: their `count`, and the `tokens` of each"""
    tokenizer: str | None = None
    vocab_size: int | None = None
    template_begin: str | None = None
    """prefix of a text by the template of the tokenizer, for example <s>"""
    begins_texts: bool | None = None
    """whether the texts begin so; None where there is no such template"""
    packing: str | None = None
    shuffle_seed: int | None = None
    unknown_characters: int | None = None
    source: str | None = None
    first_tokens: Sequence[int] | None = None
    first_text: str | None = None


def data_info(folder: Path) -> DataInfo:
    """Describe the data set of `find_parts`; of one that this program did not make, some samples are read.

    Raises:
        DataError: there is none, or it is damaged.
    """
    found = find_parts(folder)
    if found.kind == PICTURES:
        return _pictures(found)
    if found.kind == IMAGES:
        return _images(found)
    return _rows(found) if found.kind == ROWS else _text(found)


def _text(found: DataFolder) -> DataInfo:
    record = found.record or {}
    parts, lengths, first, contexts = {}, [], None, None
    kind = SAMPLE_KINDS[found.kind]
    for name, path in found.parts.items():
        with closing(open_part(found.path, name)) as dataset:
            sizes = [math.prod(dataset.fields[field].shape) for field in kind.counted]
            lengths.append(getattr(dataset, "sequence_length", dataset.fields[kind.first].shape[0]))
            counted, tokens, begins = _count(dataset, kind, lengths[-1])
            if "ctx_input_ids" in dataset.fields:
                contexts = dict(zip(("count", "tokens"), dataset.fields["ctx_input_ids"].shape, strict=True))
        if first is None:
            first = begins
        if record:
            counted, tokens = dataset.sample_count, record["parts"][name]["tokens"]
        files = [entry for entry in path.iterdir() if is_sample_file(entry.name)]
        parts[name] = PartInfo(
            len(files),
            sum(file.stat().st_size for file in files),
            dataset.sample_count,
            tokens if counted == dataset.sample_count else None,
            _padding(kind, record.get("parts", {}).get(name), counted * sum(sizes), tokens),
            counted,
        )
    tokenizer = tokenizer_of(found.path)
    return DataInfo(
        found.path,
        found.kind,
        parts,
        sequence_length=lengths[0] if len(set(lengths)) == 1 else None,
        contexts=contexts,
        tokenizer=None if tokenizer is None else tokenizer.name,
        vocab_size=None if tokenizer is None else tokenizer.vocab_size,
        template_begin=template_begin(tokenizer),
        begins_texts=None if tokenizer is None or not tokenizer.begin else tokenizer.begins_texts,
        packing=record.get("packing", "stream") if record and kind not in (PREFERENCES, LABELLED) else None,
        shuffle_seed=record.get("shuffle_seed"),
        unknown_characters=record.get("unknown_characters", 0) if record else None,
        source=_source(record) if record else None,
        first_tokens=first,
        first_text=None if tokenizer is None or first is None else tokenizer.decode(first),
    )


def _padding(kind: SampleKind, part: Mapping[str, Any] | None, places: int, tokens: int) -> float | None:
    """Return the share of places without a token that counts; of prompts, without any token, if that is known."""
    if kind.has_prompts:
        return None if part is None or "places" not in part else 1 - part["places"] / places
    return 1 - tokens / places


def _rows(found: DataFolder) -> DataInfo:
    """Describe tables, from their rows alone."""
    record = found.record or {}
    parts, kinds, longest, first = {}, [], 0, None
    tokenizer = tokenizer_of(found.path)
    length = made_tokens(record)
    for name, path in found.parts.items():
        kind, rows = rows_of(path, name)
        with closing(rows):
            counted = min(rows.count, COUNTED_SAMPLES)
            tokens = [kind.tokens(rows.read(number), NO_LIMIT) or 0 for number in range(counted)]
            if first is None and kind.words is not None:
                words = kind.words(rows.read(0))[:SHOWN_TOKENS]
                if isinstance(tokenizer, FileTokenizer) and "spans" in record:
                    first = _text_of(words, tokenizer)
                else:
                    first = " ".join(words)
        kinds.append(kind.name)
        longest = max(longest, *tokens)
        has_tokens = max(tokens) > 0
        parts[name] = PartInfo(
            len(rows.files),
            sum(file.path.stat().st_size for file in rows.files),
            rows.count,
            sum(tokens) if has_tokens and counted == rows.count else None,
            1 - sum(tokens) / (counted * length) if length else None,
            counted,
        )
    return DataInfo(
        found.path,
        ", ".join(dict.fromkeys(kinds)),
        parts,
        sequence_length=length or longest or None,
        spans=_spans(record),
        tokenizer=None if tokenizer is None else tokenizer.name,
        vocab_size=None if tokenizer is None else tokenizer.vocab_size,
        packing=None if not record else "pairs" if record.get("has_pairs") else record["packing"],
        unknown_characters=record.get("unknown_characters", 0) if record else None,
        source=_source(record) if record else None,
        first_text=first,
    )


def _text_of(words: Sequence[str], tokenizer: FileTokenizer) -> str:
    ids = {word: number for number, word in enumerate(tokenizer.words())}
    return tokenizer.decode([ids.get(word, tokenizer.vocab_size) for word in words])


def _spans(record: Mapping[str, Any]) -> Mapping[str, int] | None:
    if (spans := record.get("spans")) is None:
        return None
    return {"inputs": record["sequence_length"], "targets": spans["target_length"], "sentinels": spans["sentinels"]}


def _source(record: Mapping[str, Any]) -> str:
    names = record.get("sources", ["text"])
    more = f" and {len(names) - SHOWN_SOURCES:,} more" if len(names) > SHOWN_SOURCES else ""
    size_bytes = sum(part["size_bytes"] for part in record["parts"].values())
    tokenizer = f", tokenizer from {record['tokenizer']['made_from']}" if "tokenizer" in record else ""
    keys = ", ".join(json.dumps(key, ensure_ascii=False) for key in record.get("jsonl_keys", []))
    documents = sum(part.get("documents") or 0 for part in record["parts"].values())
    found = [f"{keys} of JSON Lines"] if keys else []
    if "csv_column" in record:
        found.append(f"column {json.dumps(record['csv_column'], ensure_ascii=False)} of CSV")
    lines = f" in {documents:,} documents, {', '.join(found)}" if found else ""
    if "hook" in record:
        lines = f" in {documents:,} records, by {record['hook']}"
    if "forms" in record:
        written = ", ".join(template or "joined" for template in record["templates"])
        lines = f" in {documents:,} conversations, {', '.join(record['forms'])}; template: {written}"
    return f"{', '.join(names[:SHOWN_SOURCES])}{more}, {size_bytes:,} bytes{lines}{tokenizer}"


def _count(dataset: Dataset, kind: SampleKind, length: int) -> tuple[int, int, list[int]]:
    """Return numbers of samples read and of tokens that count, and the first tokens, of a text of `length` tokens."""
    counted = min(dataset.sample_count, COUNTED_SAMPLES)
    tokens = 0
    begins: list[int] = []
    for out in read_blocks(dataset, max(1, 2**20 // dataset.fields[kind.first].shape[0]), counted):
        tokens += sum(int(np.count_nonzero(out[name])) for name in kind.counted)
        if not begins:
            places = np.flatnonzero(out[kind.counted[0]][0, :length])
            # Of a prompt nothing counts.
            shown = int(places.max(initial=0)) + 1 if kind.has_prompts else max(1, len(places))
            begins = out[kind.first][0, :shown][:SHOWN_TOKENS].tolist()
    return counted, tokens, begins


def _images(found: DataFolder) -> DataInfo:
    """Describe images in files: their number in each class; none is opened."""
    parts = {}
    for name, path in found.parts.items():
        images = images_of_part(path)
        classes = np.bincount(images.labels, minlength=len(images.classes)).tolist()
        size_bytes = sum(file.stat().st_size for file in images.files)
        count = len(images.files)
        parts[name] = PartInfo(count, size_bytes, count, classes=classes, class_names=images.classes)
    return DataInfo(found.path, found.kind, parts)


def _pictures(found: DataFolder) -> DataInfo:
    parts = {}
    for name in found.parts:
        dataset = open_mnist([found.path], split=name)
        [out] = read_blocks(dataset, dataset.sample_count, dataset.sample_count)
        classes = np.bincount(out["labels"], minlength=CLASS_COUNT).tolist()
        size_bytes = sum(file.stat().st_size for file in dataset.files)
        parts[name] = PartInfo(len(dataset.files), size_bytes, dataset.sample_count, classes=classes)
    source = (found.record or {}).get("source")
    return DataInfo(found.path, found.kind, parts, source=source)
