"""`cstool finetune`: a trained model learns from conversations; losses and answers before and after."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cstool.foundation.plain_text import lines
from cstool.foundation.terminal.options import JsonOption, argument, flag, option
from cstool.foundation.terminal.render import print_facts, print_json, print_line
from cstool.foundation.terminal.screen import screen_on
from cstool.foundation.words import counted

if TYPE_CHECKING:
    from cstool.cli.verbs.finetune import Finetuned, Prepared
    from cstool.inference.completions import Completion


@dataclass(frozen=True, kw_only=True)
class _FinetuneFlags:
    """The flags, named as the fields of the request."""

    output: Annotated[Path, option("--output -o", "DIR", "Folder of all that is made.")]
    lora: Annotated[str, option("--lora", "rank=R,alpha=A,targets=L,...", "Adapters; see `cstool run --lora`.")] = (
        "rank=16,alpha=32,targets=all"
    )
    full: Annotated[bool, flag("--full", "Train all weights, without adapters.")] = False
    learning_rate: Annotated[
        float | None,
        option("--learning_rate", "X", "Highest learning rate.", show_default="0.0002 for adapters, 0.00002 for all"),
    ] = None
    epochs: Annotated[float, option("--epochs", "N", "Passes over the data.")] = 3.0
    steps: Annotated[int | None, option("--steps", "N", "Steps, in place of epochs.")] = None
    batch_size: Annotated[int, option("--batch_size", "N", "Rows of a step.")] = 8
    sequence_length: Annotated[
        int | None, option("--sequence_length", "N", "Tokens of a row.", show_default="the model's, 512 at most")
    ] = None
    tokenizer: Annotated[
        str | None, option("--tokenizer", "bytes|FILE", "Bytes, or a tokenizers JSON file.", show_default="the base's")
    ] = None
    chat_template: Annotated[
        str | None,
        option("--chat_template", "cstool|plain|FILE", "See `cstool data prepare instruct`."),
    ] = None
    val_fraction: Annotated[float, option("--val_fraction", "X", "Share of held-out conversations.")] = 0.05
    precision: Annotated[Literal["float32", "bfloat16"], flag("--precision", "Operands of products.")] = "float32"
    seed: Annotated[int, option("--seed", "N", "Seed of all random choices.")] = 1
    shown: Annotated[int, option("--shown", "N", "Held-out prompts that are answered before and after.")] = 3
    merged: Annotated[Path | None, option("--merge", "FILE", "Write the model with its adapters folded in.")] = None


def finetune(
    base: Annotated[Path, argument("BASE", "A checkpoint (FILE, DIR:STEP), or a folder of Hugging Face's.")],
    data: Annotated[list[Path], argument("DATA", "Files of conversations, as of `cstool data prepare instruct`.")],
    flags: _FinetuneFlags,
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a model on conversations, and show answers before and after.

    It converts the base, makes a data set, writes DIR/finetune.yaml, trains, and evaluates on held-out conversations.
    The same command goes on where it was stopped. `cstool run --params DIR/finetune.yaml` is the same run.
    """
    from cstool.cli.verbs.finetune import FinetuneRequest, prepare
    from cstool.cli.verbs.finetune import finetune as run

    given: dict[str, Any] = {**vars(flags), "lora": None if flags.full else flags.lora}
    del given["full"]
    request = FinetuneRequest(base, tuple(data), **given)
    stream = sys.stderr if as_json else sys.stdout
    prepared = prepare(request)
    tell = (lambda text: print(text, file=sys.stderr)) if as_json else print_line
    _tell_plan(prepared, tell)
    found = run(request, prepared, lambda: screen_on(stream), tell)
    if as_json:
        print_json(_document(found))
    else:
        _print(found)


def _tell_plan(prepared: Prepared, tell: Any) -> None:
    data, params = prepared.data, prepared.params
    steps = params.loop.max_steps
    tell(f"Base: {prepared.base}, {params.model.name}")
    rows = f"{counted(data.train.conversations, 'conversation')} in {counted(data.train.samples, 'row')}"
    tell(f"Data: {rows} of {data.sequence_length:,} tokens, and {data.val.conversations:,} held out")
    tell(f"Params: {params.path}, {counted(steps or 0, 'step')}")
    tell(f"Needs: {prepared.needs}")


def _print(found: Finetuned) -> None:
    print()
    print_facts(
        {
            "held-out loss": f"{found.before:.4f} before, {found.after:.4f} after [nats a token]",
            "params": str(found.params),
            "checkpoint": str(found.checkpoint),
            **({} if found.merged is None else {"merged": str(found.merged)}),
        }
    )
    pairs = zip(found.prompts, found.answers_before, found.answers_after, strict=True)
    for number, (prompt, before, after) in enumerate(pairs, 1):
        print(f"\n--- held-out prompt {number}\n{lines(prompt).rstrip()}")
        for name, answer in (("before", before), ("after", after)):
            print(f"--- {name}, {_end(answer)}\n{lines(answer.text)}")


def _end(answer: Completion) -> str:
    return f"{counted(len(answer.tokens), 'token')}, ended by {answer.finish_reason}"


def _document(found: Finetuned) -> dict[str, Any]:
    pairs = zip(found.prompts, found.answers_before, found.answers_after, strict=True)
    return {
        "loss_before": found.before,
        "loss_after": found.after,
        "params": found.params,
        "checkpoint": found.checkpoint,
        "merged": found.merged,
        "answers": [{"prompt": prompt, "before": before, "after": after} for prompt, before, after in pairs],
        "run": found.result.as_dict(),
    }
