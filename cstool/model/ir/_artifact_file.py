"""The artifact as a file: one JSON document, the same bytes for the same artifact."""

import json
import math
import os
from pathlib import Path
from typing import Any

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import ArtifactError
from cstool.model.ir._artifact import SCHEMA, Artifact
from cstool.model.ir._plain_data import PlainDataError, from_plain, plain_data, plain_digest
from cstool.model.ir._verify_artifact import verify_artifact

LINE_COLUMNS = 120
_AGAIN = "compile again"


def artifact_text(artifact: Artifact) -> str:
    """Return an artifact as JSON: keys sorted, short values on one line, `digest` over everything else inside.

    Raises:
        ValueError: a number in it is NaN
    """
    plain = plain_data(artifact)
    text = _json_text({**plain, "digest": plain_digest(plain)}) + "\n"
    # Half of a surrogate pair is no character; escaped as Python does it, it is valid JSON.
    return text.encode(errors="backslashreplace").decode()


def artifact_digest(artifact: Artifact) -> str:
    """Return the sha256 of all of an artifact, as its file states it."""
    return plain_digest(plain_data(artifact))


def write_artifact(artifact: Artifact, path: str | os.PathLike[str]) -> None:
    """Write an artifact, replacing a file of that name in one go.

    Args:
        artifact: to write
        path: of a .json file

    Raises:
        ArtifactError: it cannot be written; an existing file stays as it was
    """
    # The target of a link is written. A path that is no file (a device, say) must not be replaced by one.
    target = os.path.realpath(path)
    if os.path.exists(target) and not os.path.isfile(target):
        raise ArtifactError(f"{path}: must be a file that can be written, got what is no file")
    try:
        write_replacing(Path(target), artifact_text(artifact))
    except OSError as error:
        raise ArtifactError(f"{path}: must be a file that can be written, got: {error.strerror}") from error


def read_artifact(path: str | os.PathLike[str]) -> Artifact:
    """Read an artifact and check that it is whole, unchanged and legal.

    Args:
        path: of a file that `cstool compile` or `write_artifact` made

    Raises:
        ArtifactError: it is not
    """
    plain = _read_json(Path(path))
    if not isinstance(plain, dict) or "schema" not in plain:
        raise ArtifactError(f"{path}: must be an artifact, got other JSON", "`cstool compile` writes artifacts")
    if plain["schema"] != SCHEMA:
        made_by = f", written by cstool {plain['cstool']!s:.20}" if "cstool" in plain else ""
        raise ArtifactError(f"{path}: must have schema {SCHEMA}, got {plain['schema']!s:.20}{made_by}", _AGAIN)
    stated = plain.pop("digest", None)
    if stated != (found := plain_digest(plain)):
        raise ArtifactError(
            f"{path}: must be as it was written (digest {str(stated)[:8]}), got other content (digest {found[:8]})",
            f"artifacts cannot be edited: change the params and {_AGAIN}",
        )
    try:
        artifact: Artifact = from_plain(plain, Artifact)
        verify_artifact(artifact)
    except PlainDataError as error:
        raise ArtifactError(f"{path}: {error}", _AGAIN) from error
    except ValueError as error:
        raise ArtifactError(f"{path}: must be a legal artifact, got: {error}", _AGAIN) from error
    except RecursionError as error:
        raise ArtifactError(f"{path}: must be a legal artifact, got: a nesting that cannot be", _AGAIN) from error
    return artifact


def _read_json(path: Path) -> Any:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ArtifactError(
            f"{path}: must be an artifact that can be read, got: {error.strerror}", "`cstool compile` writes artifacts"
        ) from error
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        got = f"{error.msg} (line {error.lineno})"
    except (ValueError, RecursionError):
        got = "a number or a nesting that cannot be"
    raise ArtifactError(f"{path}: must be a JSON document, got: {got}", f"it is cut short or damaged: {_AGAIN}")


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _finite(text: str) -> float:
    return value if math.isfinite(value := float(text)) else _refuse(text)


def _json_text(value: Any, column: int = 0, indent: int = 0) -> str:
    """Return JSON with each list or object on one line where that fits, numbers of a long list side by side.

    Args:
        column: at which it begins
        indent: of its line
    """
    flat = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, dict | list) or column + len(flat) < LINE_COLUMNS:
        return flat
    inner = indent + 1
    if isinstance(value, dict):
        keys = {key: f"{json.dumps(key, ensure_ascii=False)}: " for key in sorted(value)}
        parts = [text + _json_text(value[key], inner + len(text), inner) for key, text in keys.items()]
        opening, closing = "{}"
    else:
        parts = [_json_text(item, inner, inner) for item in value]
        opening, closing = "[]"
        if not any(isinstance(item, dict | list | str) for item in value):
            parts = _filled(parts, LINE_COLUMNS - inner)
    separator = ",\n" + " " * inner
    return f"{opening}\n{' ' * inner}{separator.join(parts)}\n{' ' * indent}{closing}"


def _filled(parts: list[str], columns: int) -> list[str]:
    """Put short texts side by side, comma after comma, in lines of limited width."""
    lines = [parts[0]]
    for part in parts[1:]:
        longer = f"{lines[-1]}, {part}"
        if len(longer) < columns:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines
