"""Conversations: alike with a model in this process and with a server, and what is kept when one goes wrong."""

import gc
import http.client
import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from cstool.foundation.errors import AnswerError, CstoolError
from cstool.serving.client import Client
from cstool.serving.local import Local
from cstool.serving.refusals import Refused
from cstool.serving.verbs.talking import Answer, Answering, Talk, TalkRequest, opened_talk
from tests.patience import PATIENCE_S, wait_until
from tests.served_model import serving

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USAGE = {"stream_options": {"include_usage": True}}
ASKED: dict[str, Any] = {"model": "m", "max_tokens": 12, "seed": 3, "temperature": 1.5}
USER = [{"role": "user", "content": "abc"}]


class Asked(NamedTuple):
    model: Answering
    running: Callable[[], float]
    """the number of answers under way"""


@pytest.fixture(scope="module", params=["local", "client"])
def both(request, checkpoint, served) -> Iterator[Asked]:
    """A model that answers: here, and at a server."""
    if request.param == "local":
        yield Asked(Local(served), lambda: served.engine.load().running)
        return
    with serving(checkpoint, served_model_name="m", chat_template=served.template.told) as server:

        def running() -> float:
            connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
            connection.close()
            return next(float(line.split()[1]) for line in lines if line.startswith("cstool_requests_running"))

        yield Asked(Client(server.url), running)


