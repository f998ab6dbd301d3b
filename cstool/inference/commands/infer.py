"""`cstool run --mode infer`: text that goes on from prompts, shown as it comes, or the classes of a data set."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.errors import InferenceError, Interrupted
from cstool.foundation.terminal.render import print_json
from cstool.foundation.terminal.screen import TextOutput, screen_on
from cstool.foundation.words import bytes_text, counted
from cstool.inference.commands.encoder_report import show_answers
from cstool.inference.commands.infer_flags import InferFlags
from cstool.inference.verbs.answer import (
    TextPlan,
    answer_until_stopped,
    check_answers,
    check_output,
    generates_text,
    goes_on,
    keep_weights,
    open_logged,
    plan_text,
    predict,
    write_completions,
)
from cstool.inference.verbs.asking import (
    EncoderPlan,
    ask_until_stopped,
    fills_in,
    is_encoder,
    plan_texts,
    write_answers,
)

if TYPE_CHECKING:
    from cstool.inference.completions import Answers, Completion
    from cstool.inference.model import InferenceModel
    from cstool.model.params import Params
    from cstool.training.machine.ranks.link import Link

_TEXT_FLAGS = set(InferFlags.__dataclass_fields__) - {"batch_size", "output"}
_ENCODER_FLAGS = {"pair", "embed"}
_DECODER_FLAGS = {"max_tokens", "temperature", "top_p", "num_beams", "length_penalty", "stop", "no_kv_cache"}


def infer(
    params: Params, flags: InferFlags, *, checkpoint_path: Path | None, lanes: int | None, as_json: bool, link: Link
) -> None:
    """Answer, and show it; at another rank than rank 0, help it to.

    Args:
        params: of the run that trained the model
        flags: prompts and options
        checkpoint_path: None for the latest state in model_dir
        lanes: host threads; None to choose
        as_json: print one document on stdout
        link: to other ranks

    Raises:
        ToldElsewhere: it is over, and this is not rank 0
        CstoolError: any error that the user can act on
    """
    if link.rank > 0:
        keep_weights(params, lanes=lanes, link=link)
    trained, params = params, params.answering
    plan: TextPlan | None = None
    asked: EncoderPlan | None = None
    if is_encoder(params):
        asked = _plan_encoder(params, flags)
    elif generates_text(params):
        _refuse(flags, _ENCODER_FLAGS, "an encoder", params)
        request = flags.request()
        check_output(flags.output, (".jsonl",), "--output")
        # Errors in a prompt are reported before anything is read.
        plan = plan_text(params, **request)
    else:
        check_answers(params)
        _refuse(flags, _TEXT_FLAGS, "a model that generates text", params)
        check_output(flags.output, (".csv", ".h5"), "--output")
    # The text is on stdout, alone, so that it can go on through a pipe.
    with (
        screen_on(sys.stderr) as screen,
        open_logged(trained, screen, checkpoint_path=checkpoint_path, lanes=lanes, link=link) as model,
    ):
        document: dict[str, Any] = {
            "mode": "infer",
            "model": params.model.name,
            "parameters": model.graph.parameter_count,
            "step": model.step,
        }
        signal_name = None
        if plan is not None:
            answers, signal_name = _answer(model, plan, link, text=None if as_json else screen.text)
            document |= answers.as_dict()
            if flags.output is not None:
                write_completions(flags.output, answers.completions)
            made = answers.speed.tokens, "token"
        elif asked is not None:
            found_answers, signal_name = ask_until_stopped(model, asked, link=link)
            document |= found_answers.as_dict()
            show_answers(found_answers, None if as_json else screen.text, flags.output)
            if flags.output is not None:
                write_answers(flags.output, found_answers)
            made = found_answers.speed.texts, "text"
        else:
            found = predict(model, flags.output, batch_size=flags.batch_size, progress=screen.progress)
            document |= found.as_dict()
        if as_json:
            print_json(document)
        if signal_name is not None:
            raise Interrupted(f"stopped by {signal_name} after {made[0]} {made[1]}s")


def _plan_encoder(params: Params, flags: InferFlags) -> EncoderPlan:
    """Check a request to an encoder; errors of prompts are reported before anything is read."""
    _refuse(flags, _DECODER_FLAGS, "a model that generates text", params)
    question = flags.question()
    check_output(flags.output, (".jsonl", ".npy") if flags.embed else (".jsonl",), "--output")
    if flags.top_k is not None and (flags.embed or not fills_in(params)):
        raise InferenceError(f"--top_k: must be for tokens that are filled in, got {flags.embed or params.model.name}")
    return plan_texts(params, **question)


def _refuse(flags: InferFlags, others: Collection[str], kind: str, params: Params) -> None:
    """Raise InferenceError if a flag was typed that is for another kind of model."""
    for name in flags.typed:
        if name.removeprefix("--") in others:
            raise InferenceError(f"{name}: must be for {kind}, got {params.model.name}")


def _answer(
    model: InferenceModel, plan: TextPlan, link: Link, *, text: TextOutput | None
) -> tuple[Answers, str | None]:
    """Let the model answer; return also the signal that stopped it, if one did."""
    from cstool.training.verbs.run_log import LOG

    prompts = plan.request.prompts
    shown = text if len(prompts) == 1 else None
    if shown is not None and goes_on(model.params):
        shown.write(prompts[0])

    def show(_: int, piece: str) -> None:
        if shown is not None:
            shown.write(piece)

    answers, signal_name = answer_until_stopped(model, plan, show=show, link=link)
    if text is not None:
        _show_rest(answers, text)
    for line in _summary(answers):
        LOG.info(line)
    return answers, signal_name


def _show_rest(answers: Answers, text: TextOutput) -> None:
    """Show the text that was not yet shown: of one prompt the end of its last line, of several all."""
    if len(answers.completions) > 1:
        for number, (completion, made) in enumerate(zip(answers.completions, answers.texts, strict=True), start=1):
            text.write(f"--- prompt {number} of {len(answers.completions)}: {_ending(completion)}\n")
            text.write(f"{made}\n")
    text.end_line()


def _ending(completion: Completion) -> str:
    return f"{counted(len(completion.tokens), 'token')}, ended by {completion.finish_reason}"


def _summary(answers: Answers) -> list[str]:
    """The line at the end, measured on this host."""
    speed = answers.speed
    rate = speed.tokens / max(speed.seconds, 1e-9)
    lines = [
        f"| Inference Device=CSX, Step={speed.passes}, Rate={speed.tokens_per_s:.2f} tokens/sec, "
        f"GlobalRate={rate:.2f} tokens/sec"
    ]
    if len(answers.completions) == 1:
        lines.append(f"The text has {_ending(answers.completions[0])}.")
    pass_bytes = speed.streamed_bytes // max(1, speed.passes)
    narrow = "" if speed.precision == "float32" else f"{speed.precision} "
    weights = (
        f"{narrow}weights in memory"
        if speed.weights == "resident"
        else f"{bytes_text(pass_bytes)} of {narrow}weights a pass"
    )
    if speed.nodes > 1:
        arrived = bytes_text(speed.arrived_bytes // max(1, speed.tokens))
        weights += f", kept by {speed.nodes} ranks, {arrived} a token from others"
    lines.append(
        f"On this host: {counted(speed.prompt_tokens, 'prompt token')}, first token after {speed.first_token_s:.3g} s; "
        f"{counted(speed.tokens, 'token')} in {speed.seconds:.3g} s, {speed.tokens_per_s:.1f} tokens/s after the first"
        f"; {weights}, {bytes_text(speed.kv_cache_bytes)} of keys and values."
    )
    return lines
