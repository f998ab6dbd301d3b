"""Which names a request may have been made for."""

import pytest

pytest.importorskip("starlette")

from cstool.page.guards import Guards, host_of, own_names


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("127.0.0.1:8650", "127.0.0.1"),
        ("LocalHost", "localhost"),
        ("localhost.:80", "localhost"),
        ("[::1]:8650", "::1"),
        ("[::1]", "::1"),
        ("[::1", ""),
        ("[::1]evil", ""),
        ("localhost:evil.example", ""),
        ("localhost:80@evil.example", ""),
        ("", ""),
    ],
)
def test_host(header, host):
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("hosts", "accepted"),
    [
        (["127.0.0.1:8650"], True),
        (["[::1]:8650"], True),
        (["10.1.2.3"], True),
        (["localhost:8650"], True),
        (["Alpha:8650"], True),
        (["evil.example:8650"], False),
        (["127.0.0.1.evil.example"], False),
        (["localhost.evil.example"], False),
        (["beta"], False),
        ([""], False),
        ([], False),
        (["127.0.0.1", "evil.example"], False),
    ],
)
def test_accepts(hosts, accepted):
    guards = Guards(lambda *_: None, {"alpha"})  # type: ignore[arg-type]
    assert guards.accepts(hosts) is accepted


def test_own_names(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Alpha.example.org")
    assert own_names("0.0.0.0") == {"0.0.0.0", "alpha.example.org", "alpha"}
