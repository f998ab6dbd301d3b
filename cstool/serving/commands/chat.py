"""`cstool chat`: a conversation with a trained model, in the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cstool.foundation.errors import AnswerError, CstoolError
from cstool.foundation.plain_text import one_line
from cstool.foundation.terminal.options import flag, option
from cstool.foundation.terminal.report import print_error
from cstool.foundation.terminal.screen import TextOutput, screen_on
from cstool.serving.commands.flags import LanesFlag, PrecisionFlag, TokenizerFlag
from cstool.serving.verbs.talking import PLAIN, Answer, Talk, TalkRequest, opened_talk

MARKS = '"""'
"""around a message of several lines"""
_NO_TEMPLATE = (
    "note: this model has no chat template, so it goes on from your text; --chat_template cstool gives it turns"
)
_HELP = f"""\
/retry        another answer to the last message
/undo         takes back the last message and its answer
/reset        begins anew, with the same system text
/system TEXT  text that the conversation begins with; without TEXT there is none
/save FILE    writes the messages into a file; /load FILE goes on from one
/help         this list
A line that ends with \\ goes on in the next one, and so do all lines between {MARKS} and {MARKS}.
Ctrl-C ends an answer, Ctrl-D the conversation."""


@dataclass(frozen=True, kw_only=True)
class _ChatFlags:
    """The flags."""

    system: Annotated[str | None, option("--system", "TEXT", "Text that the conversation begins with.")] = None
    temperature: Annotated[
        float | None,
        option(
            "--temperature", "T", "0 takes the likeliest token; above 1 is bolder.", show_default="the params', else 1"
        ),
    ] = None
    top_p: Annotated[
        float | None, option("--top_p", "P", "Draw from the likeliest tokens of probability P together.")
    ] = None
    max_tokens: Annotated[
        int | None,
        option(
            "--max_tokens",
            "N",
            "Most tokens of an answer.",
            show_default="the params', else the rest of the context, or 128 without a chat template",
            min=1,
        ),
    ] = None
    stop: Annotated[
        list[str] | None, option("--stop", "TEXT", "End an answer at this text; may be given several times.")
    ] = None
    seed: Annotated[int | None, option("--seed", "N", "Of the draws; /retry takes the next one.")] = None
    adapter: Annotated[str | None, option("--adapter", "FILE", "Answer with adapters beside the checkpoint.")] = None
    precision: PrecisionFlag = None
    draft: Annotated[
        str | None,
        option("--draft", "lookup|CHECKPOINT", "Draft tokens, as `cstool serve` does; answers stay the same."),
    ] = None
    chat_template: Annotated[
        str | None,
        option("--chat_template", "cstool|plain|FILE", "Writes conversations.", show_default="the tokenizer's own"),
    ] = None
    tokenizer: TokenizerFlag = None
    context: Annotated[
        int | None,
        option("--context", "N", "Most tokens of the conversation.", show_default="the model's", min=2),
    ] = None
    lanes: LanesFlag = None
    url: Annotated[str | None, option("--url", "URL", "Server to talk with, in place of a checkpoint.")] = None
    model: Annotated[str | None, option("--model", "NAME", "Model of the server.", show_default="its only one")] = None
    api_key: Annotated[
        str | None,
        option(
            "--api_key",
            "KEY",
            "Key for the server; other users of this host can see it here.",
            show_default="the variable CSTOOL_API_KEY",
        ),
    ] = None
    verbose: Annotated[bool, flag("--verbose", "Tell tokens and times after each answer.")] = False


