"""A client of servers that speak OpenAI's API: streamed answers, over a connection for each."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from cstool.foundation.errors import CstoolError

WAIT_S = 600.0
"""between two signs of life of a server"""


class Client:
    """Asks a server.

    Args:
        url: of the server, such as http://127.0.0.1:8000; a path at its end, such as /v1, is left out
        api_key: that is shown; None for none

    Raises:
        CstoolError: the URL is none of a server
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname, parts.port
        except ValueError:
            parts, self._host = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not self._host:
            raise CstoolError(f"--url: must be as http://127.0.0.1:8000, got {url!r}")
        self._url, self._is_secure = url, parts.scheme == "https"
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def events(self, path: str, document: Mapping[str, Any]) -> Iterator[Any]:
        """Yield the events of a streamed answer; whoever stops reading ends it.

        Args:
            path: such as /v1/chat/completions
            document: the request

        Raises:
            CstoolError: the server is not there, refuses, or breaks off
        """
        kind = http.client.HTTPSConnection if self._is_secure else http.client.HTTPConnection
        connection = kind(self._host or "", self._port, timeout=WAIT_S)
        try:
            connection.request("POST", path, json.dumps({**document, "stream": True}).encode(), self._headers)
            response = connection.getresponse()
            if response.status != 200:
                raise CstoolError(f"{self._url}: {response.status}: {_message(response.read())}")
            yield from self._parsed(response)
        except (OSError, http.client.HTTPException) as error:
            raise CstoolError(f"{self._url}: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()

    def _parsed(self, response: http.client.HTTPResponse) -> Iterator[Any]:
        for line in response:
            if not line.startswith(b"data:"):
                continue
            content = line[5:].strip()
            if content == b"[DONE]":
                return
            try:
                event = json.loads(content)
            except ValueError:
                raise CstoolError(f"{self._url}: an event is no JSON: {content[:100]!r}") from None
            if isinstance(event, dict) and event.get("error"):
                raise CstoolError(f"{self._url}: {_message(content)}")
            yield event
        raise CstoolError(f"{self._url}: the answer broke off")


def _message(body: bytes) -> str:
    """What a server says in the body of an error.

    >>> _message(b'{"error": {"message": "n: must be 1"}}'), _message(b"gone")
    ('n: must be 1', 'gone')
    """
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace").strip() or "no reason was given"
