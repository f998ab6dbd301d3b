"""Names of jobs, their labels and notes: checked so that they lead to no other folder and break no line."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping

from cstool.foundation.errors import CstoolError
from cstool.foundation.words import counted

BEGINNING = "wsjob-"
"""prefix of every name, as on the vendor's appliance"""
_LETTERS, _LENGTH = "abcdefghijklmnopqrstuvwxyz0123456789", 22
_NAME = re.compile(rf"{BEGINNING}[a-z0-9]{{{_LENGTH}}}")
_KEY = re.compile(r"[A-Za-z0-9._-]{1,63}")
MOST_LABELS, LONGEST_VALUE, LONGEST_NOTE = 64, 63, 500
"""labels of a job; characters of a label's value, and of a note"""
_LONGEST_SHOWN = 60


def new_name() -> str:
    """Return a name that no other job has, nor can guess: 22 of 36 characters are more than 113 bits."""
    return BEGINNING + "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def is_name(text: object) -> bool:
    """Say whether this is the name of a job, so the name of a file in a folder, and of no other."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return the name of a job.

    Raises:
        CstoolError: it is none
    """
    if not is_name(text):
        raise _no_name(text)
    return text


def check_beginning(text: str) -> str:
    """Return the name of a job, or a beginning of one.

    Raises:
        CstoolError: no name begins like this
    """
    rest = text.removeprefix(BEGINNING)
    is_short = text and BEGINNING.startswith(text)
    if not is_short and not (rest != text and len(rest) <= _LENGTH and set(rest) <= set(_LETTERS)):
        raise _no_name(text)
    return text


def check_labels(pairs: Iterable[str]) -> dict[str, str]:
    """Return the labels that were typed as KEY=VALUE; a value may be empty.

    Raises:
        CstoolError: one is written in another way, too long, or there twice; or there are too many
    """
    changes = check_label_changes(pairs)
    for key, value in changes.items():
        if value is None:
            raise _no_label(f"{key}-", "KEY=VALUE")
    return check_label_map({key: value for key, value in changes.items() if value is not None})


def check_label_changes(pairs: Iterable[str]) -> dict[str, str | None]:
    """Parse typed changes: KEY=VALUE, which sets a label, and KEY-, which removes it (None).

    Raises:
        CstoolError: one is written in another way, too long, or there twice
    """
    changes: dict[str, str | None] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        removes = not equals and key.endswith("-")
        if not equals and not removes:
            raise _no_label(pair, "KEY=VALUE, or KEY- to remove one")
        key = key[:-1] if removes else key
        _check_key(key)
        if key in changes:
            raise CstoolError(f"label {key}: must be there once, it is there twice")
        changes[key] = None if removes else _check_value(key, value)
    return changes


def check_label_map(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels, key -> value, as a job may have them.

    Raises:
        CstoolError: one is no label; or there are too many
    """
    if len(labels) > MOST_LABELS:
        raise CstoolError(f"labels: a job may have {MOST_LABELS}, got {len(labels)}")
    for key, value in labels.items():
        _check_key(key)
        _check_value(key, value)
    return dict(labels)


def check_note(text: str) -> str:
    """Return a note.

    Raises:
        CstoolError: it is not one line, or too long
    """
    if len(text) > LONGEST_NOTE:
        raise CstoolError(f"note: must have at most {LONGEST_NOTE} characters, it has {len(text):,}")
    if not text.isprintable():
        raise CstoolError(f"note: must be one line of characters that can be seen, got {shortened(text)!r}")
    return text


def shortened(text: str) -> str:
    """Return a text as it may stand in a message: typed text may be long."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _check_key(key: str) -> None:
    if not _KEY.fullmatch(key):
        raise CstoolError(
            f"label {shortened(key)!r}: its name must be 1 to 63 letters, digits, '.', '_' or '-', "
            f"got {counted(len(key), 'character')}"
        )


def _check_value(key: str, value: str) -> str:
    if len(value) > LONGEST_VALUE:
        raise CstoolError(f"label {key}: its value must have at most {LONGEST_VALUE} characters, it has {len(value):,}")
    if not value.isprintable():
        raise CstoolError(f"label {key}: its value must be one line of characters that can be seen, got {value!r}")
    return value


def _no_name(text: str) -> CstoolError:
    return CstoolError(
        f"job {shortened(text)!r}: a job is called {BEGINNING} and {_LENGTH} small letters or digits",
        "cstool job list -a shows all names; the first letters of one suffice",
    )


def _no_label(pair: str, form: str) -> CstoolError:
    return CstoolError(f"label {shortened(pair)!r}: must be {form}")
