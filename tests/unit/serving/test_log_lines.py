"""Lines that a server prints: about its model, about each request, and at a signal."""

import asyncio
import logging
import re

import pytest

from cstool.foundation.errors import InferenceError
from cstool.inference.verbs.answer import open_model
from cstool.serving.app import Server
from cstool.serving.log_lines import model_lines
from cstool.serving.served import Limits
from cstool.serving.server import DrainingServer
from cstool.serving.verbs.serving import ServeRequest, served_model
from tests.served_model import asked

LIMITS = "2 answers side by side, 393 kB for keys and values of 384 tokens"


def lines_of(checkpoint, **fields) -> list[str]:
    request = ServeRequest(str(checkpoint), {}, max_batch=2, kv_memory=400_000, served_model_name="m", **fields)
    with open_model(str(checkpoint), lanes=1, precision=request.precision, progress="none") as model:
        served = served_model(model, request)
        assert served.engine is not None
        served.engine.close()
        return model_lines(served)


def test_the_model_its_memory_and_its_limits(checkpoint):
    assert lines_of(checkpoint) == [
        "m: 83,456 weights, float32, 334 kB in memory",
        f"256 tokens of context, {LIMITS}",
    ]
    assert lines_of(checkpoint, precision="int8", context=100) == [
        "m: 83,456 weights, int8, 92.7 kB in memory",
        f"100 tokens of context, {LIMITS}",
    ]


def test_each_request_has_a_line(served, caplog):
    caplog.set_level(logging.INFO, "cstool")
    app = Server(served)

    def line(path, document=None) -> str:
        caplog.clear()
        asyncio.run(asked(app, path, document))
        return re.sub(r"\d+\.\d+ (s\b|tokens)", r"T \1", re.sub(r"[\d,]+\.\d tokens", "T tokens", caplog.messages[-1]))

    fields = {"model": "m", "prompt": "the abc", "temperature": 0}
    answered = "POST /v1/completions 200, T s, 14 tokens in (0 from memory), 16 out, ended by length; "
    found = line("/v1/completions", {**fields, "n": 2, "max_tokens": 8})
    assert found == f"{answered}first token after T s, then T tokens/s"
    found = line("/v1/completions", {**fields, "max_tokens": 8, "stop": "e", "stream": True})
    assert found.endswith("7 tokens in (0 from memory), 2 out, ended by stop; first token after T s, then T tokens/s")
    assert line("/v1/completions", {**fields, "max_tokens": 0, "echo": True}).endswith(", 0 out, ended by length")
    assert line("/v1/completions", {"model": "x", "prompt": ""}) == "POST /v1/completions 404, T s"
    assert line("/health") == "GET /health 200, T s"
    assert line("/a\nb") == "GET other 404, T s"


def test_a_signal_says_what_it_waits_for(app, caplog):
    for running, said in ((0, []), (1, ["1 answer"]), (3, ["3 answers"])):
        caplog.clear()
        DrainingServer(app, Limits(), 60.0, lambda running=running: running, lambda: None).end()
        more = "under way, at most 60 s for the rest. Another signal ends it at once."
        assert caplog.messages == [f"No more requests: {each} {more}" for each in said]


def test_a_context_longer_than_the_positions_of_the_model_is_refused(checkpoint):
    with pytest.raises(InferenceError, match="^--context: must be at most the 256 positions of the model, got 300$"):
        lines_of(checkpoint, context=300)
