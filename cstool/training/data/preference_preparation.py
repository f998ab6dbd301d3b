"""Make a data set of preferences: pairs of a chosen and a rejected answer to a prompt, from JSON Lines.

It has the vendor's layout for DPO: for each part files `*.h5`, see `preferences`. A text is the prefix of the
tokenizer's template, the prompt, the answer, and the token that ends a text; texts are taken as they are, and nothing
is put between prompt and answer. The labels of the answer and its end count, no others.

Lines may have single answers, each with a label that says if it is desirable. Then beside the answer in a sample stands
the answer of the next line of its part, beside the last one the first: a mismatched answer, of which the loss of KTO
needs some.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError
from cstool.foundation.random_keys import key_of
from cstool.training.data.dataset import Array
from cstool.training.data.hdf5_text import write_hdf5_text
from cstool.training.data.json_lines import has_json_lines, objects_of
from cstool.training.data.preferences import (
    FEATURES,
    FEATURES_OF_LABELLED,
    INPUT_IDS,
    LABELS,
    MASK,
    PARTS,
    TEXTS,
    LabelledDataset,
)
from cstool.training.data.preparation import digest_of, json_digest, make_whole
from cstool.training.data.sources import SourceFile, find_files, source_names
from cstool.training.data.text_request import check_places
from cstool.training.data.text_work import FILE_SAMPLES, described_tokenizer
from cstool.training.data.tokenizer import BYTES, Tokenizer, begun, load_tokenizer
from cstool.training.data.tokenizer_files import TOKENIZER_FILE, copy_beside

PROMPT = "prompt"
KEYS = (PROMPT, *TEXTS)
"""of an object, under which its texts are"""
ANSWER, LABEL = "completion", "label"
"""keys of an answer with a label"""
FORMAT = 1
_MOST_LENGTH = 2**20
_CHUNK_NUMBERS = 2**21
"""numbers in memory at a time; a single pair may have more"""
_HINT = 'a line is {"prompt": "...", "chosen": "...", "rejected": "..."}'
_HINT_OF_LABELLED = 'a line is {"prompt": "...", "completion": "...", "label": true}'

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PreferencePart:
    """Counts of a part of a data set of preferences.

    Args:
        pairs: samples
        tokens: of answers, ends included: labels that count
        cut: pairs whose texts were too long
    """

    pairs: int
    tokens: int
    cut: int


@dataclass(frozen=True)
class PreferenceSummary:
    """The data set that `prepare_preferences` made or found.

    Args:
        left_out: lines that lack a prompt or an answer
        tokenizer: "bytes" or the path of the one in the data set
    """

    path: Path
    train: PreferencePart
    val: PreferencePart
    left_out: int
    tokenizer: str
    vocab_size: int
    duration_s: float
    already_prepared: bool


@dataclass(frozen=True)
class PreferencePlan:
    """The plan of a data set of preferences.

    Args:
        sequence_length: S, tokens of each text, from 4 up to 2**20
        tokenizer: "bytes" or a tokenizers JSON file, which is copied into the data set
        val_fraction: share of the pairs that is held out, in [0, 1): at least one, unless it is 0
        seed: of the choice of these
    """

    sequence_length: int
    tokenizer: str = BYTES
    val_fraction: float = 0.05
    seed: int = 1

    def check(self) -> None:
        """Check the values one by one, or raise DataError."""
        if not 4 <= self.sequence_length <= _MOST_LENGTH:
            raise DataError(f"--sequence_length: must be from 4 to {_MOST_LENGTH:,}, got {self.sequence_length:,}")
        if not 0 <= self.val_fraction < 1:
            raise DataError(f"--val_fraction: must be at least 0 and less than 1, got {self.val_fraction}")

    def digest(self, files: Sequence[SourceFile]) -> str:
        """Digest that tells data sets apart: of the text and all that is asked for, the tokenizer's file included."""
        tokenizer = None if self.tokenizer == BYTES else digest_of(Path(self.tokenizer))
        text = [(file.name, file.size_bytes, file.digest) for file in files]
        return json_digest(
            ["preferences", FORMAT, self.sequence_length, tokenizer, float(self.val_fraction), self.seed, text]
        )


