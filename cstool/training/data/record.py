"""`prepared.json`, the record of the making of a data set: checked when it is read, since it may come from anywhere."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from cstool.foundation.atomic_file import is_inner_name
from cstool.foundation.errors import DataError, ParamsError
from cstool.foundation.yaml_lines.document import Document
from cstool.foundation.yaml_lines.problems import Problems
from cstool.foundation.yaml_lines.section import Section, rule_error

RECORD = "prepared.json"
"""the record of its making, in the folder of a data set"""
_HINT = "prepare the data set anew; without the record its files are read as anybody's"


def _check_names(entries: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in entries:
        _check_name(name)
    return entries


def _check_parts(parts: Mapping[str, Any]) -> Mapping[str, Any]:
    if not {"train", "val"} <= parts.keys():
        raise rule_error("must have train and val")
    return _check_names(parts)


def _check_name(name: str) -> str:
    if not is_inner_name(name):
        raise rule_error(f"must stay in the folder of the record, {name!r:.60} does not")
    return name


_Size = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Name = Annotated[str, AfterValidator(_check_name)]


class _Section(Section):
    # A later version may say more; that is for its own readers.
    model_config = ConfigDict(extra="ignore")


class _Part(_Section):
    samples: _Size


class _TextPart(_Part):
    files: _Size
    size_bytes: _Size
    tokens: _Size
    documents: _Size | None = None


class _Tokenizer(_Section):
    file: _Name
    made_from: str
    vocab_size: Annotated[int, Field(ge=1, le=2**31)]
    digest: str


class _Record(_Section):
    digest: str
    files: Annotated[dict[str, _Size], AfterValidator(_check_names)]
    parts: Annotated[dict[str, _Part], AfterValidator(_check_names)]
    source: str | None = None


class _TextRecord(_Section):
    digest: str
    files: Annotated[dict[str, _Size], AfterValidator(_check_names)]
    parts: Annotated[dict[str, _TextPart], AfterValidator(_check_parts)]
    sequence_length: Annotated[int, Field(ge=2, le=2**31 - 1)]
    sources: list[str] = []
    packing: str = "stream"
    shuffle_seed: int | None = None
    unknown_characters: _Size = 0
    tokenizer: _Tokenizer | None = None
    jsonl_keys: list[str] = []
    csv_column: str | None = None
    other_files: dict[str, _Size] = {}
    begins_texts: bool = False


class _MaskedTextRecord(_TextRecord):
    has_pairs: bool
    do_lower: bool = False


class _Spans(_Section):
    tokens: Annotated[int, Field(ge=1, le=2**31 - 1)]
    target_length: Annotated[int, Field(ge=1, le=2**31 - 1)]
    sentinels: _Size


class _SpanTextRecord(_TextRecord):
    spans: _Spans


class _PreprocessedPart(_TextPart):
    places: _Size


class _PreprocessedRecord(_TextRecord):
    mode: Literal["pretraining", "finetuning", "dpo", "nlg"]
    hook: str
    template: str
    is_flat: bool
    notes: dict[str, _Size]
    first_notes: dict[str, str]
    broken: _Size
    parts: Annotated[dict[str, _PreprocessedPart], AfterValidator(_check_parts)]  # type: ignore[assignment]


class _PreferencePart(_TextPart):
    cut: _Size


class _PreferenceRecord(_TextRecord):
    texts: list[str]
    left_out: _Size
    parts: Annotated[dict[str, _PreferencePart], AfterValidator(_check_parts)]  # type: ignore[assignment]


class _InstructionPart(_TextPart):
    places: _Size


class _InstructionRecord(_TextRecord):
    forms: list[str]
    templates: list[str]
    notes: dict[str, _Size]
    first_notes: dict[str, str]
    broken: _Size
    unknown: list[str]
    parts: Annotated[dict[str, _InstructionPart], AfterValidator(_check_parts)]  # type: ignore[assignment]


def read_record(folder: Path) -> dict[str, Any] | None:
    """Read the record of the making of a data set in a folder; None if there is none, or another program's.

    Keys that are null, or of a later version, are left out. A record of this program with a fault raises DataError.
    """
    path = folder / RECORD
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else "null"
        record = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not {"digest", "files", "parts"} <= record.keys():
        return None
    problems = Problems(Document(str(path), text, record), folder)
    kind: type[_Section] = _TextRecord if "sequence_length" in record else _Record
    kinds: dict[str, type[_Section]] = {
        "has_pairs": _MaskedTextRecord,
        "spans": _SpanTextRecord,
        "texts": _PreferenceRecord,
        "forms": _InstructionRecord,
        "hook": _PreprocessedRecord,
    }
    kind = next((found for key, found in kinds.items() if key in record), kind)
    checked = problems.check(kind, record, ())
    try:
        problems.raise_found()
    except ParamsError as error:
        raise DataError(error.problems[0][0], _HINT) from None
    return None if checked is None else checked.model_dump(exclude_unset=True, exclude_none=True)
