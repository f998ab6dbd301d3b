"""The server over a socket: the clients of OpenAI and Cerebras, hang-ups, half requests, the end."""

import asyncio
import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cstool.foundation.errors import CstoolError
from cstool.serving.served import Limits
from cstool.serving.verbs import serving as verbs
from cstool.serving.verbs.serving import ServeRequest, made_server
from tests.patience import PATIENCE_S, wait_until
from tests.served_model import Served, serving

USER = [{"role": "user", "content": "abc"}]
MANY = {"tokens": [97] * 300_000}


@pytest.fixture(scope="module")
def server(checkpoint) -> Iterator[Served]:
    with serving(checkpoint, served_model_name="m") as found:
        yield found


def raw(server: Served, content: bytes) -> bytes:
    with socket.create_connection((server.host, server.port), PATIENCE_S) as connection:
        connection.sendall(content)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


def metrics(server: Served) -> dict[str, float]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_openai(server):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["m"]
    whole = client.completions.create(model="m", prompt="the abc", max_tokens=8, temperature=0, logprobs=1)
    assert (whole.choices[0].text, len(whole.choices[0].logprobs.tokens)) == ("defghijk", 8)
    stream = client.completions.create(model="m", prompt="the abc", max_tokens=8, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "defghijk"
    asked: dict[str, Any] = {"model": "m", "messages": USER, "max_tokens": 8, "temperature": 0}
    answer = client.chat.completions.create(**asked).choices[0].message
    text = answer.content
    # Clients send an answer back as the object that they have, or as its fields, those without a value among them.
    for message in (answer, answer.model_dump()):
        client.chat.completions.create(**asked | {"messages": [*USER, message, *USER]})
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == text
    assert chunks[-1].usage.completion_tokens == 8
    assert len(client.embeddings.create(model="m", input="abc").data[0].embedding) == 64
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**asked | {"temperature": 3})
    assert caught.value.body == {
        "message": "temperature: must be at most 2, got 3",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": "invalid_value",
    }
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("n")

    async def several() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as many:
            found = await asyncio.gather(*(many.chat.completions.create(**asked) for _ in range(8)))
            return [each.choices[0].message.content for each in found]

    assert asyncio.run(several()) == [text] * 8
    client.close()


def test_cerebras(server):
    sdk = pytest.importorskip("cerebras.cloud.sdk")
    client = sdk.Cerebras(base_url=server.url, api_key="none", max_retries=0)
    answer = client.chat.completions.create(model="m", messages=USER, max_completion_tokens=4, temperature=0)
    assert (answer.usage.completion_tokens, answer.time_info.total_time > 0) == (4, True)
    client.close()


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_hangs_up_ends_its_answer(server, streams):
    body = json.dumps({"model": "m", "prompt": "a", "max_tokens": -1, "n": 64, "stream": streams, "seed": 1}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    gone = 'cstool_http_requests_total{path="/v1/completions",status="499"}'
    begin = metrics(server)
    with socket.create_connection((server.host, server.port), PATIENCE_S) as connection:
        connection.sendall(head + body)
        while not metrics(server)["cstool_requests_running"]:
            pass
        # Part of a stream is read, so that the server is busy with it.
        read = 0
        while streams and read < 500_000:
            read += len(connection.recv(65536))
    end = time.monotonic() + PATIENCE_S
    while (found := metrics(server)).get(gone, 0) == begin.get(gone, 0) or found["cstool_requests_running"]:
        assert time.monotonic() < end
    assert found["cstool_requests_waiting"] == 0
    name = "cstool_generated_tokens_total"
    assert found[name] - begin[name] < 64 * 255


HOST = b"Host: localhost\r\n"
LAX = "lines must end with CR LF, and none may go on in the next"


@pytest.mark.parametrize(
    ("head", "status", "why"),
    [
        (
            b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
            400,
            "conflicting Content-Length headers",
        ),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +2\r\n\r\n{}", 400, "bad Content-Length"),
        (
            b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip\r\n\r\n",
            501,
            "Only Transfer-Encoding: chunked is supported",
        ),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n", 400, "illegal header line"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Missing mandatory Host: header"),
        (b"nonsense\r\n\r\n", 400, "illegal request line"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 70_000, 431, "Receive buffer too long"),
        (b"GET /health HTTP/1.1\nHost: localhost\n\n", 400, LAX),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\n\r\n", 400, LAX),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n", 400, LAX),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length:\r\n\t2\r\n\r\n{}", 400, LAX),
    ],
)
def test_requests_that_may_mean_two_things_are_refused(server, head, status, why):
    answer, _, body = raw(server, head).partition(b"\r\n\r\n")
    error = {
        "message": f"the request must be HTTP/1.1: {why}",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_http",
    }
    assert (int(answer.split()[1]), json.loads(body)) == (status, {"error": error})


def test_two_lengths_are_refused(server):
    lengths = b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    _, _, body = raw(server, b"POST /v1/completions HTTP/1.1\r\n" + HOST + lengths).partition(b"\r\n\r\n")
    rule = "Content-Length: must be left out where there is Transfer-Encoding, got both"
    assert json.loads(body)["error"]["message"] == rule


