"""`cstool run --mode infer`: text that goes on from prompts, shown as it comes, or the classes of a data set."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.errors import InferenceError, Interrupted
from cstool.foundation.terminal.render import print_json
from cstool.foundation.terminal.screen import screen_on
from cstool.inference.commands.infer_flags import InferFlags
from cstool.inference.commands.report import show_answers, show_texts, shown_pieces
from cstool.inference.verbs.answer import (
    TextPlan,
    answer_until_stopped,
    check_answers,
    check_output,
    generates_text,
    keep_weights,
    open_logged,
    plan_text,
    predict,
    write_answers,
)
from cstool.inference.verbs.asking import (
    EncoderPlan,
    ask_until_stopped,
    fills_in,
    is_encoder,
    plan_texts,
)

if TYPE_CHECKING:
    from cstool.model.params import Params
    from cstool.training.machine.ranks.link import Link

_TEXT_FLAGS = set(InferFlags.__dataclass_fields__) - {"batch_size", "output"}
_ENCODER_FLAGS = {"pair", "embed"}
_DECODER_FLAGS = {"max_tokens", "temperature", "top_p", "num_beams", "length_penalty", "stop", "no_kv_cache", "adapter"}


def infer(
    params: Params,
    flags: InferFlags,
    *,
    checkpoint_path: Path | None,
    lanes: int | None,
    as_json: bool,
    link: Link,
    executor: str = "table",
    precision: str | None = None,
) -> None:
    """Answer, and show it; at another rank than rank 0, help it to.

    Args:
        params: of the run that trained the model
        flags: prompts and options
        checkpoint_path: None for the latest state in model_dir
        lanes: host threads; None to choose
        as_json: print one document on stdout
        link: to other ranks
        executor: "table" or "python": who calls the kernels
        precision: of the weights of products; None for that of the params

    Raises:
        ToldElsewhere: it is over, and this is not rank 0
        CstoolError: any error that the user can act on
    """
    if link.rank > 0:
        keep_weights(params, lanes=lanes, link=link)
    trained, params = params, params.answering
    # Errors in a prompt are reported before anything is read.
    plan = _plan(params, flags)
    # The text is on stdout, alone, so that it can go on through a pipe.
    with (
        screen_on(sys.stderr) as screen,
        open_logged(
            trained,
            screen,
            checkpoint_path=checkpoint_path,
            lanes=lanes,
            link=link,
            executor=executor,
            adapters=flags.adapter or (),
            precision=precision,
        ) as model,
    ):
        document: dict[str, Any] = {
            "mode": "infer",
            "model": params.model.name,
            "parameters": model.graph.parameter_count,
            "step": model.step,
        }
        text, signal_name, made = None if as_json else screen.text, None, ""
        if isinstance(plan, TextPlan):
            shown = text if len(model.adapters) < 2 else None
            answers, signal_name = answer_until_stopped(model, plan, show=shown_pieces(plan, shown), link=link)
            document |= answers.as_dict()
            show_texts(answers, text)
            if flags.output is not None:
                write_answers(flags.output, answers.completions)
            made = f"{answers.speed.tokens} tokens"
        elif isinstance(plan, EncoderPlan):
            found, signal_name = ask_until_stopped(model, plan, link=link)
            document |= found.as_dict()
            show_answers(found, text if flags.output is None else None)
            if flags.output is not None:
                write_answers(flags.output, found.answers, found.embeddings)
            made = f"{found.speed.texts} texts"
        else:
            predictions = predict(model, flags.output, batch_size=flags.batch_size, progress=screen.progress)
            document |= predictions.as_dict()
        if as_json:
            print_json(document)
        if signal_name is not None:
            raise Interrupted(f"stopped by {signal_name} after {made}")


def _plan(params: Params, flags: InferFlags) -> TextPlan | EncoderPlan | None:
    """Check the flags, and the prompts; None for a model that classifies a data set."""
    if is_encoder(params):
        _refuse(flags, _DECODER_FLAGS, "a model that generates text", params)
        question = flags.question()
        check_output(flags.output, (".jsonl", ".npy") if flags.embed else (".jsonl",), "--output")
        if flags.top_k is not None and (flags.embed or not fills_in(params)):
            got = flags.embed or params.model.name
            raise InferenceError(f"--top_k: must be for tokens that are filled in, got {got}")
        return plan_texts(params, **question)
    if generates_text(params):
        _refuse(flags, _ENCODER_FLAGS, "an encoder", params)
        request = flags.request()
        check_output(flags.output, (".jsonl",), "--output")
        return plan_text(params, **request)
    check_answers(params)
    _refuse(flags, _TEXT_FLAGS, "a model that generates text", params)
    check_output(flags.output, (".csv", ".h5"), "--output")
    return None


def _refuse(flags: InferFlags, others: Collection[str], kind: str, params: Params) -> None:
    """Raise InferenceError if a flag was typed that is for another kind of model."""
    for name in flags.typed:
        if name.removeprefix("--") in others:
            raise InferenceError(f"{name}: must be for {kind}, got {params.model.name}")
