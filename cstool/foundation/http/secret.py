"""Secrets that a client shows: a token in a file, and in a header."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path

from cstool.foundation.errors import CstoolError

_LEAST, _MOST = 16, 4096


def read_token(file: Path, purpose: str = "a token for the page") -> bytes:
    """Return the token in a file: one line, which only this user may read.

    Args:
        purpose: as a message names it

    Raises:
        CstoolError: the file is not there, others may read it, or its content is no token
    """
    rule = f"{file}: must have {purpose}"
    hint = f"(umask 077; python -c 'import secrets; print(secrets.token_urlsafe())' > {file}) makes one"
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise CstoolError(f"{rule}, got: {error.strerror}", hint) from None
    entry = os.fstat(descriptor)
    if not stat.S_ISREG(entry.st_mode):
        os.close(descriptor)
        raise CstoolError(f"{rule}, is no file", hint)
    with open(descriptor, "rb") as stream:
        if entry.st_uid != os.geteuid():
            raise CstoolError(f"{file}: must belong to {user_name(os.geteuid())}, is of {user_name(entry.st_uid)}")
        if stat.S_IMODE(entry.st_mode) & 0o077:
            raise CstoolError(
                f"{file}: nobody else may read it, got mode {stat.S_IMODE(entry.st_mode):04o}", f"chmod 600 {file}"
            )
        token = stream.read(_MOST + 1).strip()
    if not is_token(token):
        raise CstoolError(
            f"{rule}, which is {_LEAST} to {_MOST} letters, digits or marks on one line, has other content", hint
        )
    return token


def is_token(token: bytes) -> bool:
    """Say whether bytes are a token: long enough, printable, without white space."""
    return _LEAST <= len(token) <= _MOST and all(33 <= byte <= 126 for byte in token)


def shown_token(headers: Mapping[str, str]) -> bytes:
    """Return the token that a request shows in its header Authorization; empty where it shows none.

    Args:
        headers: by name in lower case
    """
    scheme, _, shown = headers.get("authorization", "").partition(" ")
    return shown.strip().encode("latin-1", "replace") if scheme.lower() == "bearer" else b""


def user_name(user_id: int) -> str:
    """Return the name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
