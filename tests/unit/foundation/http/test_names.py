"""Names under which a server may be asked."""

from cstool.foundation.http.names import host_of, is_own, own_names


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


def test_is_own():
    names = {"localhost", "alpha"}
    for host in ("127.0.0.1:8650", "[::1]:8650", "10.1.2.3", "localhost:8650", "Alpha:8650"):
        assert is_own([host], names), host
    others = ("evil.example:8650", "127.0.0.1.evil.example", "localhost.evil.example", "beta", "")
    for hosts in (*([host] for host in others), [], ["127.0.0.1", "evil.example"]):
        assert not is_own(hosts, names), hosts


def test_own_names(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Alpha.example.org")
    assert own_names("0.0.0.0") == {"0.0.0.0", "localhost", "alpha.example.org", "alpha"}
