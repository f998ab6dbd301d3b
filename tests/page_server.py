"""The page of an appliance, served by a thread, and asked as a browser would."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cstool.appliance.page.serve import address, make_server
from cstool.appliance.queue.root import Root
from tests.patience import PATIENCE_S

TOKEN = "0123456789abcdef0123"


def token_file(folder: Path, content: str = TOKEN, mode: int = 0o600) -> Path:
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(content)
    file.chmod(mode)
    return file


class Answer(NamedTuple):
    """What came back: status, headers by name in lower case, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Page(NamedTuple):
    """A page that is served."""

    host: str
    port: int
    url: str

    def ask(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: object = None
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            connection.request(method, path, content, dict(headers or {}))
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()


@contextmanager
def serving(root: Root, token_file: Path | None = None, host: str = "127.0.0.1") -> Iterator[Page]:
    server, listener = make_server(root, host, 0, token_file)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with listener:
            where, port = listener.getsockname()[:2]
            try:
                yield Page("127.0.0.1" if where == "0.0.0.0" else where, port, address(host, listener))
            finally:
                server.should_exit = True
                thread.join(PATIENCE_S)
    finally:
        assert not thread.is_alive(), "the server of the page must end"
