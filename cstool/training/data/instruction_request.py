"""The plan of a data set of conversations, and the summary of its preparation."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from cstool.foundation.errors import DataError
from cstool.training.data.chat_templates import ChatTemplate, SpecialTokens
from cstool.training.data.conversation_tokens import Truncate
from cstool.training.data.conversations import FormName, Keys
from cstool.training.data.preparation import digest_of, json_digest
from cstool.training.data.sources import SourceFile
from cstool.training.data.text_work import PARTS
from cstool.training.data.tokenizer import BYTE_VALUES, BYTES

Packing = Literal["best_fit", "none"]
LEFT_OUT = {
    "order": "roles out of order",
    "empty": "an empty answer",
    "long": "more tokens than a row has room for",
    "nothing": "nothing to learn",
}
"""kind of a note -> the reason to leave a conversation out"""
FORMAT = 1
_MOST_LENGTH = 2**20


@dataclass(frozen=True)
class InstructionPart:
    """Counts of a part of a data set of conversations.

    Args:
        conversations: in it
        samples: rows of one or more of them
        tokens: that are learned
        places: that tokens take, padding left out
    """

    conversations: int
    samples: int
    tokens: int
    places: int


@dataclass(frozen=True)
class InstructionSummary:
    """The data set that `prepare_instructions` made or found.

    Args:
        forms: of the records, in words
        templates: in words; "" for pairs of texts that are joined
        packing: "best_fit" or "none"
        left_out: reason -> number of conversations, and the place of the first
        notes: kind -> number of other unusual conversations, and the place of the first
        broken: lines left out that are no JSON objects
        unknown: words of the templates that look like special tokens of the tokenizer, which it lacks
        tokenizer: "bytes" or the path of the one in the data set
    """

    path: Path
    train: InstructionPart
    val: InstructionPart
    sequence_length: int
    forms: Sequence[str]
    templates: Sequence[str]
    packing: str
    left_out: Mapping[str, tuple[int, str]]
    notes: Mapping[str, tuple[int, str]]
    broken: int
    unknown: Sequence[str]
    tokenizer: str
    vocab_size: int
    duration_s: float
    already_prepared: bool


@dataclass(frozen=True)
class InstructionPlan:
    """The plan of a data set of conversations.

    Args:
        sequence_length: S, places of a row, from 2 up to 2**20
        tokenizer: "bytes" or a tokenizers JSON file, which is copied into the data set
        chat_template: a file, "cstool" or "plain", see `find_template`; None for the tokenizer's own
        form: of all records; None to find it for each file
        keys: of records
        separator: between prompt and completion, where there is no template
        packing: conversations of a row, as many as fit, or one
        truncate: conversations that are too long, see `ConversationTokens`
        skip_broken: whether lines that are no JSON objects are left out; else they are an error
        val_fraction: share of the conversations that is held out, in [0, 1): at least one, unless it is 0
        seed: of the choice of these
    """

    sequence_length: int
    tokenizer: str = BYTES
    chat_template: str | None = None
    form: FormName | None = None
    keys: Keys = field(default_factory=Keys)
    separator: str = "\n"
    packing: Packing = "best_fit"
    truncate: Truncate = "drop"
    skip_broken: bool = False
    val_fraction: float = 0.05
    seed: int = 1

    def check(self) -> None:
        """Check the values one by one, or raise DataError."""
        if not 2 <= self.sequence_length <= _MOST_LENGTH:
            raise DataError(f"--sequence_length: must be from 2 to {_MOST_LENGTH:,}, got {self.sequence_length:,}")
        if not 0 <= self.val_fraction < 1:
            raise DataError(f"--val_fraction: must be at least 0 and less than 1, got {self.val_fraction}")

    def digest(self, files: Sequence[SourceFile], template: ChatTemplate | None, special: SpecialTokens) -> str:
        """Digest that tells data sets apart: of the records, and all that is asked for, with the content of files."""
        plan = asdict(self)
        plan["tokenizer"] = None if self.tokenizer == BYTES else digest_of(Path(self.tokenizer))
        plan["val_fraction"] = float(self.val_fraction)
        if template is not None:
            plan["chat_template"] = [template.source, template.day]
        text = [(file.name, file.size_bytes, file.digest) for file in files]
        return json_digest(["instructions", FORMAT, plan, dict(special.named), text])


def summary(
    output: Path, record: Mapping[str, Any], duration_s: float, *, already_prepared: bool
) -> InstructionSummary:
    """Summary of a data set, from its record."""
    parts = (record["parts"][name] for name in PARTS)
    train, val = (InstructionPart(part["documents"], part["samples"], part["tokens"], part["places"]) for part in parts)
    tokenizer = record.get("tokenizer")
    notes = {kind: (count, record["first_notes"][kind]) for kind, count in record["notes"].items()}
    return InstructionSummary(
        output,
        train,
        val,
        record["sequence_length"],
        record["forms"],
        record["templates"],
        record["packing"],
        {reason: notes[kind] for kind, reason in LEFT_OUT.items() if kind in notes},
        {kind: note for kind, note in notes.items() if kind not in LEFT_OUT},
        record["broken"],
        record["unknown"],
        BYTES if tokenizer is None else str(output / tokenizer["file"]),
        BYTE_VALUES if tokenizer is None else tokenizer["vocab_size"],
        duration_s,
        already_prepared,
    )
