"""Serve the page of an appliance, on this machine alone unless a token says who may look from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cstool.jobs.root import Root

USUAL_HOST = "127.0.0.1"
USUAL_PORT = 8650


def serve(
    root: Root,
    host: str = USUAL_HOST,
    port: int = USUAL_PORT,
    token_file: Path | None = None,
    *,
    say: Callable[[str], object] = print,
) -> None:
    """Serve the page until Ctrl-C or SIGTERM.

    Args:
        root: of the appliance
        host: address to listen at; another than this machine's own needs a token
        port: to listen at; 0 for any that is free
        token_file: has the token with which a viewer may cancel and label; of this user, mode 0600
        say: takes a line, once the page is there: its address

    Raises:
        CstoolError: it cannot be served so
    """
    raise NotImplementedError