def prepare_preferences(
    sources: Sequence[Path],
    output: Path,
    plan: PreferencePlan,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PreferenceSummary:
    """Make a data set `output`/train/*.h5 and `output`/val/*.h5, completely or not at all, in bounded memory.

    One that was made before from the same lines with the same arguments is kept.

    Args:
        sources: files of JSON Lines, or folders with such files
        output: a folder that does not exist, is empty, or was made by this program
        plan: of the data set
        overwrite: whether a different data set made before is replaced
        progress: told the bytes of JSON done, and twice the bytes of JSON: lines are counted first

    Raises:
        DataError: an argument is out of range, a line is not as it must be, or the data set cannot be written.
    """
    began = time.perf_counter()
    output = Path(os.path.realpath(output))
    plan.check()
    check_places(sources, output)
    tokenizer = load_tokenizer(plan.tokenizer)
    files = _json_lines(sources)

    def make(partial: Path) -> dict[str, Any]:
        work = _Work(partial, files, plan, tokenizer, progress, _is_labelled(files))
        return {"sources": list(source_names(sources)), **work.make()}

    record, was_there = make_whole(output, plan.digest(files), overwrite, make, needs="texts")
    return _summary(output, record, time.perf_counter() - began, already_prepared=was_there)


def pair_of(texts: Mapping[str, str], tokenizer: Tokenizer, length: int, where: str) -> tuple[Array, bool]:
    """Make the sample of a line.

    A prompt that leaves no room for the longer answer loses its begin, down to its last token; an answer that is longer
    still loses its end.

    Args:
        texts: under `KEYS`, none empty
        tokenizer: of the data set
        length: S
        where: file and line, for messages

    Returns:
        (6, S) int32, see `FEATURES`, and whether something was cut

    Raises:
        DataError: a character has no token, or the tokens that begin a text fill it
    """
    try:
        prompt, *answers = (tokenizer.encode(texts[key]) for key in KEYS)
    except DataError as error:
        raise DataError(f"{where}: {error.message}", error.hint) from None
    begin = list(tokenizer.begin)
    prompt = begun(begin, prompt)[len(begin) :]
    end = [] if tokenizer.end_of_text is None else [tokenizer.end_of_text]
    room = length - len(begin)
    if not prompt:
        raise DataError(f"{where}: must have a prompt of at least one token, got none")
    if room < 2:
        raise DataError(
            f"--sequence_length: must leave tokens for a prompt and an answer behind the {len(begin):,} that the "
            f"tokenizer begins a text with, got {length:,}"
        )
    answers = [answer + end for answer in answers]
    longest = max(map(len, answers))
    shown = prompt[-max(1, room - longest) :]
    found = np.zeros((len(TEXTS), len(PARTS), length), np.int32)
    for text, answer in zip(found, answers, strict=True):
        tokens = (begin + shown + answer)[:length]
        first = len(begin) + len(shown) - 1
        text[INPUT_IDS, : len(tokens)] = tokens
        text[LABELS, : len(tokens) - 1] = tokens[1:]
        text[LABELS, :first] = 0
        text[MASK, first : len(tokens) - 1] = 1
    return found.reshape(len(FEATURES), length), len(shown) < len(prompt) or len(begin) + len(shown) + longest > length


@dataclass
class _Work:
    """The making of one data set in a folder that this process alone has."""

    partial: Path
    files: Sequence[SourceFile]
    plan: PreferencePlan
    tokenizer: Tokenizer
    progress: Progress | None
    is_labelled: bool
    _done: int = 0
    """pairs of both parts"""
    _cut: int = 0
    _tokens: int = 0
    _text_bytes: int = 0
    """of the part that is made"""

    def make(self) -> dict[str, Any]:
        """Make all files but the record; return that."""
        places, left_out = self._places()
        parts, sizes = {}, {}
        held_out = places < self._limit(places)
        for part, is_here in (("train", ~held_out), ("val", held_out)):
            count = int(is_here.sum())
            if count:
                (self.partial / part).mkdir(exist_ok=True)
            samples = self._samples(is_here)
            self._cut = self._tokens = self._text_bytes = 0
            for number, first in enumerate(range(0, count, FILE_SAMPLES)):
                name = f"{part}/data_{number:05d}.h5"
                of_file = min(FILE_SAMPLES, count - first)
                length = self.plan.sequence_length
                features = len(FEATURES_OF_LABELLED if self.is_labelled else FEATURES)
                chunks = _chunks(samples, of_file, length, features)
                write_hdf5_text(self.partial / name, chunks, of_file, length, features)
                sizes[name] = (self.partial / name).stat().st_size
            parts[part] = {
                "files": len(self.files),
                "size_bytes": self._text_bytes,
                "samples": count,
                "tokens": self._tokens,
                "cut": self._cut,
            }
        made: dict[str, Any] = {}
        if self.plan.tokenizer != BYTES:
            content = Path(self.plan.tokenizer).read_bytes()
            write_replacing(self.partial / TOKENIZER_FILE, content)
            copy_beside(Path(self.plan.tokenizer), self.partial / TOKENIZER_FILE)
            made["tokenizer"] = described_tokenizer(self.partial / TOKENIZER_FILE, self.plan.tokenizer)
        return {
            "format": FORMAT,
            "sequence_length": self.plan.sequence_length,
            "val_fraction": self.plan.val_fraction,
            "seed": self.plan.seed,
            "texts": list(LabelledDataset.texts if self.is_labelled else TEXTS),
            "left_out": left_out,
            "parts": parts,
            "files": sizes,
            **made,
        }

    def _places(self) -> tuple[Array, int]:
        """Read all lines once; return (n,) a number for each that is a pair, the held-out ones first, and others."""
        places: list[float] = []
        left_out = done_bytes = 0
        for file in self.files:
            for line, texts, _ in _texts_of(file, self.is_labelled):
                if all(texts.values()):
                    places.append(key_of(self.plan.seed, f"held out/{file.name}:{line}")[0] / 2**32)
                else:
                    left_out += 1
            done_bytes += file.size_bytes
            self._tell(done_bytes)
        needed = 2 if self.plan.val_fraction else 1
        if len(places) < needed:
            answers = "its answer" if self.is_labelled else "both answers"
            rule = f"must have at least {needed} lines with a prompt and {answers}"
            hint = _HINT_OF_LABELLED if self.is_labelled else _HINT
            raise DataError(f"{self.files[0].path}: {rule}, got {len(places)}", hint)
        return np.array(places), left_out

    def _limit(self, places: Array) -> float:
        """Return the limit of the places of held-out pairs: the wanted share of all places is below it."""
        if not self.plan.val_fraction:
            return 0.0
        count = min(max(1, round(len(places) * self.plan.val_fraction)), len(places) - 1)
        return float(np.sort(places)[count])

    def _samples(self, is_here: Array) -> Iterator[Array]:
        """Yield the samples of a part, (6, S) int32, or (7, S) with labels, in the order of the lines."""
        all_bytes = sum(file.size_bytes for file in self.files)
        for where, texts, label in self._rows(is_here):
            found, is_cut = pair_of(texts, self.tokenizer, self.plan.sequence_length, where)
            of_answers = found[MASK : MASK + 1] if self.is_labelled else found[MASK :: len(PARTS)]
            self._cut += is_cut
            self._tokens += int(np.count_nonzero(of_answers))
            self._text_bytes += sum(len(text.encode()) for text in texts.values())
            self._done += 1
            self._tell(all_bytes + all_bytes * self._done // len(is_here))
            yield np.concatenate([found, np.full_like(found[:1], label)]) if self.is_labelled else found

    def _rows(self, is_here: Array) -> Iterator[tuple[str, dict[str, str], bool]]:
        """Yield place, texts and label of the lines of a part; beside a single answer the one of the next line."""
        number = 0
        waiting: list[tuple[str, dict[str, str], bool]] = []
        first = ""
        for file in self.files:
            for line, texts, label in _texts_of(file, self.is_labelled):
                if not all(texts.values()):
                    continue
                if is_here[number]:
                    row = f"{file.path}:{line}", texts, label
                    if not self.is_labelled:
                        yield row
                    else:
                        first = first or texts[ANSWER]
                        yield from (_beside(each, texts[ANSWER]) for each in waiting)
                        waiting = [row]
                number += 1
        yield from (_beside(each, first) for each in waiting)

    def _tell(self, done_bytes: int) -> None:
        if self.progress is not None:
            self.progress(done_bytes, 2 * sum(file.size_bytes for file in self.files))


def _beside(row: tuple[str, dict[str, str], bool], other: str) -> tuple[str, dict[str, str], bool]:
    """Return the row of a single answer as a pair with another answer."""
    where, texts, label = row
    return where, dict(zip(KEYS, (texts[PROMPT], texts[ANSWER], other), strict=True)), label


def _is_labelled(files: Sequence[SourceFile]) -> bool:
    """Whether lines have single answers, as the first one says."""
    first = next((found for file in files for _, found in objects_of(file)), {})
    return ANSWER in first and not any(text in first for text in TEXTS)


def _chunks(samples: Iterator[Array], count: int, length: int, features: int) -> Iterator[Array]:
    """Yield `count` samples of S tokens, some at a time, (n, features, S)."""
    most = max(1, _CHUNK_NUMBERS // (features * length))
    for start in range(0, count, most):
        yield np.stack(list(islice(samples, min(most, count - start))))


def _json_lines(sources: Sequence[Path]) -> tuple[SourceFile, ...]:
    """Return the files of JSON Lines among the sources, or raise DataError."""
    for source in sources:
        if source.is_file() and source.suffix.lower() not in (".jsonl", ".ndjson"):
            raise DataError(f"{source}: must be JSON Lines, a file .jsonl or .ndjson, got another", _HINT)
    found = tuple(file for file in find_files(sources) if has_json_lines(file))
    if not found:
        raise DataError(f"{', '.join(map(str, sources))}: must hold files .jsonl or .ndjson, got none", _HINT)
    return found


def _texts_of(file: SourceFile, is_labelled: bool) -> Iterator[tuple[int, dict[str, str], bool]]:
    """Yield number, texts and label of the lines of a file that are not blank.

    Texts of white space alone are empty; a pair has no label, which is false.
    """
    keys, hint = ((PROMPT, ANSWER), _HINT_OF_LABELLED) if is_labelled else (KEYS, _HINT)
    for line, found in objects_of(file):
        for key in keys:
            if not isinstance(text := found.get(key), str):
                got = f"none under {key}" if key not in found else f"something else under {key}"
                raise DataError(f"{file.path}:{line}: must have texts under {', '.join(keys)}, got {got}", hint)
            try:
                text.encode()
            except UnicodeEncodeError:
                rule = f"must have whole characters under {key}, got half of one"
                raise DataError(f"{file.path}:{line}: {rule}") from None
        label = found.get(LABEL)
        if is_labelled and not isinstance(label, bool):
            got = f"none under {LABEL}" if LABEL not in found else f"something else under {LABEL}"
            raise DataError(f"{file.path}:{line}: must have true or false under {LABEL}, got {got}", hint)
        yield line, {key: found[key] if found[key].strip() else "" for key in keys}, bool(is_labelled and label)


def _summary(
    output: Path, record: Mapping[str, Any], duration_s: float, *, already_prepared: bool
) -> PreferenceSummary:
    parts = (record["parts"][name] for name in ("train", "val"))
    train, val = (PreferencePart(part["samples"], part["tokens"], part["cut"]) for part in parts)
    tokenizer = record.get("tokenizer")
    return PreferenceSummary(
        output,
        train,
        val,
        record["left_out"],
        BYTES if tokenizer is None else str(output / tokenizer["file"]),
        256 if tokenizer is None else tokenizer["vocab_size"],
        duration_s,
        already_prepared,
    )
