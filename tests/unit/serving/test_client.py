"""The client: refusals, streams that break off, and texts that are no answers."""

import re
import socket
from contextlib import contextmanager

import pytest

from cstool.foundation.errors import AnswerError, CstoolError
from cstool.serving.client import Client
from tests.patience import PATIENCE_S, in_thread


def is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"\r\nContent-Length: (\d+)", head)
    return bool(end) and len(body) == (int(length[1]) if length else 0)


@contextmanager
def answering(content: bytes):
    """A server that gives one answer, whatever it is asked; yields its URL, and the request that came."""
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while not is_whole(b"".join(came)):
                    came.append(connection.recv(65536))
                connection.sendall(content)

        done = in_thread(answer)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/base/v1/", came
        done.result(PATIENCE_S)


def ok(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + text


def test_a_request_has_the_key_and_events_come_without_comments():
    with answering(ok(b': still at work\n\ndata: {"n": 1}\n\ndata:{"n": 2}\n\ndata: [DONE]\n\n')) as (url, came):
        assert list(Client(url, "key").events("/v1/completions", {"prompt": "a"})) == [{"n": 1}, {"n": 2}]
    head, _, body = b"".join(came).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /base/v1/completions HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer key" in head
    assert body == b'{"prompt": "a", "stream": true}'


FAILURES = [
    (ok(b'data: {"n": 1}\n\n'), "the answer broke off", None),
    (ok(b'data: {"error": {"message": "it failed", "code": "engine_error"}}\n\n'), "it failed", "engine_error"),
    (ok(b"data: {\n\n"), "must answer with JSON objects, got b'{'", None),
    (ok(b"data: 1\n\n"), "must answer with JSON objects, got b'1'", None),
    (b'HTTP/1.1 429 Busy\r\nConnection: close\r\n\r\n{"error": {"message": "wait"}}', "429: wait", None),
    (b'HTTP/1.1 401 No\r\nConnection: close\r\n\r\n{"error": "a bad key"}', "401: a bad key", None),
    (b"HTTP/1.1 502 Bad\r\nConnection: close\r\n\r\n", "502: no reason was given", None),
    (b"HTTP/1.1 502 Bad\r\nConnection: close\r\n\r\n<p>gone", "502: <p>gone", None),
    (b"", "Remote end closed connection without response", None),
]


@pytest.mark.parametrize(("content", "said", "code"), FAILURES)
def test_what_is_no_answer_is_said(content, said, code):
    with answering(content) as (url, _), pytest.raises(AnswerError) as caught:
        list(Client(url).events("/v1/completions", {}))
    assert (caught.value.message, caught.value.code) == (f"{url}: {said}", code)


def test_a_server_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(AnswerError, match=f"^{url}: Connection refused$"):
        Client(url).models()
    with pytest.raises(AnswerError, match=r"^http://a{70}: encoding with 'idna' codec failed"):
        Client(f"http://{'a' * 70}").models()


def test_models():
    with answering(ok(b'{"data": [{"id": "a"}, {"id": "b"}]}')) as (url, _):
        assert Client(url).models() == ["a", "b"]
    with answering(ok(b"{}")) as (url, _), pytest.raises(AnswerError) as caught:
        Client(url).models()
    assert caught.value.message == f"{url}: must be a server with OpenAI's API, has no list of models"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://", "http://a:b", "http://[a", "http://a?b", "http://u@a"])
def test_a_url_that_names_no_server_is_refused(url):
    with pytest.raises(CstoolError, match=f"^{re.escape(f'--url: must be as http://127.0.0.1:8000, got {url!r}')}$"):
        Client(url)


@pytest.mark.parametrize("key", ["", "a b", "a\r\nHost: b", "ä"])
def test_a_key_that_is_none(key):
    rule = "the key: must be letters, digits or marks of ASCII"
    with pytest.raises(CstoolError, match=f"^{rule}, got {len(key)} characters$"):
        Client("http://a", key)
