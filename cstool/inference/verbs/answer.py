"""Generate and predict: answers of a trained model, the verb behind `cstool run --mode infer`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from cstool.foundation.errors import CheckpointError, InferenceError
from cstool.foundation.progress.screen import Screen, progress_of
from cstool.model.verbs.asked import asked_params, check_lanes
from cstool.training.verbs.trained import params_of

if TYPE_CHECKING:
    from numpy import ndarray

    from cstool.foundation.progress import Progress
    from cstool.inference.completions import Answers, Completion
    from cstool.inference.encoder_answers import EncoderAnswer
    from cstool.inference.model import InferenceModel
    from cstool.inference.predict import Predictions
    from cstool.inference.request import Request
    from cstool.model.params import Params
    from cstool.training.data import Tokenizer
    from cstool.training.machine.ranks.link import Link

T = TypeVar("T")


@dataclass(frozen=True)
class TextPlan:
    """A request that was checked against the params of a model: its prompts are tokens."""

    request: Request
    tokenizer: Tokenizer
    encoded: Sequence[Sequence[int]]
    goes_on: bool
    """whether a text goes on from its prompt, as a decoder's does"""


def open_model(
    trained: str | Path | Params,
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    checkpoint_path: str | Path | None = None,
    adapters: Sequence[str | Path] = (),
    lanes: int | None = None,
    precision: Literal["float32", "bfloat16", "int8", "q8_0", "q4_0", "mxfp4"] | None = None,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> InferenceModel:
    """Open a trained model, ready to answer; a context manager, which closes it.

    Args:
        trained: a checkpoint (`FILE`, `DIR:STEP`), the model_dir of a run (its latest), a params file (.yaml, or the
            name of a stock one) or params that are loaded (the latest in their model_dir)
        overrides: values by dotted key, of the params
        checkpoint_path: of a params file: this one (`FILE`, `DIR:STEP`), not the latest
        adapters: checkpoints of adapters of that checkpoint; each prompt gets a text with each of them
        lanes: host threads; None for one per core. Results do not depend on it
        precision: of the weights of products; None for that of the params
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Raises:
        CheckpointError: there is no such checkpoint, or it does not have the params of its model
        CstoolError: any other error that the user can act on
    """
    from cstool.inference.model import InferenceModel
    from cstool.model.params import Params, is_params_file

    check_lanes(lanes)
    path = None if checkpoint_path is None else Path(checkpoint_path)
    if isinstance(trained, Params) or is_params_file(trained):
        params = asked_params(trained, overrides)
    else:
        if path is not None:
            raise CheckpointError("checkpoint_path: must go with a params file, got the checkpoint itself as well")
        path = _checkpoint(str(trained))
        params = params_of(path, overrides or (), {})
    with progress_of(progress) as shown:
        found = [_checkpoint(str(adapter)) for adapter in adapters]
        return InferenceModel(
            params, checkpoint_path=path, adapters=found, lanes=lanes, precision=precision, progress=shown
        )


def _checkpoint(named: str) -> Path:
    """Return the file of a saved state: as named, or the latest of a folder."""
    from cstool.training.store import FILE_NAME, find_checkpoint, find_shards, is_store

    if not Path(named).is_dir():
        return find_checkpoint(named)
    try:
        return find_checkpoint(f"{named}:latest")
    except CheckpointError:
        for name in (FILE_NAME, *(shard.name for shard in find_shards(Path(named)))):
            if is_store(Path(named) / name):
                return Path(named) / name
        raise


@contextmanager
def opened(
    trained: str | Path | Params | InferenceModel, lanes: int | None, progress: Literal["auto", "none"] | Progress
) -> Iterator[InferenceModel]:
    """Yield a model; one that was opened before stays open."""
    from cstool.inference.model import InferenceModel

    if isinstance(trained, InferenceModel):
        yield trained
        return
    with open_model(trained, lanes=lanes, progress=progress) as model:
        yield model


def generate(
    trained: str | Path | Params | InferenceModel,
    prompts: str | Sequence[str],
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    num_beams: int = 1,
    length_penalty: float | None = None,
    stop: str | Sequence[str] = (),
    seed: int | None = None,
    tokenizer: str | Path | None = None,
    truncates: bool = False,
    uses_cache: bool = True,
    special_tokens: bool | None = None,
    batch_size: int | None = None,
    show: Callable[[int, str], None] | None = None,
    lanes: int | None = None,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> Answers:
    """Let a trained model go on from prompts.

    Arguments that are left out come from the params, else 128 tokens at temperature 1. A draw is keyed by the seed, the
    number of the prompt and the position: the same call gives the same text.

    Args:
        trained: as for `open_model`, or a model that is open
        prompts: one text, or several
        max_tokens: that follow each at most
        temperature: 0 takes the likeliest token
        top_k: draw from so many likeliest tokens only
        top_p: draw from the likeliest tokens, of this probability together
        num_beams: hypotheses that are searched side by side; 1 draws
        length_penalty: of a search: the power of the length that log probabilities are divided by, 1 if not said
        stop: a text that ends a continuation, or several
        seed: of draws; None for the seed of the params
        tokenizer: "bytes" or a tokenizers JSON file; None for the tokenizer of the training data
        truncates: go on from the end of a prompt that is too long, which is an error else
        uses_cache: False computes every token again for each that follows; the tokens are the same
        special_tokens: begin prompts with the special tokens of the tokenizer's template, for example <s>; None for
            as the texts of the data set do, and for True where no data set says it
        batch_size: prompts answered together; None for as many as there is memory for, and 32 at the most
        show: is told the number of a prompt, from 0, and a piece of text, as texts come
        lanes: host threads; None for one per core. Results do not depend on it
        progress: of the loading; see `open_model`

    Returns:
        A completion for each prompt, and the speed on this host; its `texts` are prompts with their continuations

    Raises:
        InferenceError: the model is none that generates, or does not fit the request
        NonFiniteError: the model does not give finite logits
        CstoolError: any other error that the user can act on
    """
    from cstool.inference.completions import answer

    with opened(trained, lanes, progress) as model:
        plan = plan_text(
            model.params,
            (prompts,) if isinstance(prompts, str) else prompts,
            None if tokenizer is None else str(tokenizer),
            max_tokens=max_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            num_beams=num_beams,
            length_penalty=length_penalty,
            stops=(stop,) if isinstance(stop, str) else stop,
            seed=seed,
            truncates=truncates,
            uses_cache=uses_cache,
            special_tokens=special_tokens,
            batch_size=batch_size,
        )
        return answer(
            model, plan.tokenizer, plan.request, encoded=plan.encoded, show=show or (lambda prompt, text: None)
        )


def base_of(adapter: Path) -> Path:
    """Path of the checkpoint that a checkpoint of adapters is for.

    Raises:
        CheckpointError: it cannot be read, or is of none
    """
    from cstool.training.store import CheckpointReader, adapters_of

    path = _checkpoint(str(adapter))
    with CheckpointReader(path) as reader:
        base = (adapters_of(reader) or {}).get("base")
    if base is None:
        rule = "must be adapters beside a base, as --adapter takes them, it is not"
        raise CheckpointError(f"{path}: {rule}", "--checkpoint_path answers with what is in it")
    return Path(base["path"])


def generates_text(params: Params) -> bool:
    """Whether the model of these params makes text of prompts; else it classifies."""
    return params.model.makes_text


def check_answers(params: Params) -> None:
    """Check that the model of these params is of a kind that answers, or raise InferenceError."""
    from cstool.inference.model import check_answers as check

    check(params)


def plan_text(params: Params, prompts: Sequence[str], tokenizer: str | None = None, **asked: Any) -> TextPlan:
    """Check a request, fill in values from the params, and encode its prompts; nothing of the model is read.

    Args:
        params: of the model
        prompts: texts
        tokenizer: "bytes" or a tokenizers JSON file; None for the tokenizer of the training data
        asked: as of `cstool.inference.request.make_request`

    Raises:
        InferenceError: the model is none that generates, or does not fit the request, or no tokenizer is named
        DataError: the tokenizer cannot be loaded, or has no tokens for a prompt
    """
    from cstool.inference.prompts import encode_prompts
    from cstool.inference.request import generator_of, make_request
    from cstool.model.params import DecoderParams

    request, model = make_request(params, prompts, **asked), generator_of(params.model)
    loaded = tokenizer_of_texts(params, tokenizer)
    return TextPlan(request, loaded, encode_prompts(model, loaded, request), isinstance(model, DecoderParams))


def answer_until_stopped(
    model: InferenceModel, plan: TextPlan, *, show: Callable[[int, str], None], link: Link
) -> tuple[Answers, str | None]:
    """Let an open model answer until a signal stops it, here or at another rank; its name comes with the answers."""
    from cstool.inference.completions import answer

    def work(stopped: Callable[[], bool]) -> Answers:
        return answer(model, plan.tokenizer, plan.request, encoded=plan.encoded, show=show, stopped=stopped)

    return until_stopped(work, "the tokens under way are there", link)


def until_stopped(work: Callable[[Callable[[], bool]], T], after: str, link: Link) -> tuple[T, str | None]:
    """Do something until a signal stops it, here or at another rank; return its result, and the name of the signal.

    Args:
        work: asks again and again whether it is to stop
        after: the work that is finished before it stops
    """
    from cstool.training.run.stopping import StopRequest

    with StopRequest(after, "stops at once and shows nothing more") as stop:
        link.listen("signal", lambda _, name, __: stop.ask(name))
        return work(lambda: stop.signal_name is not None), stop.signal_name


def keep_weights(params: Params, *, lanes: int | None, link: Link) -> NoReturn:
    """Keep a part of the weights for rank 0, and send it there, until that has its answers.

    Args:
        params: of the run that trained the model; rank 0 compares them with its own
        lanes: host threads; None to choose
        link: to rank 0, which opens the model

    Raises:
        ToldElsewhere: it has them
        CstoolError: something is wrong at this rank
    """
    from cstool.training.run.follow import follow

    follow([params], "infer", lanes, link)


@contextmanager
def open_logged(
    params: Params,
    screen: Screen,
    *,
    checkpoint_path: Path | None,
    lanes: int | None,
    link: Link,
    executor: str = "table",
    adapters: Sequence[Path] = (),
    precision: str | None = None,
) -> Iterator[InferenceModel]:
    """Yield the trained model of params, with a log in their model_dir, where that can be written.

    Args:
        params: of the run that trained it
        screen: shows the log and the progress
        checkpoint_path: None for the latest state in model_dir
        lanes: host threads; None to choose
        link: to other ranks, which keep a part of the weights each; see `keep_weights`
        executor: "table" or "python": who calls the kernels. Answers do not depend on it
        adapters: checkpoints of adapters of that checkpoint
        precision: of the weights of products; None for that of the params

    Raises:
        CstoolError: any error that the user can act on
    """
    from cstool.inference.model import InferenceModel
    from cstool.training.run.follow import NO_DATA, check_alike
    from cstool.training.verbs.run_log import LOG, run_log

    # A model that others share need not be in a folder that can be written.
    keeps_log = not params.model_dir.is_dir() or os.access(params.model_dir, os.W_OK)
    folder, level = params.model_dir if keeps_log else None, params.logging.log_level
    with (
        run_log(folder, level, screen.handler, params.resolved(), is_latest=False),
        ExitStack() as stack,
    ):
        check_alike(params, NO_DATA, 0, link)
        opened = InferenceModel(
            params,
            checkpoint_path=checkpoint_path,
            lanes=lanes,
            link=link,
            executor=executor,
            adapters=[_checkpoint(str(adapter)) for adapter in adapters],
            precision=precision,
            progress=screen.progress,
        )
        model = stack.enter_context(opened)
        if not keeps_log:
            LOG.info(f"{params.model_dir} cannot be written: this log is not kept.")
        yield model


def predict(
    trained: str | Path | Params | InferenceModel,
    output: str | Path | None = None,
    *,
    batch_size: int | None = None,
    lanes: int | None = None,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> Predictions:
    """Write the classes that a trained model predicts for its validation data: label, likeliest class, probabilities.

    Args:
        trained: as for `open_model`, or a model that is open
        output: a .csv or .h5 file; None for predictions_<step>.csv in model_dir
        batch_size: samples that go through the model together; the numbers do not depend on it
        lanes: host threads; None for one per core. Results do not depend on it
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        The path, the number of samples, the share of right ones, and the speed on this host

    Raises:
        InferenceError: the model does not classify, or the file cannot be written
        CstoolError: any other error that the user can act on
    """
    from cstool.inference.predict import predict as predict_classes
    from cstool.model.params import FcMnistParams

    path = None if output is None else Path(output)
    check_output(path, (".csv", ".h5"), "output")
    with opened(trained, lanes, progress) as model, progress_of(progress) as shown:
        if generates_text(model.params):
            name = model.params.model.name
            raise InferenceError(f"predict: must be for a model that classifies, got {name}", "`generate` is for text")
        if not isinstance(model.params.model, FcMnistParams):
            name = model.params.model.name
            raise InferenceError(f"predict: must be for a model of images, got {name}", "`ask` is for texts")
        return predict_classes(model, path, batch_size=batch_size, progress=shown)


def check_output(path: Path | None, endings: tuple[str, ...], label: str) -> None:
    """Check the ending of a file of answers, and that its folder exists.

    Raises:
        InferenceError: it ends in something else, or cannot be written there
    """
    if path is None:
        return
    if path.suffix not in endings:
        raise InferenceError(f"{label} {path}: must end in {' or '.join(endings)}, got {path.suffix or 'no ending'}")
    # Before anything is computed: a later error would lose the results.
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        found = "a folder of that name" if path.is_dir() else "a folder that is not there, or not to be written to"
        raise InferenceError(f"{label} {path}: must be a file in a folder that can be written, got {found}")


def tokenizer_of_texts(params: Params, named: str | None) -> Tokenizer:
    """Load the named tokenizer, or the tokenizer of the data set, or the one beside a converted checkpoint.

    Raises:
        InferenceError: no tokenizer is named
        DataError: it cannot be loaded
    """
    from cstool.model.params import EncoderDecoderParams, TokenLinesParams
    from cstool.training.data import load_tokenizer, pair_tokenizer, tokenizer_beside, tokenizer_of

    loaders = [each for each in (params.train_dataloader, *params.val_dataloaders, *params.eval_dataloaders) if each]
    folders, beside = params.data_folders, tokenizer_beside(params.path)
    if isinstance(section := params.model, EncoderDecoderParams):
        if named is None and beside.is_file():
            of_data = any(isinstance(each, TokenLinesParams) for each in loaders) or any(map(tokenizer_of, folders))
            named = None if of_data else str(beside)
        return pair_tokenizer(
            loaders,
            named,
            sentinels=section.extra_ids,
            vocab_size=section.vocab_size,
            start=section.decoder_start_token_id,
        )
    if named is not None:
        return load_tokenizer(named, folders)
    for folder in folders:
        if (found := tokenizer_of(folder)) is not None:
            return found
    if beside.is_file():
        return load_tokenizer(beside)
    rule = "--tokenizer: must be given where "
    raise InferenceError(
        f"{rule}the data set does not say how it was made, and {', '.join(map(str, folders))} does not"
        if folders
        else f"{rule}the params name no data set",
        "bytes, or the tokenizer.json of the training data",
    )


def write_answers(path: Path, answers: Sequence[Completion | EncoderAnswer], vectors: ndarray | None = None) -> None:
    """Write answers as JSON objects, one to a line, or their vectors as a .npy array, all or nothing.

    Raises:
        InferenceError: the file cannot be written
    """
    from cstool.foundation.atomic_file import write_replacing
    from cstool.inference.completions import Completion

    plain = (each.as_dict() if isinstance(each, Completion) else asdict(each) for each in answers)
    content: str | bytes = "".join(json.dumps(each) + "\n" for each in plain)
    if vectors is not None and path.suffix == ".npy":
        from numpy import save

        save(buffer := BytesIO(), vectors)
        content = buffer.getvalue()
    try:
        write_replacing(path, content)
    except OSError as error:
        raise InferenceError(f"--output {path}: must be writable, got: {error.strerror}") from None
