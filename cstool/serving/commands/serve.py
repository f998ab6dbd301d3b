"""`cstool serve`: a trained model over HTTP, as OpenAI's API."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cstool.foundation.errors import CstoolError
from cstool.foundation.terminal.options import argument, flag, option
from cstool.foundation.terminal.screen import screen_on
from cstool.foundation.words import BYTE_UNITS, parse_quantity
from cstool.serving.commands.flags import LanesFlag, PrecisionFlag, TokenizerFlag
from cstool.serving.verbs.serving import DRAIN_S, MOST_BATCH, MOST_QUEUE, USUAL_PORT, ServeRequest
from cstool.serving.verbs.serving import serve as run


@dataclass(frozen=True, kw_only=True)
class _ServeFlags:
    """The flags."""

    adapter: Annotated[
        list[str] | None,
        option(
            "--adapter", "NAME=FILE", "Serve adapters beside the checkpoint, by a name; may be given several times."
        ),
    ] = None
    host: Annotated[
        str, option("--host", "ADDRESS", "Address to listen at; another than this host's own needs a key.")
    ] = "127.0.0.1"
    port: Annotated[int, option("--port", "N", "Port to listen at; 0 for any.", min=0, max=65535)] = USUAL_PORT
    api_key: Annotated[
        str | None, option("--api_key", "KEY", "Key that clients show; other users of this host can see it here.")
    ] = None
    api_key_file: Annotated[
        Path | None, option("--api_key_file", "FILE", "File with the key.", show_default="the variable CSTOOL_API_KEY")
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        option("--allow_origin", "URL", "Web page from elsewhere that may ask; may be given several times."),
    ] = None
    max_batch: Annotated[int, option("--max_batch", "N", "Answers made side by side.", min=1)] = MOST_BATCH
    max_queue: Annotated[int, option("--max_queue", "N", "Answers that wait at most.", min=0)] = MOST_QUEUE
    context: Annotated[
        int | None,
        option("--context", "N", "Most tokens of a prompt and its answer.", show_default="the model's", min=2),
    ] = None
    kv_memory: Annotated[
        str | None,
        option("--kv_memory", "SIZE", "Memory for keys and values.", show_default="half of the free memory"),
    ] = None
    max_tokens: Annotated[
        int | None,
        option(
            "--max_tokens",
            "N",
            "Tokens of answers that do not say how many.",
            show_default="the params', else the rest of the context in a chat, and 16 elsewhere",
            min=1,
        ),
    ] = None
    precision: PrecisionFlag = None
    draft: Annotated[
        str | None,
        option(
            "--draft",
            "lookup|CHECKPOINT",
            "Draft tokens by the text so far, or by a smaller model of the same tokenizer; answers stay the same.",
            show_default="by predictions alone",
        ),
    ] = None
    chat_template: Annotated[
        str | None,
        option("--chat_template", "cstool|FILE", "Writes conversations.", show_default="the tokenizer's own"),
    ] = None
    tokenizer: TokenizerFlag = None
    served_model_name: Annotated[
        str | None,
        option("--served_model_name", "NAME", "Name of the model.", show_default="that of its file or folder"),
    ] = None
    drain: Annotated[float, option("--drain", "SECONDS", "Time for answers to end before the server does.", min=0)] = (
        DRAIN_S
    )
    lanes: LanesFlag = None
    verbose: Annotated[bool, flag("--verbose", "Tell tokens and times of each request on stderr.")] = False


def serve(
    checkpoint: Annotated[
        str, argument("CHECKPOINT", "A checkpoint (FILE, DIR:STEP), the folder of a run, or params (its latest).")
    ],
    flags: _ServeFlags,
) -> None:
    """Serve a trained model over HTTP, as OpenAI's API.

    The client openai asks it at http://127.0.0.1:8000/v1. Ctrl-C or SIGTERM ends it when the answers under way are
    there; a second one ends it at once.
    """
    from cstool.training.verbs.run_log import run_log

    level = "INFO" if flags.verbose else "WARNING"
    request = ServeRequest(
        checkpoint,
        _adapters(flags.adapter or []),
        host=flags.host,
        port=flags.port,
        api_key=flags.api_key,
        api_key_file=flags.api_key_file,
        allow_origin=flags.allow_origin or (),
        max_batch=flags.max_batch,
        max_queue=flags.max_queue,
        context=flags.context,
        kv_memory=None if flags.kv_memory is None else _bytes(flags.kv_memory),
        max_tokens=flags.max_tokens,
        precision=flags.precision,
        draft=flags.draft,
        chat_template=flags.chat_template,
        tokenizer=flags.tokenizer,
        served_model_name=flags.served_model_name,
        lanes=flags.lanes,
        drain_s=flags.drain,
    )
    with screen_on(sys.stderr) as screen, run_log(None, level, screen.handler, {}):
        run(request, say=lambda line: print(line, flush=True), progress=screen.progress)


def _adapters(given: list[str]) -> dict[str, str]:
    """Checkpoints of adapters by name."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, file = each.partition("=")
        if not (name and equals and file):
            raise CstoolError(f"--adapter: must be NAME=FILE, got {each}")
        if name in found:
            raise CstoolError(f"--adapter: each name must be there once, got {name} twice")
        found[name] = file
    return found


def _bytes(text: str) -> int:
    found = parse_quantity(text, BYTE_UNITS)
    if found is None or not 1 <= found < 2**63:
        raise CstoolError(f"--kv_memory: must be a size, such as 2GiB, got {text!r}")
    return int(found)
