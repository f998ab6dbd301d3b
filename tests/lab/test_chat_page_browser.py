"""The page of `cstool serve` in a real browser: typing, streams, stops, errors, reloads, keys."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("selenium")

from cstool.serving.chats import Chat
from cstool.serving.refusals import Refused
from cstool.serving.streams import event
from tests.browser import CONTRASTS, CONTROL, ENTER, ESCAPE, SHIFT, UNNAMED, Browser
from tests.patience import wait_until
from tests.served_model import Served, learn, serving

KEY = "0123456789abcdef"
CODE = "See:\n\n```html\n<b>bold</b>\n```\n<img src=x onerror=alert(1)> **as it is**"
IDLE = "document.querySelector('#stop').hidden"
SCROLLS = """[...document.querySelectorAll('#settings, #scroll, #composer, .turn')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.outerHTML)"""
"""what does not fit the width that it has"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return learn(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def server(checkpoint) -> Iterator[Served]:
    with serving(checkpoint, served_model_name="m", adapters={}) as found:
        yield found


@contextmanager
def visited(browser: Browser, server: Served) -> Iterator[None]:
    """The page, new to the browser, without a complaint. It is left before its server ends."""
    browser.view(1280)
    browser.open(f"{server.url}/")
    browser.js("sessionStorage.clear(), window.addEventListener('pagehide', () => sessionStorage.clear())")
    browser.open(f"{server.url}/")
    browser.wait("document.querySelector('#model').options.length === 1 || !document.querySelector('#keys').hidden")
    browser.complaints()
    try:
        yield
    finally:
        browser.leave()


@pytest.fixture
def page(browser, server) -> Iterator[Browser]:
    with visited(browser, server):
        setting(browser, temperature=0, max_tokens=8)
        yield browser
        # What the browser says of an answer that is no 200 is told by the page, too.
        assert [line for line in browser.complaints() if "Failed to load resource" not in line] == []


def setting(browser: Browser, **values: Any) -> None:
    for name, value in values.items():
        browser.js(f"document.querySelector('#{name}').value = ''")
        browser.click(f"#{name}")
        browser.keys(str(value))


def say(browser: Browser, text: str) -> None:
    browser.click("#text")
    browser.keys(text, ENTER)


def said(browser: Browser) -> list[str]:
    """All that was said, once nothing more comes."""
    browser.wait(IDLE)
    return list(browser.js("[...document.querySelectorAll('.turn .body')].map((one) => one.textContent)"))


def answering(monkeypatch, *texts: str, holds: bool = False) -> None:
    """Have chats answered by these texts; where it holds, no end comes until the client hangs up."""

    async def events(chat: Chat) -> Any:
        for text in texts:
            yield event({"choices": [{"delta": {"content": text}}]})
        if holds:
            await asyncio.Event().wait()

    monkeypatch.setattr(Chat, "events", events)


def test_typing_and_streaming(page, server):
    page.click("#text")
    page.driver.switch_to.active_element.send_keys("abc", SHIFT + ENTER)
    page.keys("the abc", ENTER)
    first, answer = said(page)
    assert first == "abc\nthe abc"
    assert len(answer) == 8
    assert page.text("#said") == answer
    assert page.js("document.querySelector('.answer .note').textContent").startswith("8 tokens, first after 0.")
    assert page.text(".answer .note").endswith(" tokens/s, ended by the number of tokens")
    assert page.js("document.activeElement.id") == "text"
    say(page, "more")
    assert len(said(page)) == 4
    page.click(".answer .act")
    assert said(page) == [first, answer]
    page.click("#new")
    assert said(page) == []


def test_an_answer_is_seen_while_it_comes_and_stops(page, server, monkeypatch):
    answering(monkeypatch, "one", " two", holds=True)
    for stop in (lambda: page.keys(ESCAPE), lambda: page.click("#stop")):
        say(page, "abc")
        page.wait("document.querySelector('.turn:last-child .body').textContent === 'one two'")
        assert not page.js(IDLE)
        assert page.js("document.querySelector('.turn:last-child').getAttribute('aria-busy')") == "true"
        stop()
        assert said(page)[-1] == "one two"
        assert page.js("[...document.querySelectorAll('.note')].at(-1).textContent").endswith(", stopped")
        wait_until(lambda: server.server.server_state.tasks == set(), "the server must see that the client is gone")
    assert page.js("document.activeElement.id") == "text"


def test_errors_are_as_the_server_says_them(page, monkeypatch):
    setting(page, temperature=3)
    say(page, "abc")
    said(page)
    assert page.text(".answer .fault") == "temperature: must be at most 2, got 3"
    setting(page, temperature="hot")
    page.click(".answer .act")
    said(page)
    assert page.text(".answer .fault") == "temperature: must be a number, got 'hot'"
    setting(page, temperature=0)
    page.click(".answer .act")
    assert len(said(page)[1]) == 8
    assert page.text(".answer .fault") == ""

    async def events(chat: Chat) -> Any:
        yield event({"choices": [{"delta": {"content": "a part"}}]})
        raise Refused(500, "the model failed")

    monkeypatch.setattr(Chat, "events", events)
    page.click(".answer .act")
    assert said(page)[1] == "a part"
    assert page.text(".answer .fault") == "the model failed"


