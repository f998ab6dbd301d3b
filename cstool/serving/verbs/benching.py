"""Measure how fast a server answers: the verb behind `cstool bench serve`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any, Literal

from cstool.foundation.errors import CstoolError
from cstool.foundation.progress.screen import progress_of
from cstool.serving.verbs.serving import KEY_VARIABLE

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.model.params import Params
    from cstool.plan.estimation import Tried
    from cstool.plan.estimation.inference import InferEstimate
    from cstool.serving.load import Form, Round

SYSTEM = "cs3"
"""kind of the modelled systems"""
LEAST_REQUESTS, TIMES = 16, 4
_LOADER = "trainer.fit.train_dataloader={batch_size: 1, data_processor: GptHDF5MapDataProcessor, data_dir: .}"
"""of a model without data, as converted ones are: an estimate needs one, and nothing about answers depends on it"""


@dataclass(frozen=True)
class BenchRequest:
    """A server, and the load on it.

    Args:
        url: of a server with OpenAI's API, such as http://127.0.0.1:8000
        model: its name there; None for the only one
        concurrency: numbers of requests side by side, a round for each
        rates: rates of an open loop, a round for each [1/s]; with one, `concurrency` has no effect
        requests: of each round; None for four times those side by side, at least 16
        prompt_tokens: of each prompt
        max_tokens: of each answer
        shared_prefix: tokens of each prompt that all begin with
        seed: of prompts and times; None for a fresh one, so that no prompt was seen before
        fields: further fields of requests, and others in place of those that are sent
        api_key: shown to the server; None for the variable CSTOOL_API_KEY, if any
        params: a params file or a checkpoint of the model, for an estimate of the modelled cluster; None for none
    """

    url: str
    model: str | None = None
    concurrency: Sequence[int] = (1, 4, 16)
    rates: Sequence[float] = ()
    requests: int | None = None
    prompt_tokens: int = 128
    max_tokens: int = 128
    shared_prefix: int = 0
    seed: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | None = None
    params: str | None = None


@dataclass(frozen=True)
class Modelled:
    """The same model on the modelled cluster.

    Args:
        prompt_tokens, new_tokens: of each user: the medians of the measured ones
        rows: an estimate for the number of users of each round; [] where there is none
        why: it is so
    """

    prompt_tokens: int
    new_tokens: int
    rows: Sequence[Tried[int, InferEstimate]]
    why: str = ""


@dataclass(frozen=True)
class Benched:
    """Measurements of a server.

    Args:
        model: its name
        form: of the prompts
        seed: of prompts and times
        rounds: one for each load
        modelled: None where it was not asked for, or nothing was answered
    """

    model: str
    form: Form
    seed: int
    rounds: Sequence[Round]
    modelled: Modelled | None


def bench(request: BenchRequest, *, progress: Literal["auto", "none"] | Progress = "auto") -> Benched:
    """Measure how fast a server answers, round by round; a warm-up goes before each.

    Args:
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Raises:
        AnswerError: the server is not there, or refuses all forms of prompts
        CstoolError: it cannot be measured so
    """
    from cstool.serving.client import Client
    from cstool.serving.load import LEAST_VOCABULARY, Load, Prompts

    _check(request)
    params = None if request.params is None else _params(request)
    try:
        key = os.environ.get(KEY_VARIABLE) if request.api_key is None else request.api_key
        client = Client(request.url, key)
    except CstoolError as error:
        # The client names the flag of another command.
        raise CstoolError(error.message.replace("--url", "URL")) from None
    model = request.model or _only(client.models())
    seed = secrets.randbits(32) if request.seed is None else request.seed
    vocab_size: int = LEAST_VOCABULARY if params is None else params.model.vocab_size  # type: ignore[union-attr]
    prompts = Prompts(request.prompt_tokens, request.shared_prefix, seed, vocab_size)
    fields = {
        "model": model,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "stream_options": {"include_usage": True},
        **request.fields,
    }
    load = Load(client, prompts, fields)
    load.find_form()
    rounds = []
    with progress_of(progress) as shown:
        for each in request.rates or request.concurrency:
            name = f"{each:g} requests/s" if request.rates else f"{each} at a time"
            side_by_side = 4 if request.rates else int(each)
            requests = request.requests or max(LEAST_REQUESTS, TIMES * side_by_side)
            load.closed(side_by_side, side_by_side, lambda _: None)
            shown.start(name, requests)

            def tell(done: int, name: str = name) -> None:
                shown.advance(name, done)

            measure: Any = load.open if request.rates else load.closed
            rounds.append(measure(each, requests, tell))
            shown.finish(name)
    return Benched(model, load.form, seed, rounds, None if params is None else _modelled(params, rounds))


def _check(request: BenchRequest) -> None:
    if not 0 <= request.shared_prefix <= request.prompt_tokens:
        rule = f"must be 0 to {request.prompt_tokens:,}, those of a prompt"
        raise CstoolError(f"--shared_prefix: {rule}, got {request.shared_prefix:,}")


def _only(names: Sequence[str]) -> str:
    if len(names) != 1:
        raise CstoolError(f"--model: must be one of the server's, which are {', '.join(names) or 'none'}")
    return names[0]


def _params(request: BenchRequest) -> Params:
    """The params of the model, for questions about the cluster.

    Raises:
        CstoolError: there are none, or the model does not answer prompts of such a length
    """
    from cstool.model.params import is_params_file, load_params
    from cstool.plan.estimation.inference import make_infer_request
    from cstool.training.verbs.trained import trained_params

    named = str(request.params)

    def load(*overrides: str) -> Params:
        if is_params_file(named):
            return load_params(named, overrides=overrides)
        return trained_params(Path(f"{named}:latest" if Path(named).is_dir() else named), overrides, {})[1]

    params = load()
    if params.compiled_dataloader is None:
        params = load(_LOADER)
    make_infer_request(params, SYSTEM, prompt_tokens=1, new_tokens=1, batches=(1,))
    most: int = params.model.max_position_embeddings  # type: ignore[union-attr]
    if request.prompt_tokens + request.max_tokens > most:
        raise CstoolError(
            f"--prompt_tokens and --max_tokens: must be at most {most:,} together, the context of {named}, got "
            f"{request.prompt_tokens:,} and {request.max_tokens:,}"
        )
    return params


def _modelled(params: Params, rounds: Sequence[Round]) -> Modelled | None:
    """The estimate of each round, for prompts and answers as long as they were."""
    from cstool.plan.estimation.inference import infer_rows, make_infer_request

    answers = [answer for each in rounds for answer in each.answers if answer.tokens]
    if not answers:
        return None
    before = median_low([answer.prompt_tokens or 1 for answer in answers])
    new = median_low([answer.tokens for answer in answers])
    users = sorted({each.users for each in rounds})
    try:
        asked = make_infer_request(params, SYSTEM, prompt_tokens=before, new_tokens=new, batches=users)
        return Modelled(before, new, infer_rows(asked))
    except CstoolError as error:
        return Modelled(before, new, (), error.message)
