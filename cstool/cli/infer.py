"""`cstool run --mode infer`: text that goes on from prompts, shown as it comes, or the classes of a data set."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

from cstool.cli.infer_options import InferFlags
from cstool.errors import CheckpointError, InferenceError, Interrupted

if TYPE_CHECKING:
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
    from cstool.cli.run_log import run_log
    from cstool.cli.screen import screen_on
    from cstool.inference.answer import encode_prompts
    from cstool.inference.model import InferenceModel
    from cstool.params import DecoderParams

    request, tokenizer = None, None
    if isinstance(params.model, DecoderParams):
        request, tokenizer = flags.request(params.model, params.seed), _tokenizer(params, flags)
        _check_output(flags.output, (".jsonl",))
        # What is wrong with a prompt is said before anything is read.
        encode_prompts(params.model, tokenizer, request)
    else:
        for name in flags.typed:
            if name.removeprefix("--") in _TEXT_FLAGS:
                raise InferenceError(f"{name}: must be for a model that generates text, got {params.model.name}")
        _check_output(flags.output, (".csv", ".h5"))
    # The text is on stdout, alone, so that it can go on through a pipe.
    with (
        screen_on(sys.stderr) as screen,
        run_log(params.model_dir, params.logging.log_level, screen.handler, params.resolved()),
        InferenceModel(params, checkpoint_path=checkpoint_path, lanes=lanes, progress=screen.progress) as model,
    ):
        document: dict[str, Any] = {
            "mode": "infer",
            "model": params.model.name,
            "parameters": model.graph.parameter_count,
            "step": model.step,
        }
        if request is not None and tokenizer is not None:
            answers, signal_name = _answer(model, tokenizer, request, shows=not as_json)
            document |= answers.as_dict()
            if flags.output is not None:
                _write_lines(flags.output, answers.completions)
        else:
            from cstool.inference.predict import predict

            predictions = predict(model, flags.output, batch_size=flags.batch_size, progress=screen.progress)
            document |= predictions.as_dict()
            signal_name = None
        if as_json:
            print_json(document)
        if signal_name is not None:
            raise Interrupted(f"stopped by {signal_name} after {answers.speed.tokens} tokens")


def params_of(checkpoint: Path, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]]) -> Params:
    """Return the params that a checkpoint was trained with; logs go to its folder unless they say otherwise.

    Args:
        checkpoint: a file
        overrides, flags: as for `load_params`

    Raises:
        CheckpointError: it cannot be read, or does not have them
        ParamsError: what it has cannot be run with, or what was typed is wrong
    """
    import yaml

    from cstool.params import parse_params
    from cstool.store import open_checkpoint

    with open_checkpoint(checkpoint) as reader:
        metadata: Any = reader.values().get("__metadata__")
    try:
        document = metadata[-1]["params"]
        document["trainer"]["init"]["model_dir"] = str(checkpoint.absolute().parent)
    except (LookupError, TypeError):
        raise CheckpointError(
            f"{checkpoint}: must have the params of its model, it has none", "--params names the file of the model"
        ) from None
    return parse_params(yaml.safe_dump(document, sort_keys=False), str(checkpoint), overrides=overrides, flags=flags)


def _tokenizer(params: Params, flags: InferFlags) -> Tokenizer:
    """Return the tokenizer that was asked for, or that of the data set.

    Raises:
        InferenceError: nobody says which
        DataError: it cannot be loaded
    """
    from cstool.data import load_tokenizer, tokenizer_of

    if flags.tokenizer is not None:
        return load_tokenizer(flags.tokenizer)
    training = () if params.train_dataloader is None else (params.train_dataloader,)
    loaders = (*training, *params.val_dataloaders, *params.eval_dataloaders)
    folders = list(dict.fromkeys(folder for loader in loaders for folder in loader.data_dir))
    for folder in folders:
        if (found := tokenizer_of(folder)) is not None:
            return found
    where = ", ".join(map(str, folders)) or "the params, which name no data set"
    raise InferenceError(
        f"--tokenizer: must be given where the data set does not say how it was made, and {where} does not",
        "bytes, or the tokenizer.json of the training data",
    )


def _check_output(path: Path | None, endings: tuple[str, ...]) -> None:
    if path is not None and path.suffix not in endings:
        raise InferenceError(f"--output {path}: must end in {' or '.join(endings)}, got {path.suffix or 'no ending'}")


def _answer(
    model: InferenceModel, tokenizer: Tokenizer, request: Request, *, shows: bool
) -> tuple[Answers, str | None]:
    """Let the model answer; return also the signal that stopped it, if one did."""
    from cstool.cli.run_log import LOG
    from cstool.inference.answer import answer
    from cstool.runtime.stopping import StopRequest

    is_alone = len(request.prompts) == 1

    def show(_prompt: int, text: str) -> None:
        sys.stdout.write(_harmless(text))
        sys.stdout.flush()

    with StopRequest("the tokens under way are there", "stops at once and shows nothing more") as stop:
        if shows and is_alone:
            show(0, request.prompts[0])
        answers = answer(
            model,
            tokenizer,
            request,
            stopped=lambda: stop.signal_name is not None,
            **({"show": show} if shows and is_alone else {}),
        )
    if shows and is_alone:
        show(0, "" if (request.prompts[0] + answers.completions[0].text).endswith("\n") else "\n")
    elif shows:
        for number, completion in enumerate(answers.completions, start=1):
            print(f"--- prompt {number} of {len(request.prompts)}: {_ending(completion)}")
            print(_harmless(completion.prompt + completion.text))
    for line in _summary(answers, request):
        LOG.info(line)
    return answers, stop.signal_name


def _harmless(text: str) -> str:
    """Return a text for the screen, without what would move its cursor or change its colours; files get all of it."""
    from cstool.cli.screen import is_terminal

    if not is_terminal(sys.stdout):
        return text
    return "".join("\ufffd" if category(c) == "Cc" and c not in "\n\t" else c for c in text)


def _ending(completion: Completion) -> str:
    from cstool.runtime.wording import counted

    return f"{counted(len(completion.tokens), 'token')}, ended by {completion.finish_reason}"


def _summary(answers: Answers, request: Request) -> list[str]:
    """Return what is said at the end, measured on this host."""
    from cstool.runtime.wording import counted, format_bytes

    speed: Speed = answers.speed
    rate = speed.tokens / max(speed.seconds, 1e-9)
    lines = [
        f"| Inference Device=CSX, Step={speed.passes}, Rate={speed.tokens_per_s:.2f} tokens/sec, "
        f"GlobalRate={rate:.2f} tokens/sec"
    ]
    if len(request.prompts) == 1:
        lines.append(f"The text has {_ending(answers.completions[0])}.")
    pass_bytes = speed.streamed_bytes // max(1, speed.passes)
    weights = "weights in memory" if speed.weights == "resident" else f"{format_bytes(pass_bytes)} of weights a pass"
    lines.append(
        f"On this host: {counted(speed.prompt_tokens, 'prompt token')}, first token after {speed.first_token_s:.3g} s; "
        f"{counted(speed.tokens, 'token')} in {speed.seconds:.3g} s, {speed.tokens_per_s:.1f} tokens/s after the first"
        f"; {weights}, {format_bytes(speed.kv_cache_bytes)} of keys and values."
    )
    return lines


def _write_lines(path: Path, completions: list[Completion]) -> None:
    """Write completions as JSON objects, one to a line, all or nothing."""
    from dataclasses import asdict

    from cstool.atomic_file import write_replacing

    try:
        write_replacing(path, "".join(json.dumps(asdict(each)) + "\n" for each in completions))
    except OSError as error:
        raise InferenceError(f"--output {path}: must be writable, got: {error.strerror}") from None
