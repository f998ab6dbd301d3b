"""Serve a trained model over HTTP, as OpenAI's API: the verb behind `cstool serve`."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cstool.foundation.errors import CstoolError, InferenceError
from cstool.foundation.http.listening import USUAL_HOST, address, listen, resolved
from cstool.foundation.http.names import is_loopback, own_names
from cstool.foundation.http.secret import is_token, read_token

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.inference.drafts import Drafts
    from cstool.inference.model import InferenceModel
    from cstool.serving.served import Served
    from cstool.serving.server import DrainingServer

Precision = Literal["float32", "bfloat16", "int8", "q8_0", "q4_0", "mxfp4"]
USUAL_PORT = 8000
KEY_VARIABLE = "CSTOOL_API_KEY"
MOST_BATCH, MOST_QUEUE = 64, 1024
DRAIN_S = 60.0


@dataclass(frozen=True)
class ServeRequest:
    """An order to serve a model.

    Args:
        trained: as of `open_model`
        adapters: checkpoints of adapters by the names that they are asked by
        host: address to listen at; another than this machine's own needs a key
        port: to listen at; 0 for any that is free
        api_key: that clients show; None for the one of `api_key_file`, or of the variable CSTOOL_API_KEY, if any
        api_key_file: has the key; of this user, mode 0600
        allow_origin: pages from elsewhere that may ask
        max_batch: most answers that are made side by side
        max_queue: most that wait
        context: most tokens of a prompt and its answer together; None for as many as the model has positions for
        kv_memory: for keys and values [bytes]; None for half of the free memory
        max_tokens: of answers whose request has no number; None for the params' value, else the rest of the context for
            a chat, and 16 for a completion
        precision: of the weights of products, as of `open_model`
        draft: "lookup" drafts from the text so far; or a checkpoint of a smaller model of the same
            tokenizer, as of `open_model`; None drafts predictions of requests alone
        chat_template: "cstool" or a file; None for the tokenizer's own template, or else cstool's
        tokenizer: "bytes" or a tokenizers JSON file; None for the tokenizer of the training data
        served_model_name: the name that the model is asked by; None for the name of its file or folder
        lanes: host threads; None for one per core
        drain_s: time for answers to end before the server does [s]
    """

    trained: str
    adapters: Mapping[str, str]
    host: str = USUAL_HOST
    port: int = USUAL_PORT
    api_key: str | None = None
    api_key_file: Path | None = None
    allow_origin: Sequence[str] = ()
    max_batch: int = MOST_BATCH
    max_queue: int = MOST_QUEUE
    context: int | None = None
    kv_memory: int | None = None
    max_tokens: int | None = None
    precision: Precision | None = None
    draft: str | None = None
    chat_template: str | None = None
    tokenizer: str | None = None
    served_model_name: str | None = None
    lanes: int | None = None
    drain_s: float = DRAIN_S

    def key(self) -> bytes | None:
        """Return the key that clients show; None for none.

        Raises:
            CstoolError: it is no key, or there are two
        """
        if self.api_key is not None and self.api_key_file is not None:
            raise CstoolError("--api_key: must be left out where there is --api_key_file, got both")
        if self.api_key_file is not None:
            return read_token(self.api_key_file, "a key for clients")
        name = "--api_key" if self.api_key is not None else KEY_VARIABLE
        text = os.environ.get(KEY_VARIABLE) if self.api_key is None else self.api_key
        if text is None:
            return None
        if not is_token(key := text.encode("utf-8", "surrogateescape")):
            raise CstoolError(
                f"{name}: must be 16 to 4096 letters, digits or marks, got {len(text)} characters",
                "python -c 'import secrets; print(secrets.token_urlsafe())' makes one",
            )
        return key


def serve(
    request: ServeRequest,
    *,
    say: Callable[[str], object] = print,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> None:
    """Serve a model until a signal; answers that are under way end first.

    Args:
        say: takes lines, once the server answers: its address, then its model and limits
        progress: of the loading; see `open_model`

    Raises:
        CstoolError: it cannot be served so
    """
    with made_server(request, progress=progress) as (server, listener, lines):
        for line in (address(request.host, listener), *lines):
            say(line)
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


@contextlib.contextmanager
def made_server(
    request: ServeRequest, *, progress: Literal["auto", "none"] | Progress = "none"
) -> Iterator[tuple[DrainingServer, socket.socket, list[str]]]:
    """Yield the server that `serve` runs, its socket, and lines about its model.

    Raises:
        CstoolError: it cannot be served so
    """
    try:
        from cstool.serving.app import Server
        from cstool.serving.guards import Guards
        from cstool.serving.log_lines import model_lines
        from cstool.serving.server import DrainingServer
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("starlette", "uvicorn", "h11"):
            raise
        raise CstoolError(f"a server needs {missing}, which is not installed", "pip install 'cstool[serve]'") from None
    key, (family, where) = request.key(), resolved(request.host, request.port)
    if key is None and not is_loopback(where[0]):
        raise CstoolError(
            f"--host {request.host}: others can reach this address, so --api_key_file must be given",
            f"--host {USUAL_HOST} is for this machine alone",
        )
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(listen(family, where, request.host))
        served = stack.enter_context(opened(request, progress))
        engine = served.engine
        server: DrainingServer

        def running() -> int:
            load = None if engine is None else engine.load()
            return 0 if load is None else load.running + load.waiting

        app = Server(served, lambda: server.is_ending)
        guarded = Guards(app, own_names(request.host), key, request.allow_origin)
        server = DrainingServer(
            guarded, served.limits, request.drain_s, running, lambda: None if engine is None else engine.close()
        )
        yield server, listener, model_lines(served)


@contextlib.contextmanager
def opened(request: ServeRequest, progress: Literal["auto", "none"] | Progress) -> Iterator[Served]:
    """Yield the model of a request, ready to be asked; at the end its engine ends.

    Raises:
        CstoolError: it cannot be served so
    """
    from cstool.inference.verbs.answer import open_model

    with contextlib.ExitStack() as stack:
        model = stack.enter_context(
            open_model(
                request.trained,
                adapters=list(request.adapters.values()),
                lanes=request.lanes,
                precision=request.precision,
                progress=progress,
            )
        )
        small = None
        if request.draft not in (None, "lookup"):
            small = stack.enter_context(open_model(request.draft, lanes=request.lanes, progress=progress))
        served = served_model(model, request, small)
        if served.engine is not None:
            stack.callback(served.engine.close)
        yield served


def served_model(model: InferenceModel, request: ServeRequest, small: InferenceModel | None = None) -> Served:
    """Return an open model, ready to be asked; its engine runs, where it makes text.

    Args:
        small: a smaller model that drafts

    Raises:
        CstoolError: it cannot be served
    """
    from cstool.inference.verbs.answer import tokenizer_of_texts
    from cstool.inference.verbs.asking import is_encoder
    from cstool.model.params import DecoderParams
    from cstool.serving.conversations import template_of, turn_ends
    from cstool.serving.embeddings import DecoderEmbedder, Embeddings, EncoderEmbedder
    from cstool.serving.engine import Engine
    from cstool.serving.served import Limits, Served

    section, name = model.params.model, request.served_model_name or _name(request.trained)
    if is_encoder(model.params):
        embeddings = Embeddings(EncoderEmbedder(model, request.tokenizer))
        return Served(model, None, None, embeddings, name, limits=Limits(max_tokens=request.max_tokens))
    if not isinstance(section, DecoderParams) or not section.makes_text:
        rule = "must be a decoder that makes text, or an encoder"
        raise InferenceError(f"{model.params.path}: {rule}, got {section.name}")
    tokenizer: Any = tokenizer_of_texts(model.params, request.tokenizer)
    template = template_of(request.chat_template, tokenizer)
    model.adapters = model.adapters.with_none()
    most = section.max_position_embeddings
    if request.context is not None and request.context > most:
        raise InferenceError(f"--context: must be at most the {most:,} positions of the model, got {request.context:,}")
    engine = Engine(
        model,
        capacity=request.context or most,
        max_batch=request.max_batch,
        max_queue=request.max_queue,
        kv_bytes=request.kv_memory,
        drafts=_drafts(request.draft, section.vocab_size, small),
    )
    ends = set(turn_ends(template, tokenizer))
    if tokenizer.end_of_text is not None:
        ends.add(tokenizer.end_of_text)
    served = Served(
        model,
        tokenizer,
        engine,
        Embeddings(DecoderEmbedder(model, engine.capacity, lambda text, param: served.tokens(text, param))),
        name,
        {name: number for number, name in enumerate(request.adapters, start=1)},
        template,
        frozenset(ends),
        Limits(max_tokens=request.max_tokens),
    )
    return served


def _drafts(draft: str | None, vocab_size: int, small: InferenceModel | None) -> Drafts:
    """The source of drafts for a model with so many tokens.

    Args:
        draft: as of `ServeRequest`
        small: the smaller model, if `draft` names one

    Raises:
        InferenceError: it has other tokens, or makes no text
    """
    from cstool.inference.drafts import PASS_TOKENS, Guessed, LookedUp, Predicted
    from cstool.model.params import DecoderParams

    if small is None:
        return LookedUp() if draft is not None else Predicted()
    other = small.params.model
    if not isinstance(other, DecoderParams) or other.vocab_size != vocab_size:
        rule = f"must be a decoder with the {vocab_size:,} tokens of the model"
        sizes = getattr(other, "vocab_size", None)
        raise InferenceError(f"--draft: {rule}, got {other.name}" + (f" with {sizes:,}" if sizes else ""))
    return Guessed(small.walk(PASS_TOKENS, other.max_position_embeddings))


def _name(trained: str) -> str:
    """The name of a checkpoint, its folder and its step, of params.

    >>> [_name(each) for each in ("a/gpt.mdl", "runs/gpt:600", "runs/gpt/", "gpt_tiny")]
    ['gpt', 'gpt', 'gpt', 'gpt_tiny']
    """
    folder, _, step = trained.rpartition(":")
    path = Path(folder if folder and "/" not in step else trained)
    return path.resolve().name.removesuffix(".mdl").removesuffix(".yaml") or "model"
