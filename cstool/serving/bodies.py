"""Bodies of requests: read within a limit and a time, and parsed strictly."""

from __future__ import annotations

import asyncio
import json
import math
import zlib
from typing import Any, NoReturn

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from cstool.serving.refusals import Refused

MSGPACK = ("application/vnd.msgpack", "application/msgpack", "application/x-msgpack")

MOST_DIGITS = 400
"""of a whole number; the largest float64 has 309"""


async def read_document(scope: Scope, receive: Receive, most_bytes: int, wait_s: float) -> object:
    """Return the parsed body of a request.

    Args:
        most_bytes: of the body, compressed and not
        wait_s: time for all of it to come

    Raises:
        Refused: it is too long, comes too slowly, or is no JSON
        ClientDisconnect: the client is gone
    """
    headers = Headers(scope=scope)
    kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind not in ("application/json", *MSGPACK):
        raise Refused(415, f"Content-Type: must be application/json or {MSGPACK[0]}, got {kind[:60]}")
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "gzip"):
        raise Refused(415, f"Content-Encoding: must be gzip, got {coding[:60]}")
    try:
        content: bytes | bytearray = await asyncio.wait_for(
            _read(receive, most_bytes, int(headers.get("content-length", 0))), wait_s
        )
    except TimeoutError:
        raise Refused(408, f"the body must come within {wait_s:g} s", headers={"Connection": "close"}) from None
    if coding == "gzip":
        content = _unpacked(content, most_bytes)
    return _parsed_msgpack(content) if kind in MSGPACK else parsed_json(content)


async def _read(receive: Receive, most_bytes: int, said_bytes: int) -> bytearray:
    """Read a body.

    Args:
        said_bytes: size by its header; 0 where that has none
    """
    found, size = bytearray(), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if max(size, said_bytes) <= most_bytes:
            found += part
        is_last = not message.get("more_body", False)
        # Few clients read their answer before they have sent all: what is too long is read for a while, and not kept.
        if size > most_bytes and (is_last or size > 2 * most_bytes):
            raise _too_long(most_bytes)
        if is_last:
            return found


def _too_long(most_bytes: int) -> Refused:
    return Refused(413, f"the body must have at most {most_bytes:,} bytes", headers={"Connection": "close"})


def _unpacked(content: bytes | bytearray, most_bytes: int) -> bytes:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        found = unpacker.decompress(content, most_bytes + 1)
    except zlib.error:
        raise Refused(400, "the body must be gzip, as Content-Encoding says") from None
    if len(found) > most_bytes:
        raise _too_long(most_bytes)
    if not unpacker.eof or unpacker.unused_data:
        raise Refused(400, "the body must be gzip, as Content-Encoding says")
    return found


def parsed_json(content: bytes | bytearray) -> object:
    """Return a JSON document.

    Raises:
        Refused: it is none: no UTF-8, NaN or infinity in it, a key twice in an object, or nested too deeply
    """
    try:
        return json.loads(
            content.decode("utf-8"),
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        why = f"it is no UTF-8 at byte {error.start:,}"
    except RecursionError:
        why = "it is nested too deeply"
    except json.JSONDecodeError as error:
        why = f"{error.msg} at character {error.pos:,}"
    except ValueError as error:
        why = str(error)
    raise Refused(400, f"the body must be JSON: {why}", code="invalid_json")


def _parsed_msgpack(content: bytes | bytearray) -> object:
    try:
        import msgpack
    except ModuleNotFoundError:
        raise Refused(415, "Content-Type: must be application/json, msgpack is not installed here") from None
    try:
        found: object = msgpack.unpackb(content, object_pairs_hook=_object, raw=False)
        _check_finite(found)
    except RecursionError:
        raise Refused(400, "the body must be msgpack: it is nested too deeply", code="invalid_msgpack") from None
    except Exception as error:
        why = str(error).strip() or type(error).__name__
        raise Refused(400, f"the body must be msgpack: {why}", code="invalid_msgpack") from None
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large")
    return number


def _whole(text: str) -> int:
    # Python reads a long number in the square of its digits.
    if (digits := len(text.lstrip("-"))) > MOST_DIGITS:
        raise ValueError(f"a number must have at most {MOST_DIGITS} digits, got {digits:,}")
    return int(text)


def _check_finite(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite")
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_finite(each)


def _object(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if not isinstance(key, str):
            raise ValueError("a key is no text")
        if any("\ud800" <= character <= "\udfff" for character in key):
            raise ValueError(f"the key {key[:60]!r} has half of a character")
        if key in found:
            raise ValueError(f"the key {key[:60]!r} is twice in an object")
        found[key] = value
    return found
