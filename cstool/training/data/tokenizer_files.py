"""The files of a tokenizer beside its tokenizers JSON file: a configuration, and a chat template.

Beside `tokenizer.json` they have the names of the package transformers; beside `a.tokenizer.json`, which belongs to the
checkpoint `a.mdl`, an `a.` before these.
"""

import json
from pathlib import Path
from typing import Any

from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.errors import DataError

TOKENIZER_FILE, CONFIG_FILE, TEMPLATE_FILE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"


def file_beside(tokenizer: Path, name: str) -> Path:
    """Path of another file of a tokenizer.

    >>> print(file_beside(Path("a.tokenizer.json"), CONFIG_FILE), file_beside(Path("words.json"), CONFIG_FILE))
    a.tokenizer_config.json tokenizer_config.json
    """
    own = tokenizer.name
    return tokenizer.with_name(f"{own.removesuffix(TOKENIZER_FILE) if own.endswith(TOKENIZER_FILE) else ''}{name}")


def files_beside(tokenizer: Path) -> dict[str, Path]:
    """The other files of a tokenizer that are there, by their names beside `tokenizer.json`."""
    found = {name: file_beside(tokenizer, name) for name in (CONFIG_FILE, TEMPLATE_FILE)}
    return {name: path for name, path in found.items() if path.is_file()}


def copy_beside(source: Path, target: Path) -> None:
    """Copy the other files of one tokenizer to their places beside another, or raise OSError."""
    for name, path in files_beside(source).items():
        write_replacing(file_beside(target, name), path.read_bytes())


def config_beside(tokenizer: Path) -> dict[str, Any]:
    """Return the configuration of a tokenizer, {} where there is none.

    Raises:
        DataError: it is damaged
    """
    path = file_beside(tokenizer, CONFIG_FILE)
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(f"{path}: must be a JSON object, got something else")
    return found


def text_of(token: Any) -> str | None:
    """Text of a special token in a configuration, where it is a text or an object; None for anything else."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
