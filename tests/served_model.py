"""A small model that has learnt a text of bytes, made once a session, and served: in this thread, or over a socket."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cstool.serving.verbs.serving import ServeRequest, made_server
from cstool.training.data import prepare_text
from cstool.training.data.text_request import TextRequest
from tests.end_to_end.runs import TEXT, gpt_params, run_file
from tests.patience import PATIENCE_S

CONTEXT = 256


def learn(folder: Path) -> Path:
    """Train a model of bytes on the alphabet; return its checkpoint."""
    (folder / "source.txt").write_text(TEXT)
    prepare_text([folder / "source.txt"], folder / "text", TextRequest(64, val_fraction=0.1))
    model = {
        "vocab_size": 256,
        "hidden_size": 64,
        "filter_size": 128,
        "max_position_embeddings": CONTEXT,
        "position_embedding_type": "rotary",
        "rotary_dim": 32,
    }
    file = gpt_params(
        folder,
        folder / "text" / "train",
        init__loop={"max_steps": 60},
        init__checkpoint={"steps": 60},
        init__logging={"log_steps": 60},
        fit__train_dataloader__batch_size=16,
        **{f"init__model__{key}": value for key, value in model.items()},
    )
    run_file(file)
    return folder / "model_dir" / "checkpoint_60.mdl"


class Served(NamedTuple):
    """A server in a thread of this process."""

    host: str
    port: int
    server: Any

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


@contextmanager
def serving(checkpoint: Path, **asked: Any) -> Iterator[Served]:
    """Serve a checkpoint at a free port; further fields are of `ServeRequest`."""
    request = ServeRequest(str(checkpoint), asked.pop("adapters", {}), port=0, lanes=1, **asked)
    with made_server(request) as (server, listener, _):
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            host, port = listener.getsockname()[:2]
            yield Served(host, port, server)
        finally:
            server.end()
            thread.join(PATIENCE_S)
        assert not thread.is_alive(), "the server must end"


class Answer(NamedTuple):
    """What came back: status, headers by name in lower case, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, without its last one."""
        lines = [line for line in self.body.decode().split("\n\n") if line and not line.startswith(":")]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def asked(
    app: Any,
    path: str,
    document: Any = None,
    *,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
    content: bytes | Sequence[bytes] | None = None,
) -> Answer:
    """Ask an application without a socket; the client stays until the answer is there."""
    body = content if content is not None else None if document is None else json.dumps(document).encode()
    parts = [body] if isinstance(body, bytes | None) else list(body)
    given = {
        "host": "127.0.0.1:80",
        **({"content-type": "application/json"} if body is not None else {}),
        **(headers or {}),
    }
    scope = {
        "type": "http",
        "method": method or ("GET" if body is None else "POST"),
        "path": path,
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "query_string": b"",
    }
    messages: list[Any] = []

    async def receive() -> Any:
        if parts:
            part = parts.pop(0)
            return {"type": "http.request", "body": part or b"", "more_body": bool(parts)}
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    found = {name.decode().lower(): value.decode() for name, value in messages[0]["headers"]}
    return Answer(messages[0]["status"], found, b"".join(each.get("body", b"") for each in messages[1:]))


HERMES = """\
{%- if tools %}{{ tools | tojson }}<tool_call>
{% endif %}
{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}
{%- for message in messages %}{{ message.content }}
{%- for call in message.tool_calls %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}
{% endfor %}"""
"""a chat template with a form of calls that is known"""