def joined(events: list[Any]) -> list[Any]:
    """The text of events, the reason of its end, the seed, and the tokens."""
    choices = [choice for event in events for choice in event["choices"]]
    texts = [choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    return ["".join(texts), reasons, events[-1]["seed"], events[-1]["usage"]["completion_tokens"]]


# The contract of both


@pytest.mark.parametrize(("path", "fields"), [(CHAT, {"messages": USER}), (TEXT, {"prompt": "abc"})])
def test_events_are_those_of_the_server(both, ask, path, fields):
    document = {**ASKED, **USAGE, **fields}
    expected = joined(ask(path, {**document, "stream": True}).events)
    assert joined(list(both.model.events(path, document))) == expected
    assert expected[1:] == [["length"], 3, 12]


def test_a_refusal_has_its_code(both):
    with pytest.raises(AnswerError) as caught:
        list(both.model.events(TEXT, {"model": "m", "prompt": "a" * 300}))
    rule = "prompt: must have fewer tokens than the context of the model, 256, got 300"
    assert (caught.value.message.partition(": 400: ")[2] or caught.value.message, caught.value.code) == (
        rule,
        "context_length_exceeded",
    )
    with pytest.raises(AnswerError, match="temperature: must be at most 2, got 3$"):
        list(both.model.events(CHAT, {**ASKED, "temperature": 3, "messages": USER}))


def test_closing_ends_an_answer(both):
    events = both.model.events(TEXT, {**ASKED, "prompt": "a", "max_tokens": -1, "n": 64})
    next(events)
    events.close()
    wait_until(lambda: not both.running(), "the answers must end")


def test_ctrl_c_ends_an_answer(both, caplog):
    events = both.model.events(TEXT, {**ASKED, "prompt": "a", "max_tokens": -1, "n": 64})
    next(events)
    threading.Timer(0.02, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        list(events)
    wait_until(lambda: not both.running(), "the answers must end")
    assert list(both.model.events(CHAT, {**ASKED, "messages": USER}))
    gc.collect()
    assert "was destroyed" not in caplog.text


def test_a_talk_goes_on_from_its_answers(both, ask):
    talk = Talk(both.model, ASKED, system="the")
    shown: list[str] = []
    first = talk.ask("abc", shown.append)
    assert "".join(shown) == first.text
    assert (first.tokens, first.finish_reason, first.first_s > 0, first.rest_s > 0) == (12, "length", True, True)
    second = talk.ask("def", shown.append)
    said = [
        {"role": "system", "content": "the"},
        {"role": "user", "content": "abc"},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "def"},
    ]
    whole = ask(CHAT, {**ASKED, "messages": said}).json
    assert (whole["choices"][0]["message"]["content"], whole["usage"]["prompt_tokens"]) == (
        second.text,
        second.prompt_tokens,
    )
    assert talk.messages == [*said, {"role": "assistant", "content": second.text}]


# What is kept


class Scripted:
    """A model that answers as it is told to: by pieces, and an error at its end."""

    def __init__(self, *answers: Any) -> None:
        self._answers, self.asked = iter(answers), list[Any]()

    def events(self, path: str, document: Mapping[str, Any]) -> Any:
        self.asked.append((path, document))
        for piece in next(self._answers):
            if isinstance(piece, BaseException):
                raise piece
            yield piece if isinstance(piece, dict) else {"choices": [{"delta": {"content": piece}}]}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def said(ask: Callable[..., Answer], *arguments: Any) -> str:
    return ask(*arguments, lambda _: None).text


@pytest.mark.parametrize("error", [AnswerError("gone"), KeyboardInterrupt()])
def test_what_came_of_an_answer_stays(error):
    model = Scripted(["a", "b", error], [error], ["c"], [error], ["d"])
    talk = Talk(model, {"seed": 5})
    with pytest.raises(type(error)):
        said(talk.ask, "1")
    kept = [user("1"), assistant("ab")]
    assert (talk.messages, talk.unanswered) == (kept, None)
    with pytest.raises(type(error)):
        said(talk.ask, "2")
    assert (talk.messages, talk.unanswered) == (kept, "2")
    assert said(talk.ask_again) == "c"
    kept += [user("2"), assistant("c")]
    # No other answer came, so the old one stays.
    with pytest.raises(type(error)):
        said(talk.ask_again)
    assert (talk.messages, talk.unanswered) == (kept, None)
    assert said(talk.ask_again) == "d"
    assert talk.messages == [*kept[:-1], assistant("d")]
    assert [document["seed"] for _, document in model.asked] == [5, 5, 5, 6, 7]
    assert model.asked[-1][1]["messages"] == kept[:-1]


def test_an_answer_may_be_empty():
    talk = Talk(Scripted([]), {})
    assert said(talk.ask, "1") == ""
    assert talk.messages == [user("1"), assistant("")]


def test_turns_are_taken_back():
    talk = Talk(Scripted("a", "b", [AnswerError("gone")]), {}, system="s")
    system = {"role": "system", "content": "s"}
    said(talk.ask, "1")
    said(talk.ask, "2")
    with pytest.raises(AnswerError):
        said(talk.ask, "3")
    assert (talk.undo(), talk.undo()) == ("3", "2")
    talk.set_system("t")
    assert talk.messages == [{**system, "content": "t"}, user("1"), assistant("a")]
    talk.reset()
    assert (talk.messages, talk.unanswered) == ([{**system, "content": "t"}], None)
    talk.set_system(None)
    assert talk.messages == []
    for nothing in (talk.undo, lambda: said(talk.ask_again)):
        with pytest.raises(CstoolError, match="^nothing was said yet$"):
            nothing()


def test_text_goes_on_from_text():
    talk = Talk(model := Scripted([{"choices": [{"text": "b", "finish_reason": "stop"}]}], "d"), {}, is_plain=True)
    assert talk.ask("a", print).finish_reason == "stop"
    said(talk.ask, "c")
    assert model.asked[-1] == (TEXT, {**USAGE, "prompt": "abc"})


@pytest.mark.parametrize("event", [{"choices": [{}]}, {"choices": [1]}, {"choices": [{"delta": None}]}, {"choices": 1}])
def test_events_of_others(event):
    with pytest.raises(AnswerError, match="^the server must send events of OpenAI's API, got others$"):
        said(Talk(Scripted([event]), {}).ask, "1")


def test_a_server_that_counts_nothing():
    found = Talk(Scripted([{"choices": [], "usage": None}, {}]), {}).ask("1", print)
    assert (found.tokens, found.prompt_tokens, found.cached_tokens, found.finish_reason) == (None, None, None, None)


# Files


def test_messages_go_into_a_file_and_back(tmp_path):
    talk = Talk(Scripted("a", [AnswerError("gone")]), {}, system="s")
    said(talk.ask, "1")
    with pytest.raises(AnswerError):
        said(talk.ask, "ü\n")
    file = tmp_path / "chat.json"
    assert (talk.save(file), talk.save(file)) == (4, 4)
    system = {"role": "system", "content": "s"}
    assert json.loads(file.read_text()) == {"messages": [system, user("1"), assistant("a"), user("ü\n")]}
    other = Talk(Scripted("b"), {})
    assert other.load(file) == 4
    assert (other.messages, other.unanswered) == ([system, user("1"), assistant("a")], "ü\n")
    assert said(other.ask_again) == "b"
    assert [path.name for path in tmp_path.iterdir()] == ["chat.json"]


FORM = 'must be JSON as {"messages": [{"role": "user", "content": TEXT}, ...]}'
BAD_FILES = [
    ("", f"{FORM}, got: Expecting value: line 1 column 1 (char 0)"),
    ("\xff", f"{FORM}, got: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ("[]", f"{FORM}, got no messages"),
    ('{"messages": {}}', f"{FORM}, got no messages"),
    ('{"messages": [{"content": "a"}]}', "messages[0].role: must be given"),
    ('{"messages": [{"role": "user"}]}', "messages[0].content: must be given"),
    (f'{{"messages": "{"a" * 2**24}"}}', "must have at most 16,777,216 bytes"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_a_file_without_messages(tmp_path, content, message):
    file = tmp_path / "x"
    file.write_bytes(content.encode("latin-1"))
    talk = Talk(Scripted("a"), {})
    said(talk.ask, "1")
    with pytest.raises(CstoolError) as caught:
        talk.load(file)
    assert caught.value.message == f"{file}: {message}"
    with pytest.raises(CstoolError) as caught:
        talk.save(file)
    assert caught.value.message == f"{file}: must be a new file, or one of messages, got another one"
    assert (talk.messages, file.read_bytes()) == ([user("1"), assistant("a")], content.encode("latin-1"))


def test_files_that_cannot_be(tmp_path):
    talk = Talk(Scripted(), {})
    for work, name, message in (
        (talk.load, "x", "cannot be read, got: No such file or directory"),
        (talk.load, ".", "must be a file of messages, got a folder or a device"),
        (talk.load, "\0", "cannot be read, got: embedded null byte"),
        (talk.save, "x/y", "cannot be written, got: No such file or directory"),
        (talk.save, "\0", "cannot be written, got: embedded null byte"),
    ):
        with pytest.raises(CstoolError) as caught:
            work(tmp_path / name)
        assert caught.value.message == str(CstoolError(f"{tmp_path / name}: {message}"))


# Opened


def refused(**asked: Any) -> str:
    with pytest.raises(CstoolError) as caught, opened_talk(TalkRequest(**asked), progress="none"):
        pass
    return caught.value.message


def test_what_cannot_be_opened():
    begin, there = "cstool chat: must have a CHECKPOINT, or --url of a server, got", {"url": "http://127.0.0.1"}
    assert refused() == f"{begin} neither"
    assert refused(trained="a", **there) == f"{begin} both"
    for name in ("model", "api_key"):
        assert refused(trained="a", **{name: "b"}) == f"--{name}: must be left out, it goes with --url alone"
    for name in ("adapter", "precision", "draft", "tokenizer", "context", "lanes"):
        rule = f"--{name}: must be left out, it is said at the server, not with --url"
        assert refused(**there, **{name: 1}) == rule
    rule = "--chat_template: must be plain or left out with --url, got cstool"
    assert refused(**there, chat_template="cstool") == rule
    for name, value, rule in (
        ("temperature", 3.0, "must be at most 2, got 3.0"),
        ("top_p", 1.5, "must be at most 1, got 1.5"),
        ("stop", [""], "must be a text of 1 to 1024 characters, or a list of at most 4 of them"),
        ("seed", 2**63, "must be below 9.22337e+18, got 9223372036854775808"),
    ):
        assert refused(trained="a", fields={name: value}) == f"--{name}: {rule}"


def test_a_model_without_text(monkeypatch):
    def needs_tokenizer():
        raise Refused(400, "it makes vectors alone")

    encoder = SimpleNamespace(needs_tokenizer=needs_tokenizer)
    monkeypatch.setattr("cstool.serving.verbs.talking.opened", lambda *_: nullcontext(encoder))
    assert refused(trained="bert") == "bert: must be a model that makes text, makes vectors alone"


@pytest.mark.parametrize("names", [[], ["a", "b"]])
def test_a_server_of_several_models(monkeypatch, names):
    monkeypatch.setattr(Client, "models", lambda _: names)
    listed = "a, b" if names else "the models of the server, which names none"
    assert refused(url="http://127.0.0.1") == f"--model: must be one of {listed}"


def test_a_model_that_failed(served, monkeypatch):
    monkeypatch.setattr(served.engine, "failure", ValueError("no more"))
    with pytest.raises(AnswerError) as caught:
        said(Talk(Local(served), ASKED).ask, "1")
    assert caught.value.message == "the model has failed, and answers no more: no more"