def test_a_reload_keeps_the_conversation(page):
    say(page, "the abc")
    before = said(page)
    page.js("(sessionStorage.setItem('kept', '1'), location.reload())")
    page.wait("document.querySelectorAll('.turn').length === 2 && document.querySelector('#model').value === 'm'")
    assert said(page) == before
    assert page.js("document.querySelector('#max_tokens').value") == "8"
    assert page.js("document.activeElement.id") == "text"


def test_edit_and_send_again(page):
    say(page, "abc")
    said(page)
    say(page, "def")
    said(page)
    page.click(".user .act")
    assert page.js("document.querySelector('#text').value") == "abc"
    page.keys(ESCAPE)
    assert page.js("document.querySelector('#text').value") == ""
    assert len(said(page)) == 4
    page.click(".user .act")
    page.keys("d", ENTER)
    found = said(page)
    assert (len(found), found[0]) == (2, "abcd")


def test_text_is_text_and_code_is_copied(page, monkeypatch):
    answering(monkeypatch, *CODE)
    say(page, "abc")
    said(page)
    assert page.js("document.querySelectorAll('.body b, .body img').length") == 0
    assert page.text(".answer code") == "<b>bold</b>"
    prose = "[...document.querySelectorAll('.answer .prose')].map((one) => one.textContent)"
    assert page.js(prose) == ["See:", "<img src=x onerror=alert(1)> **as it is**"]
    for selector, text in ((".code button", "<b>bold</b>"), (".answer .foot button", CODE)):
        page.click(selector)
        page.wait("document.querySelector(arguments[0]).textContent === 'Copied'", selector)
        page.js("document.querySelector('#text').value = ''")
        page.click("#text")
        page.driver.switch_to.active_element.send_keys(CONTROL + "v")
        page.wait("document.querySelector('#text').value === arguments[0]", text)


def test_a_model_without_chats_goes_on_from_text(page, monkeypatch):
    def refuse(*_: Any) -> None:
        raise Refused(400, "messages: there is no chat template", "messages")

    monkeypatch.setattr("cstool.serving.app.chats.plan", refuse)
    say(page, "the abc")
    page.wait("document.querySelector('.answer .note')?.textContent.startsWith('8 tokens')")
    assert said(page) == ["the abc", "defghijk"]
    assert page.text("#alert") == "messages: there is no chat template. So it goes on from your text as it is."
    say(page, "")
    assert said(page) == ["the abc", "defghijk", "lmnopqrs"]


def test_key(browser, checkpoint):
    with serving(checkpoint, served_model_name="m", api_key=KEY) as server, visited(browser, server):
        assert browser.text("#alert") == "Authorization: must be Bearer and the key of this server"
        browser.wait("document.activeElement.id === 'key'")
        browser.keys("not the key", ENTER)
        browser.wait(
            "document.querySelector('#alert').textContent === 'An API key has letters, digits and marks alone.'"
        )
        browser.js("document.querySelector('#key').value = ''")
        browser.click("#key")
        browser.keys(KEY, ENTER)
        browser.wait("document.querySelector('#keys').hidden && document.querySelector('#model').value === 'm'")
        setting(browser, max_tokens=4)
        say(browser, "abc")
        assert len(said(browser)) == 2
        assert browser.text(".answer .fault") == ""
        assert browser.js("[sessionStorage.getItem('cstool-key'), localStorage.length, document.cookie]") == [
            KEY,
            0,
            "",
        ]


def test_looks(page, monkeypatch):
    """Light and dark, wide and narrow: nothing beside the page, nothing that cannot be read or has no name."""
    answering(monkeypatch, CODE, f"\n```\n{'long ' * 80}\n```\n{'wide' * 80}")
    say(page, "abc" * 100)
    said(page)
    setting(page, temperature=3)
    say(page, "abc")
    said(page)
    for width in (1280, 360):
        for dark in (False, True):
            page.view(width, 720, dark=dark)
            for shown in (True, False):
                page.js(
                    "document.querySelector('#settings').hidden === arguments[0] "
                    "&& document.querySelector('#toggle').click()",
                    shown,
                )
                assert page.js("document.querySelector('#settings').hidden") is not shown
                assert page.js("document.documentElement.scrollWidth") == width
                assert page.js(SCROLLS) == []
                assert page.js(CONTRASTS) == []
                assert page.js(UNNAMED) == []
            shade = page.js("getComputedStyle(document.body).backgroundColor")
            assert (sum(json.loads(shade.replace("rgb(", "[").replace(")", "]"))) < 128) is dark
