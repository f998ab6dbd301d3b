"""Fixtures for tests of the server: a small model, made once, and the application that answers for it."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from cstool.inference.verbs.answer import open_model
from cstool.serving.app import Server
from cstool.serving.served import Served
from cstool.serving.verbs.serving import ServeRequest, served_model
from tests.served_model import HERMES, Answer, asked, learn

Ask = Callable[..., Answer]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """A model that has learnt the alphabet, byte by byte."""
    return learn(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def served(checkpoint, tmp_path_factory) -> Iterator[Served]:
    """It, with a chat template that takes tools and has thoughts."""
    template = tmp_path_factory.mktemp("template") / "hermes.jinja"
    template.write_text(HERMES)
    request = ServeRequest(str(checkpoint), {}, served_model_name="m", chat_template=str(template))
    with open_model(str(checkpoint), lanes=1, progress="none") as model:
        found = served_model(model, request)
        try:
            yield found
        finally:
            assert found.engine is not None
            found.engine.close()


@pytest.fixture(scope="session")
def app(served) -> Server:
    return Server(served)


@pytest.fixture
def ask(app) -> Ask:
    """Ask the application, without a socket."""

    def found(path: str, document: Any = None, **keys: Any) -> Answer:
        return asyncio.run(asked(app, path, document, **keys))

    return found


@pytest.fixture
def complete(ask) -> Ask:
    return lambda **fields: ask("/v1/completions", {"model": "m", "prompt": "the abc", **fields})


@pytest.fixture
def chat(ask) -> Ask:
    messages = [{"role": "user", "content": "abc"}]
    return lambda **fields: ask("/v1/chat/completions", {"model": "m", "messages": messages, **fields})