def test_a_body_has_any_ends_of_lines(server):
    body = b'{"prompt":\n\n "a"}'
    head = b"POST /tokenize HTTP/1.1\r\n" + HOST + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    last = head.replace(HOST, HOST + b"Connection: close\r\n")
    assert raw(server, head + last).count(b'{"tokens":[97],"count":1,"max_model_len":256}') == 2


def test_headers_that_do_not_come(checkpoint, monkeypatch):
    limits = Limits(headers_s=0.05, connections=1)
    monkeypatch.setattr("cstool.serving.served.Limits", lambda **_: limits)
    with serving(checkpoint, served_model_name="m") as server:
        answer = raw(server, b"GET /health HTTP/1.1\r\nHost: ")
        assert (b"408" in answer, json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]) == (
            True,
            "the headers must come within 0.05 s",
        )
        with socket.create_connection((server.host, server.port), PATIENCE_S):
            answer = raw(server, b"")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"] == "too many connections"


def posted(server: Served, path: str, document: Any) -> socket.socket:
    """Send a request, with small buffers at both ends, and return the connection."""
    wait_until(lambda: server.server.started, "the server has begun")
    server.server.servers[0].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**14)
    connection = socket.socket()
    connection.settimeout(PATIENCE_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
    connection.connect((server.host, server.port))
    body = json.dumps(document, separators=(",", ":")).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


def read_slowly(connection: socket.socket) -> Any:
    """Read an answer, a little at a time."""
    content = b""
    while part := connection.recv(4096):
        content += part
    return json.loads(content.partition(b"\r\n\r\n")[2])


def test_a_client_that_reads_slowly_gets_all_and_one_that_does_not_read_is_dropped(checkpoint, monkeypatch):
    monkeypatch.setattr("cstool.serving.served.Limits", lambda **_: Limits(write_s=0.2))
    stream = {"model": "m", "prompt": "a", "n": 128, "max_tokens": -1, "logprobs": 20, "stream": True, "seed": 1}
    with serving(checkpoint, served_model_name="m") as server:
        connections = server.server.server_state.connections
        with posted(server, "/detokenize", MANY) as slow:
            assert read_slowly(slow) == {"prompt": "a" * 300_000}
        with posted(server, "/detokenize", MANY), posted(server, "/v1/completions", stream):
            gone = 'cstool_http_requests_total{path="/v1/completions",status="499"}'
            wait_until(lambda: gone in metrics(server) and not connections, "both are dropped")
        assert metrics(server)["cstool_requests_running"] == 0


def test_an_end_waits_for_answers(checkpoint):
    with serving(checkpoint, served_model_name="m") as server:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
        body = json.dumps({"model": "m", "prompt": "a", "max_tokens": -1, "n": 8, "stream": True})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.readline()
        server.server.end()
        other = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
        other.request("GET", "/health")
        health = other.getresponse()
        assert (health.status, health.getheader("retry-after"), json.loads(health.read())["error"]["code"]) == (
            503,
            "5",
            "shutting_down",
        )
        other.close()
        assert answer.read().endswith(b"data: [DONE]\n\n")
        connection.close()


def test_an_end_waits_for_a_client_that_reads_slowly(checkpoint):
    with serving(checkpoint, served_model_name="m") as server:
        connections = server.server.server_state.connections
        with posted(server, "/detokenize", MANY) as slow:
            wait_until(lambda: any(each.transport.get_write_buffer_size() for each in connections), "it is sent")
            server.server.end()
            assert not asyncio.run(server.server.on_tick(1))
            assert read_slowly(slow) == {"prompt": "a" * 300_000}


def refused(**asked: Any) -> tuple[str, str | None]:
    with pytest.raises(CstoolError) as caught, made_server(ServeRequest("no.mdl", {}, **{"port": 0, **asked})):
        pass
    return caught.value.message, caught.value.hint


def test_what_cannot_be_served(monkeypatch, tmp_path):
    monkeypatch.delenv(verbs.KEY_VARIABLE, raising=False)
    others = "others can reach this address, so --api_key_file must be given"
    assert refused(host="0.0.0.0") == (f"--host 0.0.0.0: {others}", "--host 127.0.0.1 is for this machine alone")
    rule = "must be 16 to 4096 letters, digits or marks, got 5 characters"
    hint = "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
    assert refused(api_key="short") == (f"--api_key: {rule}", hint)
    monkeypatch.setenv(verbs.KEY_VARIABLE, "short")
    assert refused() == (f"CSTOOL_API_KEY: {rule}", hint)
    both = "--api_key: must be left out where there is --api_key_file, got both"
    assert refused(api_key="a" * 16, api_key_file=tmp_path / "key") == (both, None)
    missing = f"{tmp_path}/key: must have a key for clients, got: {os.strerror(2)}"
    assert refused(api_key_file=tmp_path / "key")[0] == missing
