"""Answers of an encoder as text: the answers on stdout, the last line, measured on this host, in the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cstool.foundation.terminal.screen import TextOutput
from cstool.foundation.words import bytes_text, counted

if TYPE_CHECKING:
    from cstool.inference.encoder_answers import EncoderAnswers


def show_answers(answers: EncoderAnswers, text: TextOutput | None, output: Path | None) -> None:
    """Show the answers of an encoder.

    Args:
        text: where; None for the log alone
        output: file that has the answers instead; None if there is none
    """
    from cstool.training.verbs.run_log import LOG

    if text is not None and output is None:
        several = len(answers.answers) > 1
        for number, answer in enumerate(answers.answers, start=1):
            if several:
                text.write(f"--- prompt {number} of {len(answers.answers)}\n")
            for line in answer.lines():
                text.write(f"{line}\n")
    speed = answers.speed
    narrow = "" if speed.precision == "float32" else f"{speed.precision} "
    pass_bytes = bytes_text(speed.streamed_bytes // max(1, speed.passes))
    weights = f"{narrow}weights in memory" if speed.weights == "resident" else f"{pass_bytes} of {narrow}weights a pass"
    kept = f", kept by {speed.nodes} ranks" if speed.nodes > 1 else ""
    rate = speed.texts / max(speed.seconds, 1e-9)
    LOG.info(
        f"| Inference Device=CSX, Step={speed.passes}, Rate={rate:.2f} samples/sec, GlobalRate={rate:.2f} samples/sec"
    )
    LOG.info(
        f"On this host: {counted(speed.texts, 'text')} of {counted(speed.tokens, 'token')} in {speed.seconds:.3g} s, "
        f"{speed.tokens_per_s:.1f} tokens/s; {weights}{kept}."
    )
