"""Weights of a server: a checkpoint that changes gives no mixed answers, a quantised one takes little memory."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cstool.inference.verbs.answer import open_model
from cstool.serving.app import Server
from cstool.serving.verbs.serving import ServeRequest, served_model
from cstool.training.machine.memoryx.arrays import ModelArrays
from cstool.training.machine.memoryx.memoryx import MemoryX
from cstool.training.machine.precision import matrices_of_products
from tests.served_model import Answer, asked

COMPLETION = {"model": "m", "prompt": "the abc", "max_tokens": 8, "temperature": 0}


@contextmanager
def answering(checkpoint: Path, store: str) -> Iterator[tuple[Callable[..., Answer], Any]]:
    """Serve with weights in "ram" or in a "file"."""
    with open_model(checkpoint, overrides={"trainer.init.memoryx.store": store}, lanes=1, progress="none") as model:
        served = served_model(model, ServeRequest(str(checkpoint), {}, served_model_name="m"))
        app = Server(served)
        try:
            yield lambda path, document=None: asyncio.run(asked(app, path, document)), served
        finally:
            assert served.engine is not None
            served.engine.close()


def write_to(checkpoint: Path) -> None:
    """Write to a file in place; the bytes do not matter."""
    with checkpoint.open("r+b") as file:
        file.write(file.read(1))


@pytest.fixture
def copied(checkpoint, tmp_path) -> Path:
    return Path(shutil.copy(checkpoint, tmp_path / "checkpoint_60.mdl"))


def refusal(checkpoint: Path) -> dict[str, Any]:
    rule = "must stay as it is while its weights stream, it was written to; start the server again"
    return {"message": f"{checkpoint}: {rule}", "type": "server_error", "param": None, "code": "checkpoint_changed"}


def test_weights_in_memory_stay_as_they_were_read(copied):
    with answering(copied, "ram") as (ask, _):
        before = ask("/v1/completions", COMPLETION).json["choices"]
        write_to(copied)
        assert ask("/v1/completions", COMPLETION).json["choices"] == before
        assert ask("/health").json == {"status": "ok", "model": "m", "checkpoint": "changed"}


def test_weights_that_stream_from_a_file(copied):
    other = Path(shutil.copy(copied, copied.parent / "other.mdl"))
    with answering(copied, "file") as (ask, served):
        before = ask("/v1/completions", COMPLETION).json["choices"]
        assert before[0]["text"] == "defghijk"
        # The server has the old file to the end.
        os.rename(copied, copied.parent / "old.mdl")
        os.rename(other, copied)
        write_to(copied)
        assert ask("/v1/completions", COMPLETION).json["choices"] == before
        assert ask("/health").json["checkpoint"] == "changed"
        check, served.check_weights = served.check_weights, lambda: None
        write_to(copied.parent / "old.mdl")
        # The answer is under way already.
        answer = ask("/v1/completions", COMPLETION)
        assert (answer.status, answer.json["error"]) == (503, refusal(copied))
        served.check_weights = check
        for path, document in (("/v1/completions", COMPLETION), ("/v1/embeddings", COMPLETION), ("/health", None)):
            answer = ask(path, document)
            assert (answer.status, answer.json["error"]) == (503, refusal(copied))


def test_a_matrix_is_made_smaller_before_the_next_one_is_read(checkpoint, monkeypatch):
    """So memory never has all of them in float32."""
    told: list[str] = []

    def recorded(owner: Any, name: str, tell: Callable[..., str]) -> None:
        plain = getattr(owner, name)

        def call(*given: Any) -> Any:
            told.append(tell(*given))
            return plain(*given)

        monkeypatch.setattr(owner, name, call)

    recorded(ModelArrays, "load", lambda _, array, read: f"read {array.removeprefix('model.')}")
    recorded(MemoryX, "forget", lambda _, weight: f"drop {weight}")
    with open_model(checkpoint, lanes=1, precision="int8", progress="none") as model:
        matrices = matrices_of_products(model.graph)
    assert len(matrices) > 8
    assert all(told[told.index(f"read {name}") + 1] == f"drop {name}" for name in matrices)
    assert sum(each.startswith("drop") for each in told) == len(matrices)