def chat(
    flags: _ChatFlags,
    checkpoint: Annotated[
        str | None,
        typer.Argument(
            metavar="CHECKPOINT",
            help="A checkpoint (FILE, DIR:STEP), the folder of a run, or params (its latest).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Talk with a trained model, or with a server that has OpenAI's API.

    On a terminal /help lists what can be typed. Else each line of stdin is a message, and stdout has the answers alone.
    """
    given = {name: getattr(flags, name) for name in ("temperature", "top_p", "max_tokens", "stop", "seed")}
    request = TalkRequest(
        trained=checkpoint,
        url=flags.url,
        model=flags.model,
        api_key=flags.api_key,
        system=flags.system,
        fields={name: value for name, value in given.items() if value is not None},
        adapter=flags.adapter,
        precision=flags.precision,
        draft=flags.draft,
        chat_template=flags.chat_template,
        tokenizer=flags.tokenizer,
        context=flags.context,
        lanes=flags.lanes,
    )
    if sys.stdin is None:
        raise CstoolError("stdin: must have messages, it is closed")
    with screen_on(sys.stderr) as screen, opened_talk(request, progress=screen.progress) as talk:
        if talk.is_plain and flags.chat_template != PLAIN:
            _note(_NO_TEMPLATE)
        conversation = _Conversation(talk, screen.text, is_verbose=flags.verbose)
        if sys.stdin.isatty():
            conversation.hold()
        else:
            conversation.answer_lines()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Conversation:
    """A conversation, as it is typed and shown.

    Args:
        talk: the conversation
        text: takes the answers
        is_verbose: whether tokens and times are told
    """

    def __init__(self, talk: Talk, text: TextOutput, *, is_verbose: bool) -> None:
        self._talk, self._text, self._is_verbose = talk, text, is_verbose
        self._commands: dict[str, Callable[[str], None]] = {
            "/retry": self._retry,
            "/undo": self._undo,
            "/reset": lambda _: self._talk.reset(),
            "/system": lambda text: self._talk.set_system(text or None),
            "/save": self._save,
            "/load": self._load,
            "/help": lambda _: _note(_HELP),
        }

    def answer_lines(self) -> None:
        """Answer each line of stdin.

        Raises:
            CstoolError: a line is no text, or there is no answer
        """
        for number, line in enumerate(sys.stdin.buffer, start=1):
            try:
                message = line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise CstoolError(f"stdin: line {number:,} must be text in UTF-8, got {error.reason}") from None
            if message.strip():
                self._answer(lambda message=message: self._talk.ask(message, self._text.write))  # type: ignore[misc]

    def hold(self) -> None:
        """Answer and do what is typed, until Ctrl-D; errors are told, and the conversation goes on."""
        # With this module input() edits lines, and remembers them; not every Python has it.
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
        _note("/help lists commands, Ctrl-D ends")
        while True:
            try:
                self._do(_typed())
            except EOFError:
                _note("")
                return
            except KeyboardInterrupt:
                _note("")
            except AnswerError as error:
                print_error(str(error))
                if error.code == "context_length_exceeded":
                    _note("hint: /undo takes back a message and its answer, /reset all of them")
                else:
                    self._tell_unanswered()
            except CstoolError as error:
                print_error(str(error))
            except UnicodeError:
                print_error("a message must be text in UTF-8, got other bytes")

    def _do(self, said: str) -> None:
        word, _, rest = said.partition(" ")
        if word in self._commands:
            self._commands[word](rest.strip())
        elif said.startswith("/"):
            raise CstoolError(f"{word}: must be one of {', '.join(self._commands)}", f"{MARKS}{said}{MARKS} says it")
        elif said.startswith(MARKS):
            self._say(said.removeprefix(MARKS).removesuffix(MARKS))
        else:
            self._say(said)

    def _say(self, message: str) -> None:
        if message.strip():
            self._stoppable(lambda: self._talk.ask(message, self._text.write))

    def _retry(self, _: str) -> None:
        self._stoppable(lambda: self._talk.ask_again(self._text.write))

    def _stoppable(self, answer: Callable[[], Answer]) -> None:
        """Show an answer, which Ctrl-C ends."""
        try:
            self._answer(answer)
        except KeyboardInterrupt:
            _note("interrupted")
            self._tell_unanswered()

    def _answer(self, answer: Callable[[], Answer]) -> None:
        """Show an answer, and its numbers."""
        try:
            found = answer()
        finally:
            self._text.end_line()
        if not found.text:
            self._text.write("\n")
        if self._is_verbose:
            _note(_numbers(found))

    def _tell_unanswered(self) -> None:
        if self._talk.unanswered is not None:
            _note("note: /retry sends the last message again")

    def _undo(self, _: str) -> None:
        _note(f"taken back: {one_line(self._talk.undo())[:60]}")

    def _save(self, name: str) -> None:
        count = self._talk.save(path := _path("/save", name))
        _note(f"{one_line(str(path))}: {count:,} messages")

    def _load(self, name: str) -> None:
        count = self._talk.load(path := _path("/load", name))
        _note(f"{one_line(str(path))}: {count:,} messages")
        self._tell_unanswered()


def _path(command: str, name: str) -> Path:
    if not name:
        raise CstoolError(f"{command}: must have a FILE behind it")
    return Path(os.path.expanduser(name))


def _typed() -> str:
    """The next message or command; raises EOFError at the end."""
    said = _line("> ")
    while said.endswith("\\"):
        said = f"{said[:-1]}\n{_line('. ')}"
    if said.startswith(MARKS):
        while len(said) < 2 * len(MARKS) or not said.rstrip().endswith(MARKS):
            said += f"\n{_line('. ')}"
        return said.rstrip()
    return said


def _line(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    # The prompt is no answer, and stdout has the answers alone.
    print(prompt, end="", file=sys.stderr, flush=True)
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line.removesuffix("\n")


def _numbers(answer: Answer) -> str:
    """Measured numbers of an answer.

    >>> _numbers(Answer("abc", "stop", 0.5, 1.0, 700, 640, 11))
    'first token after 0.500 s; 640 of 700 prompt tokens from memory; 11 tokens, 10.0 tokens/s, ended by stop'
    """
    parts = [f"first token after {answer.first_s:.3f} s"]
    if answer.prompt_tokens is not None:
        parts.append(f"{answer.cached_tokens or 0:,} of {answer.prompt_tokens:,} prompt tokens from memory")
    if answer.tokens is not None:
        speed = ""
        if answer.tokens > 1 and answer.rest_s > 0:
            speed = f", {(answer.tokens - 1) / answer.rest_s:,.1f} tokens/s"
        parts.append(f"{answer.tokens:,} tokens{speed}, ended by {answer.finish_reason}")
    return "; ".join(parts)
