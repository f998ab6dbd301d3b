"""A client of servers with OpenAI's API: streamed answers, over a connection for each."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import urlsplit

from cstool.foundation.errors import AnswerError, CstoolError

CONNECT_S, WAIT_S = 30.0, 600.0
"""for a connection, and between two signs of life"""
_MOST_BYTES = 2**20
"""of a body that is no stream"""


class Client:
    """Asks a server.

    Args:
        url: of the server, such as http://127.0.0.1:8000; /v1 at its end may be there or not
        api_key: shown to the server; None for none

    Raises:
        CstoolError: the URL or the key cannot be one
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError:
            parts, self._host = urlsplit(""), ""
        if parts.scheme not in ("http", "https") or not self._host or parts.query or parts.fragment or parts.username:
            raise CstoolError(f"--url: must be as http://127.0.0.1:8000, got {url!r}")
        if api_key is not None and not (api_key and all("!" <= letter <= "~" for letter in api_key)):
            raise CstoolError(f"the key: must be letters, digits or marks of ASCII, got {len(api_key)} characters")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._url, self._path = url, parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def events(self, path: str, document: Mapping[str, Any]) -> Generator[Any, None, None]:
        """Yield the events of a streamed answer; closing the iterator ends the answer.

        Args:
            path: such as /v1/chat/completions
            document: the request

        Raises:
            AnswerError: the server is not there, refuses, or breaks off
        """
        # Closed at once, whatever ends it: the server makes the answer until then.
        with contextlib.closing(self._lines("POST", path, {**document, "stream": True})) as lines:
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                content = line[5:].strip()
                if content == b"[DONE]":
                    return
                event = self._parsed(content)
                if event.get("error"):
                    raise self._refusal("", content)
                yield event
        raise AnswerError(f"{self._url}: the answer broke off")

    def models(self) -> list[str]:
        """Return the names of the server's models.

        Raises:
            AnswerError: the server is not there, or refuses
        """
        found = self._parsed(b"".join(self._lines("GET", "/v1/models")))
        try:
            return [str(each["id"]) for each in found["data"]]
        except (KeyError, TypeError):
            raise AnswerError(f"{self._url}: must be a server with OpenAI's API, has no list of models") from None

    def _lines(self, method: str, path: str, document: Mapping[str, Any] | None = None) -> Generator[bytes, None, None]:
        """Yield the lines of an answer."""
        connection = self._kind(self._host, self._port, timeout=CONNECT_S)
        try:
            connection.connect()
            connection.sock.settimeout(WAIT_S)
            body = None if document is None else json.dumps(document).encode()
            connection.request(method, self._path + path, body, self._headers)
            with connection.getresponse() as response:
                if response.status != 200:
                    raise self._refusal(f"{response.status}: ", response.read(_MOST_BYTES))
                while line := response.readline(_MOST_BYTES):
                    yield line
        # UnicodeError: of a name of a host that is too long.
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise AnswerError(f"{self._url}: {reason}") from None
        finally:
            connection.close()

    def _parsed(self, content: bytes) -> dict[str, Any]:
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise AnswerError(f"{self._url}: must answer with JSON objects, got {content[:100]!r}")
        return found

    def _refusal(self, status: str, body: bytes) -> AnswerError:
        """The error of a body: its message, and its code."""
        try:
            error = json.loads(body)["error"]
        except (ValueError, KeyError, TypeError, RecursionError):
            error = body[:200].decode("utf-8", "replace").strip()
        code = error.get("code") if isinstance(error, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        return AnswerError(f"{self._url}: {status}{message or 'no reason was given'}", code=str(code) if code else None)
