"""`cstool run --mode infer`: text that goes on from prompts, shown as it comes, or the classes of a data set."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.cli.infer_options import InferFlags
from cstool.errors import InferenceError, Interrupted

if TYPE_CHECKING:
    from cstool.cli.screen import TextOutput
    from cstool.data import Tokenizer
    from cstool.inference.answer import Answers, Completion, Request, Speed
    from cstool.inference.model import InferenceModel
    from cstool.params import Params

_TEXT_FLAGS = set(InferFlags.__dataclass_fields__) - {"batch_size", "output"}


def infer(params: Params, flags: InferFlags, *, checkpoint_path: Path | None, lanes: int | None, as_json: bool) -> None:
    """Answer, and show it.

    Args:
        params: of the run that trained the model
        flags: what is asked for
        checkpoint_path: None for the latest state in model_dir
        lanes: host threads; None to choose
        as_json: print one document on stdout

    Raises:
        CstoolError: whatever the user can act on
    """
    from cstool.cli.render import print_json
    from cstool.cli.screen import screen_on
    from cstool.inference.answer import encode_prompts
    from cstool.inference.model import InferenceModel
    from cstool.params import DecoderParams
    from cstool.verbs.answer import check_output, choose_tokenizer, write_completions
    from cstool.verbs.run_log import LOG, run_log

    request, tokenizer, encoded = None, None, None
    if isinstance(params.model, DecoderParams):
        request = flags.request(params.model, params.seed)
        tokenizer = choose_tokenizer(params, flags.tokenizer)
        check_output(flags.output, (".jsonl",), "--output")
        # What is wrong with a prompt is said before anything is read.
        encoded = encode_prompts(params.model, tokenizer, request)
    else:
        for name in flags.typed:
            if name.removeprefix("--") in _TEXT_FLAGS:
                raise InferenceError(f"{name}: must be for a model that generates text, got {params.model.name}")
        check_output(flags.output, (".csv", ".h5"), "--output")
    # A model that others share need not be in a folder that can be written.
    keeps_log = not params.model_dir.is_dir() or os.access(params.model_dir, os.W_OK)
    # The text is on stdout, alone, so that it can go on through a pipe.
    with (
        screen_on(sys.stderr) as screen,
        run_log(
            params.model_dir if keeps_log else None,
            params.logging.log_level,
            screen.handler,
            params.resolved(),
            is_latest=False,
        ),
        InferenceModel(params, checkpoint_path=checkpoint_path, lanes=lanes, progress=screen.progress) as model,
    ):
        if not keeps_log:
            LOG.info(f"{params.model_dir} cannot be written: this log is not kept.")
        document: dict[str, Any] = {
            "mode": "infer",
            "model": params.model.name,
            "parameters": model.graph.parameter_count,
            "step": model.step,
        }
        if request is not None and tokenizer is not None:
            answers, signal_name = _answer(model, tokenizer, request, encoded, text=None if as_json else screen.text)
            document |= answers.as_dict()
            if flags.output is not None:
                write_completions(flags.output, answers.completions)
        else:
            from cstool.inference.predict import predict

            predictions = predict(model, flags.output, batch_size=flags.batch_size, progress=screen.progress)
            document |= predictions.as_dict()
            signal_name = None
        if as_json:
            print_json(document)
        if signal_name is not None:
            raise Interrupted(f"stopped by {signal_name} after {answers.speed.tokens} tokens")


def _answer(
    model: InferenceModel,
    tokenizer: Tokenizer,
    request: Request,
    encoded: Sequence[Sequence[int]] | None,
    *,
    text: TextOutput | None,
) -> tuple[Answers, str | None]:
    """Let the model answer; return also the signal that stopped it, if one did."""
    from cstool.inference.answer import answer
    from cstool.run.stopping import StopRequest
    from cstool.verbs.run_log import LOG

    shown = text if len(request.prompts) == 1 else None

    with StopRequest("the tokens under way are there", "stops at once and shows nothing more") as stop:
        if shown is not None:
            shown.write(request.prompts[0])
        answers = answer(
            model,
            tokenizer,
            request,
            encoded=encoded,
            stopped=lambda: stop.signal_name is not None,
            **({} if shown is None else {"show": lambda _, piece: shown.write(piece)}),
        )
    if text is not None:
        _show_rest(answers, text)
    for line in _summary(answers, request):
        LOG.info(line)
    return answers, stop.signal_name


def _show_rest(answers: Answers, text: TextOutput) -> None:
    """Show what was not shown as it came: of one prompt the end of its last line, of several all."""
    if len(answers.completions) > 1:
        for number, completion in enumerate(answers.completions, start=1):
            text.write(f"--- prompt {number} of {len(answers.completions)}: {_ending(completion)}\n")
            text.write(f"{completion.prompt}{completion.text}\n")
    text.end_line()


def _ending(completion: Completion) -> str:
    from cstool.run.report.wording import counted

    return f"{counted(len(completion.tokens), 'token')}, ended by {completion.finish_reason}"


def _summary(answers: Answers, request: Request) -> list[str]:
    """Return what is said at the end, measured on this host."""
    from cstool.run.report.wording import counted
    from cstool.words import bytes_text

    speed: Speed = answers.speed
    rate = speed.tokens / max(speed.seconds, 1e-9)
    lines = [
        f"| Inference Device=CSX, Step={speed.passes}, Rate={speed.tokens_per_s:.2f} tokens/sec, "
        f"GlobalRate={rate:.2f} tokens/sec"
    ]
    if len(request.prompts) == 1:
        lines.append(f"The text has {_ending(answers.completions[0])}.")
    pass_bytes = speed.streamed_bytes // max(1, speed.passes)
    weights = "weights in memory" if speed.weights == "resident" else f"{bytes_text(pass_bytes)} of weights a pass"
    lines.append(
        f"On this host: {counted(speed.prompt_tokens, 'prompt token')}, first token after {speed.first_token_s:.3g} s; "
        f"{counted(speed.tokens, 'token')} in {speed.seconds:.3g} s, {speed.tokens_per_s:.1f} tokens/s after the first"
        f"; {weights}, {bytes_text(speed.kv_cache_bytes)} of keys and values."
    )
    return lines
