"""The flags of `cstool run --mode infer`, their requests, and prompts from the command line, a file, or stdin."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cstool.foundation.errors import InferenceError
from cstool.foundation.terminal.options import flag, is_typed, option

NOT_FOR_INFERENCE = (
    *("artifact", "compile_dir", "compile_only", "execution_mode", "load_checkpoint_states", "max_steps", "num_steps"),
    *("recompute", "sparse_kernels", "system", "trace", "validate_only", "max_restarts"),
    *("nodes", "partition", "time", "sbatch"),
)
"""flags of the other modes, which would change nothing here"""


@dataclass(frozen=True)
class InferFlags:
    """The flags as typed; None where they were not."""

    prompt: Annotated[list[str] | None, option("--prompt", "TEXT", "infer: go on from this text; may be repeated.")] = (
        None
    )
    prompt_file: Annotated[
        str | None,
        option(
            "--prompt_file",
            "FILE",
            "infer: file with a prompt per line; of .jsonl, the key prompt of each object; - for stdin.",
        ),
    ] = None
    max_tokens: Annotated[
        int | None, option("--max_tokens", "N", "infer: number of new tokens per prompt, 128 if not given.")
    ] = None
    temperature: Annotated[
        float | None,
        option("--temperature", "T", "infer: temperature of sampling; 0 takes the likeliest token; 1 if not given."),
    ] = None
    top_k: Annotated[
        int | None,
        option(
            "--top_k", "K", "infer: draw from the K likeliest tokens only; of an encoder, number of tokens for a mask."
        ),
    ] = None
    top_p: Annotated[
        float | None, option("--top_p", "P", "infer: draw from the likeliest tokens, up to a total probability of P.")
    ] = None
    num_beams: Annotated[
        int | None,
        option(
            "--num_beams", "N", "infer: search the likeliest text with N hypotheses (beam search), in place of drawing."
        ),
    ] = None
    length_penalty: Annotated[
        float | None,
        option(
            "--length_penalty",
            "A",
            "infer: with --num_beams: log probabilities are divided by the length to this power; 1 if not given.",
        ),
    ] = None
    stop: Annotated[list[str] | None, option("--stop", "TEXT", "infer: end at this text; may be repeated.")] = None
    tokenizer: Annotated[
        str | None,
        option("--tokenizer", "bytes|FILE", "infer: tokenizer; if not given, the one of the data set."),
    ] = None
    truncate_prompt: Annotated[
        bool | None, flag("--truncate_prompt", "infer: go on from the end of a prompt that is too long.")
    ] = None
    no_kv_cache: Annotated[
        bool | None, flag("--no_kv_cache", "infer: compute all earlier tokens again for each new one. Same tokens.")
    ] = None
    special_tokens: Annotated[
        bool | None,
        flag(
            "--special_tokens/--no_special_tokens",
            "infer: begin a prompt with the special tokens of the tokenizer's template, such as <s>, or not.",
            show_default="as in the data set",
        ),
    ] = None
    batch_size: Annotated[
        int | None, option("--batch_size", "N", "infer: prompts answered together. Same tokens for any number.")
    ] = None
    pair: Annotated[
        list[str] | None,
        option(
            "--pair", "TEXT", "infer: second text of an encoder, one per prompt, in the same order; may be repeated."
        ),
    ] = None
    embed: Annotated[
        Literal["mean", "first", "pooled", "question", "context"] | None,
        flag(
            "--embed",
            "infer: vectors of texts from an encoder: mean of all tokens, the first token, or its pooled output; of "
            "DPR, vectors of questions or of contexts.",
        ),
    ] = None
    adapter: Annotated[
        list[Path] | None,
        option(
            "--adapter",
            "FILE",
            "infer: answer with adapters beside --checkpoint_path, or else their own base; if repeated, with each.",
        ),
    ] = None
    output: Annotated[
        Path | None,
        option(
            "--output",
            "FILE",
            "infer: file of predicted classes, .csv or .h5; of texts and encoder answers, .jsonl; of vectors, .npy.",
        ),
    ] = None

    @property
    def typed(self) -> list[str]:
        """The flags that were typed."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [f"--{'no_' if value is False else ''}{name}" for name, value in given if value is not None]

    @staticmethod
    def check_others(context: typer.Context) -> None:
        """Check that no flag was typed that only other modes have a use for.

        Raises:
            InferenceError: one was
        """
        for name in NOT_FOR_INFERENCE:
            if is_typed(context, name):
                raise InferenceError(f"--{name}: must go with a mode that trains or evaluates, got --mode infer")

    def check_mode(self, mode: str) -> None:
        """Check that none was typed where nothing is inferred.

        Raises:
            InferenceError: one was
        """
        if self.typed:
            raise InferenceError(f"{self.typed[0]}: must go with --mode infer, got --mode {mode}")

    def request(self) -> dict[str, Any]:
        """The request as arguments of `plan_text`; prompts in a file are read.

        Raises:
            InferenceError: there are no prompts, or they cannot be read
        """
        same = "max_tokens temperature top_k top_p length_penalty tokenizer special_tokens batch_size".split()
        return {
            **{name: getattr(self, name) for name in same},
            "prompts": [prompt for prompt, _ in _read_prompts(self.prompt or (), (), self.prompt_file)],
            "num_beams": 1 if self.num_beams is None else self.num_beams,
            "stops": tuple(self.stop or ()),
            "truncates": bool(self.truncate_prompt),
            "uses_cache": not self.no_kv_cache,
        }

    def question(self) -> dict[str, Any]:
        """The request to an encoder as arguments of `plan_texts`; prompts in a file are read.

        Raises:
            InferenceError: there are no prompts, or they cannot be read, or they do not fit the pairs
        """
        prompts = _read_prompts(self.prompt or (), self.pair or (), self.prompt_file, "an encoder")
        pairs = tuple(pair for _, pair in prompts)
        return {
            **{name: getattr(self, name) for name in ("embed", "top_k", "tokenizer", "batch_size")},
            "prompts": [prompt for prompt, _ in prompts],
            "pairs": pairs if any(pair is not None for pair in pairs) else (),
            "truncates": bool(self.truncate_prompt),
            "special_tokens": self.special_tokens is not False,
        }


