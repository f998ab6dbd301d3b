"""Requests that were made for another host, by a foreign page, or without the key."""

import asyncio

import pytest

from cstool.serving.guards import Guards
from tests.served_model import asked

KEY = b"0123456789abcdef"
SHOWN = {"authorization": "Bearer 0123456789abcdef"}


def answer(path: str = "/v1/models", *, key=None, method="GET", **headers):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    guards = Guards(app, {"localhost"}, key, ["https://a.example"])
    return asyncio.run(asked(guards, path, method=method, headers=headers))


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"host": "localhost:80"}, 200, None),
        ({"host": "evil.example"}, 421, "this server is not asked under that name"),
        ({"origin": "http://127.0.0.1:80"}, 200, None),
        ({"origin": "https://a.example"}, 200, None),
        ({"origin": "null"}, 403, "Origin: must be this server or of --allow_origin, got null"),
        (
            {"origin": "http://127.0.0.1:81"},
            403,
            "Origin: must be this server or of --allow_origin, got http://127.0.0.1:81",
        ),
    ],
)
def test_hosts_and_origins(headers, status, message):
    found = answer(**headers)
    assert (found.status, None if status == 200 else found.json["error"]["message"]) == (status, message)
    assert found.headers["x-content-type-options"] == "nosniff"


def test_a_page_from_elsewhere():
    found = answer(method="OPTIONS", origin="https://a.example", **{"access-control-request-headers": "content-type"})
    assert (found.status, found.headers["access-control-allow-origin"]) == (204, "https://a.example")
    assert answer(origin="https://a.example").headers["vary"] == "Origin"


def test_the_key():
    assert answer(key=KEY, **SHOWN).status == 200
    # Whoever knows the key may use any name.
    assert answer(key=KEY, host="models.example", **SHOWN).status == 200
    for headers in ({}, {"authorization": "Bearer 0123456789abcdeF"}, {"authorization": "Basic 0123456789abcdef"}):
        found = answer(key=KEY, **headers)
        message = "Authorization: must be Bearer and the key of this server"
        assert (found.status, found.json["error"]["message"]) == (401, message)
        assert found.headers["www-authenticate"] == "Bearer"
    assert answer("/health", key=KEY).status == answer("/public/v1/models", key=KEY).status == 200
