"""`cstool chat`: piped, and typed at a terminal."""

import io
import json
import sys

import pytest

from cstool.cli import main
from cstool.foundation.errors import AnswerError
from cstool.serving.verbs.talking import Talk
from tests.served_model import serving

NOTE = "note: this model has no chat template, so it goes on from your text; --chat_template cstool gives it turns\n"


class Typed(io.TextIOWrapper):
    """What a person types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def chat(checkpoint, monkeypatch, capsys):
    """Run `cstool chat` on the model, or on a server; return its code, its answers and the rest."""

    def found(said: str | bytes, *flags: object, at: str | None = None, kind: type = io.TextIOWrapper):
        content = said if isinstance(said, bytes) else said.encode()
        monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(content), encoding="utf-8"))
        where = ("--url", at) if at else (checkpoint, "--lanes", 1)
        monkeypatch.setattr(sys, "argv", [*map(str, ("cstool", "chat", *where, *flags))])
        return main(), *capsys.readouterr()

    return found


def test_each_line_is_a_message_and_answers_are_those_of_the_server(chat, checkpoint):
    draws = ("--seed", 3, "--temperature", 1.5, "--max_tokens", 20, "--system", "the ", "--chat_template")
    code, stdout, stderr = here = chat("abc\n\n/undo", *draws, "cstool")
    assert (code, stderr, stdout.count("\n") >= 2) == (0, "", True)
    with serving(checkpoint, chat_template="cstool") as server:
        assert chat("abc\n\n/undo", *draws[:-1], at=server.url) == here
        plain = chat("abc\r\n", *draws, "plain", at=server.url)
    assert chat("abc\n", *draws, "plain") == plain


def test_a_model_without_a_template_goes_on(chat):
    flags = ("--temperature", 0, "--max_tokens", 5)
    assert chat("the abc\nk\n", *flags) == (0, "defgh\nlmnop\n", NOTE)
    assert len(chat("the abc\n", "--temperature", 0)[1]) == 129


def test_the_first_error_ends_lines(chat):
    rule = "prompt: must have fewer tokens than the context of the model, 256, got 304"
    code, stdout, stderr = chat(f"abc\n{'a' * 300}\ndef\n", "--max_tokens", 1, "--temperature", 0)
    assert (code, stdout, stderr) == (2, "d\n", f"{NOTE}error: {rule}\n")
    assert chat(b"\xff") == (2, "", f"{NOTE}error: stdin: line 1 must be text in UTF-8, got invalid start byte\n")


def test_no_stdin(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr(sys, "argv", ["cstool", "chat", "no.mdl"])
    assert (main(), capsys.readouterr().err) == (2, "error: stdin: must have messages, it is closed\n")


def test_numbers_of_an_answer(chat):
    stderr = chat("abc\n", "--max_tokens", 3, "--verbose", "--chat_template", "plain")[2]
    begin, middle, end = stderr.split("; ")
    assert begin.startswith("first token after 0.")
    assert middle == "0 of 3 prompt tokens from memory"
    assert end.startswith("3 tokens, ")
    assert end.endswith(" tokens/s, ended by length\n")


def typed(chat, lines: list[str], *flags: object) -> tuple[str, list[str]]:
    """Type lines; return the answers, and what was said to each line."""
    given = ("--temperature", 0, "--max_tokens", 3, "--chat_template", "plain")
    code, stdout, stderr = chat("".join(f"{line}\n" for line in lines), *given, *flags, kind=Typed)
    begin, *said, last = stderr.split("> ")
    assert (code, begin, last) == (0, "/help lists commands, Ctrl-D ends\n", "\n")
    assert len(said) == len(lines) or any(". " in each for each in said)
    return stdout, said


def test_a_conversation_is_typed(chat, tmp_path):
    file = tmp_path / "a b.json"
    stdout, said = typed(
        chat,
        ["abc", "/retry", "/undo", "  ", "xyz\\", "abc", '"""/a', 'b"""', '""""""', f"/save {file}", "/reset", "/undo"],
    )
    assert stdout == "def\ndef\ndef\ncde\n"
    assert said == ["", "", "taken back: abc\n", "", ". ", ". ", "", f"{file}: 4 messages\n", "", NOTHING]
    content = ["xyz\nabc", "def", "/a\nb", "cde"]
    assert [each["content"] for each in json.loads(file.read_text())["messages"]] == content
    stdout, said = typed(chat, [f"/load {file}", "/retry", "/system s", f"/save {file}", "/system", "/help", "/no x"])
    assert (stdout, said[0], said[3]) == ("cde\n", f"{file}: 4 messages\n", f"{file}: 5 messages\n")
    assert said[5].startswith("/retry        another answer to the last message\n")
    listed = "/retry, /undo, /reset, /system, /save, /load, /help"
    assert said[6] == f'error: /no: must be one of {listed}\nhint: """/no x""" says it\n'


NOTHING = "error: nothing was said yet\n"
AGAIN = "note: /retry sends the last message again\n"


def test_errors_are_told_and_the_conversation_goes_on(chat, tmp_path):
    stdout, said = typed(chat, ["a" * 300, "/save", f"/load {tmp_path}/x", "abc", "/undo", "/undo"])
    rule = "prompt: must have fewer tokens than the context of the model, 256, got 300"
    assert said[:3] == [
        f"error: {rule}\nhint: /undo takes back a message and its answer, /reset all of them\n",
        "error: /save: must have a FILE behind it\n",
        f"error: {tmp_path}/x: cannot be read, got: No such file or directory\n",
    ]
    assert (stdout, said[5]) == ("def\n", NOTHING)


def test_ctrl_c_and_a_server_that_is_gone(chat, monkeypatch):
    ends = iter([KeyboardInterrupt(), AnswerError("gone"), None])
    whole = Talk._stream

    def stream(talk, said, pieces, show):
        if (error := next(ends)) is None:
            return whole(talk, said, pieces, show)
        if isinstance(error, AnswerError):
            pieces.append("x")
            show("x")
        raise error

    monkeypatch.setattr(Talk, "_stream", stream)
    stdout, said = typed(chat, ["abc", "abc", "d"])
    assert said == [f"interrupted\n{AGAIN}", "error: gone\n", ""]
    assert stdout == "x\nefg\n"


def test_ctrl_c_at_the_prompt_and_bytes_that_are_no_text(chat, monkeypatch):
    lines = iter([KeyboardInterrupt(), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), EOFError()])

    def line(prompt):
        raise next(lines)

    monkeypatch.setattr("cstool.serving.commands.chat._line", line)
    found = chat("", "--chat_template", "plain", kind=Typed)
    told = "error: a message must be text in UTF-8, got other bytes"
    assert found == (0, "", f"/help lists commands, Ctrl-D ends\n\n{told}\n\n")
