"""The client: streams, refusals, answers that break off."""

import re
import socket
import threading
from contextlib import contextmanager

import pytest

from cstool.foundation.errors import CstoolError
from cstool.serving.client import Client
from tests.patience import PATIENCE_S


@contextmanager
def answering(content: bytes):
    """A server that gives one answer, whatever it is asked; yields its URL and the request that came."""
    came: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                while b'"stream": true}' not in b"".join(came):
                    came.append(connection.recv(65536))
                connection.sendall(content)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1", came
        thread.join(PATIENCE_S)


def stream(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + text


def test_events_come_without_comments_and_the_end():
    with answering(stream(b': still at work\n\ndata: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n')) as (url, came):
        assert list(Client(url, "key").events("/v1/completions", {"prompt": "a"})) == [{"n": 1}, {"n": 2}]
    assert b"".join(came).startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert b"Authorization: Bearer key\r\n" in b"".join(came)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (stream(b'data: {"n": 1}\n\n'), "the answer broke off"),
        (stream(b'data: {"error": {"message": "the model failed"}}\n\n'), "the model failed"),
        (stream(b"data: {\n\n"), "an event is no JSON: b'{'"),
        (b'HTTP/1.1 429 Busy\r\nConnection: close\r\n\r\n{"error": {"message": "wait"}}', "429: wait"),
        (b"HTTP/1.1 502 Bad\r\nConnection: close\r\n\r\n", "502: no reason was given"),
        (b"", "Remote end closed connection without response"),
    ],
)
def test_what_is_no_answer_is_said(content, said):
    with answering(content) as (url, _), pytest.raises(CstoolError, match=f"^{re.escape(f'{url}: {said}')}$"):
        list(Client(url).events("/v1/completions", {}))


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "http://", "http://a:b", "http://[a"])
def test_a_url_that_names_no_server_is_refused(url):
    with pytest.raises(CstoolError, match=f"^{re.escape(f'--url: must be as http://127.0.0.1:8000, got {url!r}')}$"):
        Client(url)
