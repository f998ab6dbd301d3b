"""Which names a request may have been made for."""

import pytest

pytest.importorskip("starlette")

from cstool.page.guards import Guards, host_of, own_names


def test_host():
    hosts = {
        "127.0.0.1:8650": "127.0.0.1",
        "LocalHost": "localhost",
        "localhost.:80": "localhost",
        "[::1]:8650": "::1",
        "[::1]": "::1",
    }
    none = ("[::1", "[::1]evil", "localhost:evil.example", "localhost:80@evil.example", "")
    assert {header: host_of(header) for header in (*hosts, *none)} == {**hosts, **dict.fromkeys(none, "")}


def test_accepts():
    guards = Guards(lambda *_: None, {"alpha"})  # type: ignore[arg-type]
    for host in ("127.0.0.1:8650", "[::1]:8650", "10.1.2.3", "localhost:8650", "Alpha:8650"):
        assert guards.accepts([host]), host
    others = ("evil.example:8650", "127.0.0.1.evil.example", "localhost.evil.example", "beta", "")
    for hosts in (*([host] for host in others), [], ["127.0.0.1", "evil.example"]):
        assert not guards.accepts(hosts), hosts


def test_own_names(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Alpha.example.org")
    assert own_names("0.0.0.0") == {"0.0.0.0", "alpha.example.org", "alpha"}
