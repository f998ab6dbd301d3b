"""Prompts as they come: from the command line, from a file, from stdin."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from cstool.errors import InferenceError


def read_prompts(typed: Sequence[str] | None, file: str | None) -> list[str]:
    """Return the prompts that were typed, then those of a file.

    Args:
        typed: texts
        file: with a prompt in each line, or in the key `prompt` of a JSON object in each; "-" is stdin

    Raises:
        InferenceError: there is none, or the file cannot be read
    """
    prompts = list(typed or ())
    if file is not None:
        prompts += _of_file(file)
    if not prompts:
        raise InferenceError(
            "--prompt: must be given for a model that generates text", "or --prompt_file, with a prompt in each line"
        )
    return prompts


def _of_file(file: str) -> list[str]:
    name = "stdin" if file == "-" else file
    try:
        content = _stdin() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError:
        raise InferenceError(f"{name}: must be a file of prompts, found nothing there") from None
    except OSError as error:
        raise InferenceError(f"{name}: must be a readable file, got: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InferenceError(
            f"{name}: must be UTF-8, got the byte 0x{content[error.start]:02x} at {error.start:,}"
        ) from None
    # Only line ends end a line: a form feed, or what Unicode calls a separator, may be part of a prompt.
    every = (line.removesuffix("\r") for line in text.split("\n"))
    lines = [(number, line) for number, line in enumerate(every, start=1) if line.strip()]
    if not lines:
        raise InferenceError(f"{name}: must have a prompt, got {'nothing' if not text else 'only empty lines'}")
    if not file.lower().endswith(".jsonl"):
        return [line for _, line in lines]
    return [_of_object(name, number, line) for number, line in lines]


def _stdin() -> bytes:
    if sys.stdin is None:
        raise InferenceError("stdin: must be open to read prompts from, got a process without one")
    return sys.stdin.buffer.read()


def _of_object(name: str, number: int, line: str) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    prompt = found.get("prompt") if isinstance(found, dict) else None
    if not isinstance(prompt, str):
        raise InferenceError(f'{name}:{number}: must be a JSON object with a text under "prompt", got {line[:60]}')
    return prompt
