"""Who looks: by the socket at the other end, or by the token; and what that user may read."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from cstool.appliance.page.viewer import Viewer, may_reach, may_read, user_of_peer, viewer_of
from cstool.foundation.http.names import is_loopback
from cstool.foundation.http.secret import read_token
from tests.page_server import token_file
from tests.unit.appliance.queue.queues import refused

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = "   0: {} {} {} 00000000:00000000 00:00000000 00000000 {:5}        0 {} 1 0000000000000000 20 4 30 10 -1\n"
HERE, THERE = "0100007F:9C40", "0100007F:21CA"
"""127.0.0.1:40000 and 127.0.0.1:8650, as a machine of the x86 family writes them"""
CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.1", 8650)
TOKEN = b"0123456789abcdef"
PROXIES = ("forwarded", "via", "x-forwarded-for", "x-real-ip")


@pytest.mark.parametrize(("listens", "connects"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")])
def test_real_socket(listens, connects):
    try:
        listener = socket.create_server(
            (listens, 0), family=socket.AF_INET6 if ":" in listens else socket.AF_INET, dualstack_ipv6=listens == "::"
        )
    except OSError:
        pytest.skip(f"nothing listens at {listens} here")
    with listener, socket.create_connection((connects, listener.getsockname()[1])) as client:
        accepted, where = listener.accept()
        with accepted:
            ends = where[:2], accepted.getsockname()[:2]
            assert user_of_peer(*ends) == os.geteuid()
            assert user_of_peer(*reversed(ends)) == os.geteuid()
            client.close()
            assert user_of_peer(*ends) is None  # it belongs to nobody, and is not root's
        with socket.create_connection((connects, listener.getsockname()[1])) as other:
            ends = other.getsockname()[:2], other.getpeername()[:2]
            assert user_of_peer(*ends) == os.geteuid()
        assert user_of_peer(*ends) is None  # though it was never accepted


@pytest.mark.parametrize(
    ("line", "user"),
    [
        (LINE.format(HERE, THERE, "01", 1000, 4711), 1000),
        (LINE.format(HERE, THERE, "01", 0, 4711), 0),
        (LINE.format(HERE, THERE, "01", 0, 0), None),  # closed
        (LINE.format(HERE, THERE, "06", 0, 0), None),  # TIME_WAIT
        (LINE.format(HERE, THERE, "04", 0, 4711), None),  # FIN_WAIT1
        (LINE.format(HERE, THERE, "01", 65534, 4711), None),  # no number here
        (LINE.format(THERE, HERE, "01", 1000, 4711), None),  # the server's end
        (LINE.format(HERE, "0100007F:21CB", "01", 1000, 4711), None),
        ("   0: damaged\n", None),
    ],
)
@pytest.mark.skipif(os.sys.byteorder == "big", reason="the lines are those of a little-endian machine")
def test_lines_of_the_kernel(tmp_path, line, user):
    (tmp_path / "tcp").write_text(HEAD + line)
    assert user_of_peer(CLIENT, SERVER, tmp_path) == user


def test_no_list(tmp_path):
    assert user_of_peer(CLIENT, SERVER, tmp_path) is None


def test_loopback():
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.0.0.1", "::", "localhost", "")))


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_viewers(monkeypatch):
    monkeypatch.setattr("cstool.appliance.page.viewer.user_of_peer", lambda client, server: 1234)
    elsewhere, me, right = (("10.0.0.2", 5), ("10.0.0.1", 80)), os.geteuid(), bearer("0123456789abcdef")
    somebody = Viewer(1234, is_here=True)
    for headers, ends, token, viewer in (
        ({}, (CLIENT, SERVER), None, somebody),
        ({}, (CLIENT, SERVER), TOKEN, somebody),
        (right, (CLIENT, SERVER), TOKEN, Viewer(me, has_token=True, is_here=True)),
        (bearer("0123456789abcdeg"), (CLIENT, SERVER), TOKEN, somebody),
        (bearer("é"), (CLIENT, SERVER), TOKEN, somebody),
        (bearer(""), (CLIENT, SERVER), None, somebody),
        ({"authorization": "Basic 0123456789abcdef"}, (CLIENT, SERVER), TOKEN, somebody),
        (right, elsewhere, TOKEN, Viewer(me, has_token=True)),
        ({}, (None, None), None, Viewer(None)),
        # A proxy says nothing of the viewer.
        *(({name: "127.0.0.1"}, (CLIENT, SERVER), None, Viewer(None)) for name in PROXIES),
    ):
        assert viewer_of(headers, *ends, token) == viewer, (headers, ends, token)
    assert not viewer_of({}, *elsewhere, TOKEN).is_here


def entry(mode: int, user: int = 4000001, group: int = 4000002) -> os.stat_result:
    return SimpleNamespace(st_mode=0o100000 | mode, st_uid=user, st_gid=group)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("user", "mode", "groups", "expected"),
    [
        (0, 0o000, set(), True),
        (None, 0o777, set(), False),
        (4000001, 0o400, set(), True),
        (4000001, 0o044, set(), False),  # the owner's bits count, and no others
        (5, 0o040, {4000002}, True),
        (5, 0o404, {4000002}, False),
        (5, 0o640, {7}, False),
        (5, 0o604, {7}, True),
    ],
)
def test_permission_bits(monkeypatch, user, mode, groups, expected):
    monkeypatch.setattr("cstool.appliance.page.viewer._groups", lambda user_id: groups)
    assert may_read(user, entry(mode)) is expected


def test_folders_on_the_way(tmp_path):
    stranger = 4000003
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    for part in (tmp_path / "a", folder):
        part.chmod(0o711)
    assert may_reach(0, folder)
    way = all(may_read(stranger, os.stat(part), bits=1) for part in folder.parents)
    assert may_reach(stranger, folder) is way
    (tmp_path / "a").chmod(0o700)
    assert not may_reach(stranger, folder)
    assert not may_reach(stranger, tmp_path / "none")


def hint(file: Path) -> str:
    return f"(umask 077; python -c 'import secrets; print(secrets.token_urlsafe())' > {file}) makes one"


def not_read(file: Path) -> tuple[str, str | None]:
    return refused(read_token, file)


NO_TOKEN = "must have a token for the page, which is 16 to 4096 letters, digits or marks on one line, has other content"


def test_token(tmp_path):
    assert read_token(token_file(tmp_path, "0123456789abcdef\n")) == TOKEN
    for mode in (0o640, 0o604, 0o620):
        file = token_file(tmp_path, "0123456789abcdef", mode)
        assert not_read(file) == (
            f"{file}: nobody else may read it, got mode {mode:04o}",
            f"chmod 600 {file}",
        )
    for content in ("", "short", "0123456789abcdef\nand more", "0123456789abcdéf", "x" * 5000):
        assert not_read(token_file(tmp_path, content)) == (f"{file}: {NO_TOKEN}", hint(file))
    if os.geteuid() == 0:
        os.chown(file, 4000001, 4000001)
        assert not_read(file) == (f"{file}: must belong to root, is of 4000001", None)
    link = tmp_path / "link"
    link.symlink_to(file)
    for path, said in (
        (link, "got: Too many levels of symbolic links"),
        (tmp_path / "none", "got: No such file or directory"),
        (tmp_path, "is no file"),
    ):
        assert not_read(path) == (f"{path}: must have a token for the page, {said}", hint(path))
