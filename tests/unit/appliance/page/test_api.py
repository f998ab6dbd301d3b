"""The JSON that the page lives on, from a server that is asked over real sockets."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import cstool.appliance.page
from cstool.appliance.queue.queue import Queue
from cstool.foundation.errors import CstoolError
from tests.page_server import TOKEN, Answer, Page, serving, token_file
from tests.patience import wait_until
from tests.shown_jobs import CAPACITY, Shown, name_of, one_job, step_lines

STRANGER = 4000001
ASKS = """
import encodings.idna, os, sys, urllib.error, urllib.request
user = int(sys.argv[1])
os.setgroups([]), os.setgid(user), os.setuid(user)
for url in sys.argv[2:]:
    try:
        with urllib.request.urlopen(url) as answer:
            print(answer.status, answer.read().decode())
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
"""
NAME = name_of(1)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("appliance") / "root"
    one_job(folder)
    with Shown(folder) as made:
        yield made


@pytest.fixture(scope="module")
def page(shown):
    with serving(shown.root) as served:
        yield served


@pytest.fixture(scope="module")
def change(shown, tmp_path_factory):
    with serving(shown.root, token_file(tmp_path_factory.mktemp("token"))) as served:

        def ask(path: str, body: object, headers: dict[str, str] | None = None) -> Answer:
            return served.ask(f"/api/jobs/{path}", "POST", with_token() if headers is None else headers, body)

        ask.page = served
        yield ask


def with_token(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def test_overview(page, shown):
    answer = page.ask("/api/overview")
    found = answer.json
    assert answer.status == 200
    assert found["appliance"] == {
        "supervisor": None,
        "drained": False,
        "backend": "local",
        "phases": shown.queue.counts(),
        "capacity": {**asdict(CAPACITY), "cpus": [0, 1, 2, 3]},
        "used": {"cpus": [0, 1], "memory_bytes": 2 * 10**9, "disk_bytes": 10**9, "systems": 1, "compiles": 0},
    }
    assert [job["name"] for job in found["jobs"]] == [NAME]
    assert [(span["stage"], span["cpus"], span["how"]) for span in found["spans"]] == [
        ("compile", [], "compiled"),
        ("execute", [0, 1], ""),
    ]
    assert (found["viewer"]["may_change"], found["viewer"]["has_tokens"]) == (False, False)
    assert abs(float(answer.headers["x-appliance-time"]) - time.time()) < 60


def test_what_did_not_change_is_not_sent(page, shown):
    for path in ("overview", f"jobs/{NAME}", f"jobs/{NAME}/curve", f"jobs/{NAME}/log"):
        first = page.ask(f"/api/{path}")
        again = page.ask(f"/api/{path}", headers={"If-None-Match": first.headers["etag"]})
        assert (first.status, again.status, again.body) == (200, 304, b"")
        assert again.headers["etag"] == first.headers["etag"]
        assert page.ask(f"/api/{path}", headers={"If-None-Match": '"other"'}).body == first.body
    before = page.ask("/api/overview")
    shown.queue.label(NAME, {"run": "again"})
    after = page.ask("/api/overview", headers={"If-None-Match": before.headers["etag"]})
    assert (after.status, after.json["jobs"][0]["labels"]["run"]) == (200, "again")


def test_job(page):
    found = page.ask(f"/api/jobs/{NAME}").json
    assert [stay["phase"] for stay in found["stays"]] == ["QUEUED", "COMPILING", "QUEUED", "RUNNING"]
    assert found["events"][0]["kind"] == "submitted"
    needs = {"cores": 1, "memory_bytes": 2 * 10**9, "disk_bytes": 10**9, "systems": 1, "seconds": 600.0}
    sources = {"cores": "stated", "memory_bytes": "estimated"}
    assert found["needs"] == {**needs, "limit_s": None, "sources": sources, "peak_bytes": 1_600_000_000}
    assert (found["may_read"], found["may_change"], found["max_steps"]) == (True, False, 2000)


def test_curve(page, shown):
    before = page.ask(f"/api/jobs/{NAME}/curve").json
    assert (before["steps"][0], before["steps"][-1], len(before["steps"])) == (1, 760, 254)
    last = before["progress"]["step"]
    shown.log(NAME, step_lines(last + 3, last + 3) + "| Train Device=CSX, Step=900, Loss=nan, Rate=1 samples/sec\n")
    after = page.ask(f"/api/jobs/{NAME}/curve").json
    assert after["steps"][-2:] == [last + 3, 900]
    assert after["losses"][-1] is None
    assert after["progress"] == {"step": 900, "loss": None, "rate": 1.0, "left_s": None}


def test_log(page):
    found = page.ask(f"/api/jobs/{NAME}/log").json
    assert found["text"].splitlines()[-1].startswith("2026-03-14") or "Step=900" in found["text"]
    errors = page.ask(f"/api/jobs/{NAME}/log?stream=err").json["text"]
    assert errors == "warning: Input starvation detected: 12% of the time is spent waiting\n"
    answer = page.ask(f"/api/jobs/{NAME}/log?stream=../job.json")
    assert (answer.status, answer.json["error"]) == (400, "stream: must be one of out | err")


def test_job_without_a_folder(page, shown):
    name = shown.submit(77)
    assert page.ask(f"/api/jobs/{name}/log").json == {"text": "", "bytes": 0}
    assert page.ask(f"/api/jobs/{name}/curve").json == {"steps": [], "losses": [], "progress": None}
    shown.end(name, "CANCELLED")


@pytest.mark.parametrize(
    "name",
    ["wsjob-", "wsjob-1", "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "wsjob-" + "a" * 22]
    + [NAME[:-1], NAME + "%00", NAME.upper()],
)
def test_no_such_job(page, name):
    for path in ("", "/log", "/curve"):
        answer = page.ask(f"/api/jobs/{name}{path}")
        assert (answer.status, "error" in answer.json) == (404, True)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_only_to_look_at(page, method):
    for path in ("/", "/page.js", "/api/overview", f"/api/jobs/{NAME}", f"/api/jobs/{NAME}/log"):
        answer = page.ask(path, method, with_token(), {})
        assert (answer.status, answer.json["error"]) == (405, "this can only be looked at")
        assert "GET" in answer.headers["allow"]


def test_no_changes_without_a_token_file_or_without_the_token(page, change, shown):
    before = shown.queue.job(NAME)
    none = {"error": "this page is to look at: it is served without --token_file", "hint": None}
    for what, body in (("cancel", {}), ("labels", {"labels": {"a": "b"}})):
        for headers in ({}, with_token(), with_token("")):
            answer = page.ask(f"/api/jobs/{NAME}/{what}", "POST", headers, body)
            assert (answer.status, answer.json) == (403, none)
        assert page.ask(f"/api/jobs/{NAME}/{what}").status == 405
        for headers in ({}, with_token("0123456789abcdef0124"), {"Authorization": TOKEN}, with_token("")):
            answer = change(f"{NAME}/{what}", body, headers)
            assert (answer.status, answer.json["error"]) == (401, "the token is needed to change something")
    assert shown.queue.job(NAME) == before


def test_label(change, shown):
    answer = change(f"{NAME}/labels", {"labels": {"team": None, "new": "x y"}})
    assert answer.status == 200
    assert "team" not in answer.json["labels"]
    assert shown.queue.job(NAME).labels["new"] == "x y"
    for headers, may in ((with_token(), True), ({}, False)):
        assert change.page.ask("/api/overview", headers=headers).json["viewer"]["may_change"] is may


LABELS = 'must be {"labels": {"key": "value"}}, or null for a label that is to go'
AT_ONCE = 'must be {"at_once": true} or {"at_once": false}'
NO_LINE = "label a: its value must be one line of characters that can be seen, got 'b\\nc'"


@pytest.mark.parametrize(
    ("what", "body", "status", "message"),
    [
        ("labels", b"{", 400, "must be JSON"),
        ("labels", b"[" * 60_000, 400, "must be JSON"),
        ("labels", b"\xff", 400, "must be JSON"),
        ("labels", b"[]", 400, "must be an object of JSON"),
        ("labels", b" " * 70_000, 413, "must have at most 65536 bytes"),
        ("labels", {}, 400, LABELS),
        ("labels", {"labels": {"a": 1}}, 400, LABELS),
        ("labels", {"labels": {}, "more": 1}, 400, LABELS),
        ("labels", {"labels": {"a": "b\nc"}}, 409, NO_LINE),
        ("cancel", {"at_once": 1}, 400, AT_ONCE),
        ("cancel", {"at_once": True, "more": 1}, 400, AT_ONCE),
        ("cancel", {"now": True}, 400, AT_ONCE),
    ],
)
def test_bad_changes(change, shown, what, body, status, message):
    before = shown.queue.job(NAME)
    answer = change(f"{NAME}/{what}", body)
    assert (answer.status, answer.json["error"]) == (status, message)
    assert shown.queue.job(NAME) == before


def test_cancel(change, shown):
    name = shown.submit(5)
    answer = change(f"{name}/cancel", {"at_once": False})
    assert (answer.status, answer.json["phase"]) == (200, "CANCELLED")
    again = change(f"{name}/cancel", {})
    assert again.status == 409
    assert "it is CANCELLED since" in again.json["error"]
    assert change(f"{name_of(999)}/cancel", {}).status == 404


def test_headers_of_every_answer(page):
    expected = {
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
    }
    for path, method in (("/", "GET"), ("/page.js", "GET"), ("/api/overview", "GET"), ("/none", "GET"), ("/", "POST")):
        headers = page.ask(path, method).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert {**headers, **expected} == headers
        assert not {"access-control-allow-origin", "server"} & {*headers}


def test_name_of_another_host_and_a_proxy_that_hides_who_looks(page, change):
    answer = page.ask("/api/overview", headers={"Host": "evil.example"})
    assert (answer.status, answer.body) == (421, b"This page is not served under that name.\n")
    assert "content-security-policy" in answer.headers
    assert page.ask("/api/overview", headers={"Host": f"localhost:{page.port}"}).status == 200
    proxied = {"X-Forwarded-For": "127.0.0.1"}
    answer = page.ask("/api/overview", headers=proxied)
    assert (answer.status, answer.json["error"]) == (401, "the token is needed to look from elsewhere")
    assert change.page.ask("/api/overview", headers={**proxied, **with_token()}).status == 200


def test_files(page):
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")):
        answer = page.ask(path)
        assert (answer.status, answer.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert page.ask(path, headers={"If-None-Match": answer.headers["etag"]}).status == 304
    for path in ("/../api.py", "/static/page.js", "/index.html", "/api", "/favicon.ico"):
        assert (page.ask(path).status, page.ask(path).json["error"]) == (404, "there is no such page")


def test_page_has_nothing_from_elsewhere(page):
    """No script or style in the page itself, and none of another host."""
    static = Path(cstool.appliance.page.__file__).parent / "static"
    for path in ("/", "/page.css", *(f"/{path.name}" for path in static.glob("*.js"))):
        text = page.ask(path).body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not [word for word in ("://", "innerHTML") if word in text]
    html = page.ask("/").body.decode()
    assert "style=" not in html
    assert html.count("<script") == html.count("<script src=")


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may ask as another user")
def test_log_of_somebody_else(page: Page):
    """Another user sees that there is a job, and neither its log nor its losses."""
    paths = ["overview", f"jobs/{NAME}", f"jobs/{NAME}/log", f"jobs/{NAME}/log?stream=err", f"jobs/{NAME}/curve"]
    asked = [sys.executable, "-I", "-S", "-c", ASKS, str(STRANGER), *(f"{page.url}api/{path}" for path in paths)]
    lines = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [int(line.partition(" ")[0]) for line in lines] == [200, 200, 403, 403, 403]
    overview, job, *refused = (json.loads(line.partition(" ")[2]) for line in lines)
    assert overview["viewer"]["user"] == str(STRANGER)
    assert (job["name"], job["model_dir"], job["may_read"]) == (NAME, "", False)
    assert {event["text"] for event in job["events"]} == {""}  # why a job ended may be a line of its log
    assert all(answer == {"error": "its log is not for you", "hint": None} for answer in refused)


def test_other_back_ends_are_asked(page, shown, monkeypatch):
    """A scheduler elsewhere tells nobody by itself how its jobs are; one that does not answer does no harm."""
    asked = []

    @contextlib.contextmanager
    def open_jobs(folder: Path):
        yield SimpleNamespace(jobs=lambda *, active: asked.append(f"active={active}") or fails())
        asked.append("closed")

    def fails() -> None:
        asked.append("closed")
        raise CstoolError("squeue does not answer")

    monkeypatch.setattr("cstool.appliance.queue.client.open_jobs", open_jobs)
    assert page.ask("/api/overview").status == 200
    assert asked == []
    name = shown.submit(88, backend="slurm")

    def has_asked() -> bool:
        assert page.ask("/api/overview").status == 200
        return len(asked) >= 2

    wait_until(has_asked, "the other back end must be asked")
    assert asked[:2] == ["active=True", "closed"]
    assert f'"{name}"' in page.ask("/api/overview").body.decode()
    shown.end(name)


def test_queue_that_cannot_be_read(page, monkeypatch):
    error = CstoolError("queue.db: cannot be read", "look at the disk")
    monkeypatch.setattr(Queue, "version", Mock(side_effect=error))
    answer = page.ask("/api/overview")
    assert (answer.status, answer.json) == (503, {"error": "queue.db: cannot be read", "hint": "look at the disk"})


def test_closed_connection_is_not_roots(page):
    """Who has asked, and is gone, gets nothing; and who shut down one half is still who it was."""
    connection = http.client.HTTPConnection(page.host, page.port)
    connection.request("GET", "/api/overview")
    connection.close()
    assert page.ask("/api/overview").status == 200
