"""Served models: adapters beside their base, an encoder's vectors, and the end of a process by a signal."""

import asyncio
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from cstool import ask
from cstool.inference.verbs.answer import open_model
from cstool.model.graphs import SampleForm
from cstool.serving.app import Server
from cstool.serving.verbs.serving import ServeRequest, served_model
from tests.end_to_end.memoryx_files import small_params
from tests.end_to_end.runs import write_trainer
from tests.end_to_end.worked import save_random
from tests.patience import PATIENCE_S
from tests.served_model import Answer, asked

LORA = ("--lora", "rank=2,targets=all", "--lanes", 1, "--set", "trainer.init.optimizer.AdamW.learning_rate=0.1")


@pytest.fixture
def base(tmp_path, data) -> Path:
    """A small GPT with random weights."""
    file = small_params(tmp_path, data, init__loop={"max_steps": 2}, init__checkpoint={"steps": 2})
    return save_random(file, SampleForm(2, 128))


@contextmanager
def application(checkpoint: Path, **keys: Any) -> Iterator[Callable[..., Answer]]:
    """Yield a function that asks the application of a served checkpoint; `keys` are of `ServeRequest`."""
    request = ServeRequest(str(checkpoint), keys.pop("adapters", {}), served_model_name="m", **keys)
    adapters = list(request.adapters.values())
    with open_model(checkpoint, adapters=adapters, lanes=1, progress="none") as model:
        served = served_model(model, request)
        try:
            yield lambda path, document=None: asyncio.run(asked(Server(served), path, document))
        finally:
            if served.engine is not None:
                served.engine.close()


@pytest.mark.takes("a run, and answers")
def test_each_adapter_is_a_model_with_the_answers_that_it_has_alone(base, tmp_path, cstool):
    run = ("run", "-p", base.with_suffix(".yaml"), *LORA, "--checkpoint_path", base, "--model_dir", tmp_path / "lora")
    assert cstool(*run).code == 0
    adapter = tmp_path / "lora" / "checkpoint_2.mdl"
    typed = ("run", "--mode", "infer", "--tokenizer", "bytes", "--prompt", "12", "--max_tokens", 8, "--temperature", 0)
    alone = [
        cstool(*typed, "--json", *more).document["completions"][0]["text"]
        for more in (("--checkpoint_path", base), ("--adapter", adapter))
    ]
    assert alone[0] != alone[1]
    completion = {"prompt": "12", "max_tokens": 8, "temperature": 0}
    with application(base, adapters={"tuned": str(adapter)}, tokenizer="bytes") as ask_for:
        assert [(each["id"], each.get("parent")) for each in ask_for("/v1/models").json["data"]] == [
            ("m", None),
            ("tuned", "m"),
        ]
        # They take turns: neither finds keys and values of the other in memory.
        for name, text in zip(("m", "tuned") * 2, alone * 2, strict=True):
            assert ask_for("/v1/completions", {"model": name, **completion}).json["choices"][0]["text"] == text
        error = ask_for("/v1/completions", {"model": "other", **completion}).json["error"]
        assert (error["message"], error["code"]) == ("model: must be one of m, tuned, got 'other'", "model_not_found")
        error = ask_for("/v1/embeddings", {"model": "tuned", "input": "12"}).json["error"]
        assert error["message"] == "model: must be m for vectors, which is without adapters, got tuned"


def test_an_encoder_makes_vectors_alone(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    sizes = {"vocab_size": len(words), "max_position_embeddings": 16, "hidden_size": 16, "filter_size": 32}
    model = {"name": "bert", "num_heads": 2, "num_hidden_layers": 1, "pooler_nonlinearity": "tanh", **sizes}
    init = {"model": model, "model_dir": str(tmp_path / "dir"), "seed": 1}
    checkpoint = save_random(write_trainer(tmp_path / "bert.yaml", init), SampleForm(4, 2))
    texts, vocabulary = ["the cat", "sat"], str(tmp_path / "vocab.txt")
    with application(checkpoint, tokenizer=vocabulary) as ask_for:
        assert ask_for("/health").json["status"] == "ok"
        for pooling in ("mean", "first", "pooled"):
            expected = ask(checkpoint, texts, embed=pooling, tokenizer=vocabulary).embeddings
            found = ask_for("/v1/embeddings", {"model": "m", "input": texts, "pooling": pooling}).json
            vectors = [each["embedding"] for each in found["data"]]
            np.testing.assert_array_equal(np.array(vectors, np.float32), expected)
            assert found["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
        for path, document, message in (
            ("/v1/embeddings", {"input": [5, 6]}, "input: must be texts for an encoder, got tokens"),
            (
                "/v1/embeddings",
                {"input": "cat", "pooling": "last"},
                "pooling: must be mean or first or pooled for this model, got last",
            ),
            ("/v1/completions", {"prompt": "cat"}, "model: must be one that makes text, m makes vectors alone"),
        ):
            answer = ask_for(path, {"model": "m", **document})
            assert (answer.status, answer.json["error"]["message"]) == (400, message)


@pytest.mark.takes("a signal to a whole process, which is started for it")
def test_a_process_that_is_told_to_end_gives_its_answers_first(base):
    flags = ("--tokenizer", "bytes", "--port", "0", "--lanes", "1", "--served_model_name", "m")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "cstool", "serve", str(base), *flags]
    with subprocess.Popen(command, **pipes) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().rstrip("/\n").rpartition(":")[2])
            answers = [http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S) for _ in range(3)]
            asked_for = {"model": "m", "prompt": "12", "n": 16, "max_tokens": -1, "seed": 1}
            for connection, streams in zip(answers, (True, False), strict=False):
                body = json.dumps({**asked_for, "stream": streams})
                connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            stream = answers[0].getresponse()
            stream.readline()
            server.send_signal(signal.SIGTERM)
            answers[2].request("GET", "/health")
            assert stream.read().endswith(b"data: [DONE]\n\n")
            # The other one came before the signal, or was refused.
            other = answers[1].getresponse()
            document = json.loads(other.read())
            whole = len(document.get("choices", ())) == 16
            assert (other.status, whole) in ((200, True), (503, False))
            assert answers[2].getresponse().status in (200, 503)
            for connection in answers:
                connection.close()
            assert server.wait(PATIENCE_S) == 0
            assert server.stderr is not None
            assert "Traceback" not in server.stderr.read()
        finally:
            server.kill()
