"""The flags of `cstool run --mode infer`, and what they ask for."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from cstool.errors import InferenceError

NOT_FOR_INFERENCE = (
    *("artifact", "compile_dir", "compile_only", "execution_mode", "load_checkpoint_states", "max_steps", "num_steps"),
    *("recompute", "sparse_kernels", "system", "trace", "validate_only"),
)
"""flags of the other modes, which would change nothing here"""

PromptOption = Annotated[
    list[str] | None, typer.Option("--prompt", metavar="TEXT", help="infer: go on from this text; may be repeated.")
]
PromptFileOption = Annotated[
    str | None,
    typer.Option(
        "--prompt_file",
        metavar="FILE",
        help="infer: a prompt per line, or per object with a key prompt if it ends in .jsonl; - for stdin.",
    ),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option("--max_tokens", metavar="N", help="infer: tokens after each prompt, 128 if not said."),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option("--temperature", metavar="T", help="infer: 0 takes the likeliest token; 1 if not said."),
]
TopKOption = Annotated[
    int | None, typer.Option("--top_k", metavar="K", help="infer: draw from the K likeliest tokens only.")
]
TopPOption = Annotated[
    float | None,
    typer.Option("--top_p", metavar="P", help="infer: draw from the likeliest tokens, of probability P together."),
]
StopOption = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="infer: end at this text; may be repeated.")
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="bytes|FILE",
        help="infer: what turns text into tokens, if not what the data set was made with.",
        show_default=False,
    ),
]
TruncatePromptOption = Annotated[
    bool | None,
    typer.Option(
        "--truncate_prompt", help="infer: go on from the end of a prompt that is too long.", show_default=False
    ),
]
NoCacheOption = Annotated[
    bool | None,
    typer.Option(
        "--no_kv_cache", help="infer: compute every token again for each that follows. Same tokens.", show_default=False
    ),
]
NoSpecialTokensOption = Annotated[
    bool | None,
    typer.Option(
        "--no_special_tokens",
        help="infer: leave out what the tokenizer's template puts before a prompt, such as <s>.",
        show_default=False,
    ),
]
BatchSizeOption = Annotated[
    int | None,
    typer.Option("--batch_size", metavar="N", help="infer: prompts answered together. Same tokens for any number."),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FILE", help="infer: predicted classes go here, .csv or .h5; text goes here as .jsonl."
    ),
]


@dataclass(frozen=True)
class InferFlags:
    """The flags as typed; None where they were not."""

    prompt: list[str] | None = None
    prompt_file: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    stop: list[str] | None = None
    tokenizer: str | None = None
    truncate_prompt: bool | None = None
    no_kv_cache: bool | None = None
    no_special_tokens: bool | None = None
    batch_size: int | None = None
    output: Path | None = None

    @property
    def typed(self) -> list[str]:
        """The flags that were typed."""
        return [f"--{field.name}" for field in fields(self) if getattr(self, field.name) is not None]

    @staticmethod
    def check_others(context: typer.Context) -> None:
        """Check that no flag was typed that only other modes have a use for.

        Raises:
            InferenceError: one was
        """
        for name in NOT_FOR_INFERENCE:
            source = context.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                raise InferenceError(f"--{name}: must go with a mode that trains or evaluates, got --mode infer")

    def check_mode(self, mode: str) -> None:
        """Check that none was typed where nothing is inferred.

        Raises:
            InferenceError: one was
        """
        if self.typed:
            raise InferenceError(f"{self.typed[0]}: must go with --mode infer, got --mode {mode}")

    def request(self) -> dict[str, Any]:
        """What is asked for, as arguments of `plan_text`; prompts in a file are read.

        Raises:
            InferenceError: there are no prompts, or they cannot be read
        """
        from cstool.cli.prompts import read_prompts

        same = ("max_tokens", "temperature", "top_k", "top_p", "tokenizer", "batch_size")
        return {
            **{name: getattr(self, name) for name in same},
            "prompts": read_prompts(self.prompt, self.prompt_file),
            "stops": tuple(self.stop or ()),
            "truncates": bool(self.truncate_prompt),
            "uses_cache": not self.no_kv_cache,
            "special_tokens": not self.no_special_tokens,
        }
