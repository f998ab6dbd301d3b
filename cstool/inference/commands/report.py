"""Answers as text: the answers on stdout, the last lines, measured on this host, in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cstool.foundation.terminal.screen import TextOutput
from cstool.foundation.words import bytes_text, counted

if TYPE_CHECKING:
    from cstool.inference.completions import Answers, Completion, Speed
    from cstool.inference.encoder_answers import EncoderAnswers, EncoderSpeed
    from cstool.inference.verbs.answer import TextPlan


def shown_pieces(plan: TextPlan, text: TextOutput | None) -> Callable[[int, str], None]:
    """Return a function that shows pieces of text as they come, where there is one prompt, which is shown before.

    Args:
        text: where; None for nowhere
    """
    prompts = plan.request.prompts
    if text is None or len(prompts) > 1:
        return lambda _, piece: None
    if plan.goes_on:
        text.write(prompts[0])
    return lambda _, piece: text.write(piece)


def show_texts(answers: Answers, text: TextOutput | None) -> None:
    """Show the text that was not yet shown: of one prompt the end of its last line, of several all.

    Args:
        text: where; None for the log alone
    """
    completions, speed = answers.completions, answers.speed
    if text is not None:
        if len(completions) > 1:
            ways = max(1, len({completion.adapter for completion in completions}))
            for number, (completion, made) in enumerate(zip(completions, answers.texts, strict=True), start=1):
                which = f"prompt {1 + (number - 1) // ways} of {len(completions) // ways}"
                beside = "" if completion.adapter is None else f", {completion.adapter}"
                text.write(f"--- {which}{beside}: {_ending(completion)}\n")
                text.write(f"{made}\n")
        text.end_line()
    _log_rate(speed.passes, speed.tokens_per_s, speed.tokens / max(speed.seconds, 1e-9), "tokens")
    if len(completions) == 1:
        _log(f"The text has {_ending(completions[0])}.")
    arrived = bytes_text(speed.arrived_bytes // max(1, speed.tokens))
    others = f", {arrived} a token from others" if speed.nodes > 1 else ""
    _log(
        f"On this host: {counted(speed.prompt_tokens, 'prompt token')}, first token after {speed.first_token_s:.3g} s; "
        f"{counted(speed.tokens, 'token')} in {speed.seconds:.3g} s, {speed.tokens_per_s:.1f} tokens/s after the first"
        f"; {_weights(speed)}{others}, {bytes_text(speed.kv_cache_bytes)} of keys and values."
    )


def _ending(completion: Completion) -> str:
    return f"{counted(len(completion.tokens), 'token')}, ended by {completion.finish_reason}"


def show_answers(answers: EncoderAnswers, text: TextOutput | None) -> None:
    """Show the answers of an encoder.

    Args:
        text: where; None for the log alone
    """
    if text is not None:
        for number, answer in enumerate(answers.answers, start=1):
            if len(answers.answers) > 1:
                text.write(f"--- prompt {number} of {len(answers.answers)}\n")
            for line in answer.lines():
                text.write(f"{line}\n")
    speed = answers.speed
    rate = speed.texts / max(speed.seconds, 1e-9)
    _log_rate(speed.passes, rate, rate, "samples")
    _log(
        f"On this host: {counted(speed.texts, 'text')} of {counted(speed.tokens, 'token')} in {speed.seconds:.3g} s, "
        f"{speed.tokens_per_s:.1f} tokens/s; {_weights(speed)}."
    )


def _weights(speed: Speed | EncoderSpeed) -> str:
    narrow = "" if speed.precision == "float32" else f"{speed.precision} "
    pass_bytes = bytes_text(speed.streamed_bytes // max(1, speed.passes))
    weights = f"{narrow}weights in memory" if speed.weights == "resident" else f"{pass_bytes} of {narrow}weights a pass"
    return f"{weights}, kept by {speed.nodes} ranks" if speed.nodes > 1 else weights


def _log_rate(passes: int, rate: float, overall: float, unit: str) -> None:
    _log(f"| Inference Device=CSX, Step={passes}, Rate={rate:.2f} {unit}/sec, GlobalRate={overall:.2f} {unit}/sec")


def _log(line: str) -> None:
    from cstool.training.verbs.run_log import LOG

    LOG.info(line)
