"""Bodies of requests that are refused before they are looked into."""

import asyncio
import gzip
import json

import pytest

from cstool.serving.bodies import parsed_json, read_document
from cstool.serving.refusals import Refused

BODY = json.dumps({"model": "m", "prompt": "the abc", "max_tokens": 1}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "Expecting value at character 0"),
        (b'{"a": 1', "Expecting ',' delimiter at character 7"),
        (b'{"a": NaN}', "NaN is no number of JSON"),
        (b'{"a": -Infinity}', "-Infinity is no number of JSON"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": 1, "a": 2}', "the key 'a' is twice in an object"),
        (b'"\xff"', "it is no UTF-8 at byte 1"),
        (b"[" * 200_000, "it is nested too deeply"),
        (b'{"\\ud800": 1}', "the key '\\ud800' has half of a character"),
        (b"-" + b"1" * 5000, "a number must have at most 400 digits, got 5,000"),
    ],
)
def test_what_is_no_json(content, message):
    with pytest.raises(Refused) as caught:
        parsed_json(content)
    assert caught.value.status == 400
    assert caught.value.message == f"the body must be JSON: {message}"


def test_a_body_that_is_no_object(ask):
    for content in (b"[]", b"1", b"null"):
        answer = ask("/v1/completions", content=content)
        assert (answer.status, answer.json["error"]["message"]) == (400, "the body must be a JSON object")


def test_kinds(ask):
    answer = ask("/v1/completions", content=BODY, headers={"content-type": "text/plain"})
    rule = "must be application/json or application/vnd.msgpack, got text/plain"
    assert (answer.status, answer.json["error"]["message"]) == (415, f"Content-Type: {rule}")
    answer = ask("/v1/completions", content=BODY, headers={"content-encoding": "br"})
    assert (answer.status, answer.json["error"]["message"]) == (415, "Content-Encoding: must be gzip, got br")


def test_gzip(ask):
    packed = {"content-encoding": "gzip"}
    assert ask("/v1/completions", content=gzip.compress(BODY), headers=packed).status == 200
    for content in (BODY, gzip.compress(BODY)[:-9], gzip.compress(BODY) + b"more"):
        answer = ask("/v1/completions", content=content, headers=packed)
        assert (answer.status, answer.json["error"]["message"]) == (
            400,
            "the body must be gzip, as Content-Encoding says",
        )
    bomb = gzip.compress(b" " * 2**25)
    answer = ask("/v1/completions", content=bomb, headers=packed)
    assert (answer.status, answer.json["error"]["message"]) == (413, "the body must have at most 16,777,216 bytes")


def test_msgpack(ask):
    msgpack = pytest.importorskip("msgpack")
    kind = {"content-type": "application/vnd.msgpack"}
    assert ask("/v1/completions", content=msgpack.packb(json.loads(BODY)), headers=kind).status == 200
    for content in (b"\xc1", msgpack.packb({"a": float("nan")}), msgpack.packb({1: 2})):
        assert ask("/v1/completions", content=content, headers=kind).status == 400


def test_too_long(ask):
    answer = ask("/v1/completions", content=[b" " * 2**20] * 17)
    assert (answer.status, answer.json["error"]["message"]) == (413, "the body must have at most 16,777,216 bytes")
    assert answer.headers["connection"] == "close"


def test_too_slow():
    async def receive():
        await asyncio.Event().wait()

    with pytest.raises(Refused) as caught:
        asyncio.run(read_document({"type": "http", "headers": []}, receive, 10, 0.001))
    assert (caught.value.status, caught.value.message) == (408, "the body must come within 0.001 s")
