"""Who looks: by the socket at the other end, or by the token; and what that user may read."""

import os
import socket
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from cstool.errors import CstoolError
from cstool.page.viewer import Viewer, is_loopback, may_reach, may_read, read_token, user_of_peer, viewer_of

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
LINE = "   0: {} {} {} 00000000:00000000 00:00000000 00000000 {:5}        0 {} 1 0000000000000000 20 4 30 10 -1\n"
HERE, THERE = "0100007F:9C40", "0100007F:21CA"
"""127.0.0.1:40000 and 127.0.0.1:8650, as a machine of the x86 family writes them"""
CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.1", 8650)
TOKEN = b"0123456789abcdef"


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


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False)]
    + [("10.0.0.1", False), ("::", False), ("localhost", False), ("", False)],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_viewers(monkeypatch):
    monkeypatch.setattr("cstool.page.viewer.user_of_peer", lambda client, server: 1234)
    elsewhere = ("10.0.0.2", 5), ("10.0.0.1", 80)
    me = os.geteuid()
    assert viewer_of({}, CLIENT, SERVER, None) == Viewer(1234, is_here=True)
    assert viewer_of({}, CLIENT, SERVER, TOKEN) == Viewer(1234, is_here=True)
    assert viewer_of(bearer("0123456789abcdef"), CLIENT, SERVER, TOKEN) == Viewer(me, has_token=True, is_here=True)
    assert viewer_of(bearer("0123456789abcdeg"), CLIENT, SERVER, TOKEN) == Viewer(1234, is_here=True)
    assert viewer_of(bearer("é"), CLIENT, SERVER, TOKEN) == Viewer(1234, is_here=True)
    assert viewer_of(bearer(""), CLIENT, SERVER, None) == Viewer(1234, is_here=True)
    assert viewer_of({"authorization": "Basic 0123456789abcdef"}, CLIENT, SERVER, TOKEN) == Viewer(1234, is_here=True)
    assert viewer_of(bearer("0123456789abcdef"), *elsewhere, TOKEN) == Viewer(me, has_token=True)
    assert not viewer_of({}, *elsewhere, TOKEN).is_here
    assert viewer_of({}, None, None, None) == Viewer(None)


@pytest.mark.parametrize("header", ["forwarded", "via", "x-forwarded-for", "x-real-ip"])
def test_proxy_says_nothing_of_the_viewer(header):
    assert viewer_of({header: "127.0.0.1"}, CLIENT, SERVER, None) == Viewer(None)


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
    monkeypatch.setattr("cstool.page.viewer._groups", lambda user_id: groups)
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


def token_file(folder: Path, content: str, mode: int = 0o600) -> Path:
    file = folder / "token"
    file.write_text(content)
    file.chmod(mode)
    return file


def test_token(tmp_path):
    assert read_token(token_file(tmp_path, "0123456789abcdef\n")) == TOKEN


def hint(file: Path) -> str:
    return f"(umask 077; python -c 'import secrets; print(secrets.token_urlsafe())' > {file}) makes one"


def refused(file: Path) -> tuple[str, str | None]:
    with pytest.raises(CstoolError) as caught:
        read_token(file)
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_token_that_others_may_read(tmp_path, mode):
    file = token_file(tmp_path, "0123456789abcdef", mode)
    assert refused(file) == (f"{file}: nobody else may read it, got mode {mode:04o}", f"chmod 600 {file}")


@pytest.mark.parametrize("content", ["", "short", "0123456789abcdef\nand more", "0123456789abcdéf", "x" * 5000])
def test_no_token(tmp_path, content):
    file = token_file(tmp_path, content)
    rule = "must have a token for the page, which is 16 to 4096 letters, digits or marks on one line, has other content"
    assert refused(file) == (f"{file}: {rule}", hint(file))


def test_token_file_that_is_not_there(tmp_path):
    file = tmp_path / "token"
    message = f"{file}: must have a token for the page, got: No such file or directory"
    assert refused(file) == (message, hint(file))
    assert refused(tmp_path) == (f"{tmp_path}: must have a token for the page, is no file", hint(tmp_path))


def test_token_file_that_is_a_link(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(token_file(tmp_path, "0123456789abcdef"))
    message = f"{link}: must have a token for the page, got: Too many levels of symbolic links"
    assert refused(link) == (message, hint(link))


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_token_of_somebody_else(tmp_path):
    file = token_file(tmp_path, "0123456789abcdef")
    os.chown(file, 4000001, 4000001)
    assert refused(file) == (f"{file}: must belong to root, is of 4000001", None)


def test_socket_is_closed_at_once():
    """A connection that was never accepted is nobody's either."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        client = socket.create_connection(listener.getsockname())
        ends = client.getsockname(), listener.getsockname()
        assert user_of_peer(*ends) == os.geteuid()
        client.close()
        assert user_of_peer(*ends) is None