_Prompt = tuple[str, str | None]
"""a prompt, and the text that comes second"""


def _read_prompts(
    typed: Sequence[str], pairs: Sequence[str], file: str | None, kind: str = "a model that generates text"
) -> list[_Prompt]:
    """Return the prompts that were typed, then the prompts of a file, from its lines or JSON objects; "-" is stdin."""
    if pairs and len(pairs) != len(typed):
        raise InferenceError(f"--pair: must be given as often as --prompt ({len(typed)}), got {len(pairs)}")
    seconds: Sequence[str | None] = pairs or [None] * len(typed)
    prompts = [*zip(typed, seconds, strict=True), *(() if file is None else _of_file(file))]
    if not prompts:
        raise InferenceError(f"--prompt: must be given for {kind}", "or --prompt_file, with a prompt in each line")
    return prompts


def _of_file(file: str) -> list[_Prompt]:
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
    # Only line ends end a line: a form feed, or a separator of Unicode, may be part of a prompt. Where files
    # were joined, the mark of their encoding begins a line in the middle.
    every = (line.removesuffix("\r").removeprefix("\ufeff") for line in text.split("\n"))
    lines = [(number, line) for number, line in enumerate(every, start=1) if line.strip()]
    if not lines:
        raise InferenceError(f"{name}: must have a prompt, got {'nothing' if not text else 'only empty lines'}")
    if not file.lower().endswith(".jsonl"):
        return [(line, None) for _, line in lines]
    return [_of_object(name, number, line) for number, line in lines]


def _stdin() -> bytes:
    if sys.stdin is None:
        raise InferenceError("stdin: must be open to read prompts from, got a process without one")
    return sys.stdin.buffer.read()


def _of_object(name: str, number: int, line: str) -> _Prompt:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    prompt = found.get("prompt") if isinstance(found, dict) else None
    if not isinstance(prompt, str):
        raise InferenceError(f'{name}:{number}: must be a JSON object with a text under "prompt", got {line[:60]}')
    pair = found.get("pair")
    if not isinstance(pair, str | None):
        raise InferenceError(f'{name}:{number}: must have a text under "pair", or nothing, got {line[:60]}')
    return prompt, pair
