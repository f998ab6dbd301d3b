"""How the page is served, and what is refused before."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from cstool.appliance.page.serve import make_server, serve
from tests.page_server import TOKEN, serving, token_file
from tests.shown_jobs import Shown
from tests.unit.appliance.queue.queues import refused

SERVES = """
import sys
from pathlib import Path
from cstool.appliance.queue.root import open_root
from cstool.appliance.page.serve import serve
serve(open_root(Path(sys.argv[1]), makes=False), port=0, say=lambda line: print(line, flush=True))
print("ended", flush=True)
"""


@pytest.fixture
def root(tmp_path):
    with Shown(tmp_path / "root") as shown:
        yield shown.root


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.lab)])
def test_signal_ends_it(root, number):
    command = [sys.executable, "-c", SERVES, str(root.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip()
            with urllib.request.urlopen(f"{url}api/overview") as answer:
                assert answer.status == 200
            process.send_signal(number)
            assert (process.stdout.read(), process.wait()) == ("ended\n", 0)
        finally:
            process.kill()


def not_served(root, host="127.0.0.1", port=0, token=None) -> tuple[str, str | None]:
    return refused(lambda: serve(root, host, port, token, say=lambda line: pytest.fail(f"it says {line}")))


ANY = "--port 0 takes any that is free"


def test_what_cannot_be_listened_at(root, tmp_path):
    for host in ("0.0.0.0", "::", ""):
        message = f"--host {host}: others can reach this address, so --token_file must be given"
        assert not_served(root, host) == (message, "--host 127.0.0.1 is for this machine alone")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = f"--host 127.0.0.1 --port {port}: cannot listen there, got: Address already in use"
        assert not_served(root, port=port) == (message, ANY)
    message = "--host 192.0.2.1 --port 0: cannot listen there, got: Cannot assign requested address"
    assert not_served(root, "192.0.2.1", token=token_file(tmp_path)) == (message, ANY)
    for host in ("no.such.host.invalid", "..", "a" * 300):
        assert not_served(root, host) == (f"--host {host}: must be an address of this machine, is none", None)
    for port in (-1, 65536):
        assert not_served(root, port=port) == (f"--port: must be 0 to 65535, got {port}", None)


def test_token_file_and_queue_are_read_before_all(root, tmp_path):
    file = tmp_path / "loose"
    file.touch()
    file.chmod(0o644)  # whatever the umask
    assert not_served(root, token=file) == (f"{file}: nobody else may read it, got mode 0644", f"chmod 600 {file}")
    os.unlink(root.queue_file)
    assert str(root.folder) in not_served(root)[0]


@pytest.mark.parametrize("package", ["starlette", "uvicorn"])
def test_not_installed(package):
    code = f"import sys; sys.modules[{package!r}] = None\nfrom cstool.appliance.page.serve import make_server\n"
    code += "from cstool.foundation.errors import CstoolError\n"
    code += "try: make_server(None, '127.0.0.1', 0, None)\nexcept CstoolError as error: print(error)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = f"the page needs {package}, which is not installed\nhint: pip install 'cstool[page]'\n"
    assert (done.stdout, done.stderr) == (said, "")


def test_from_elsewhere(root, tmp_path):
    """At an address that others can reach, nothing is told without the token."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            own = probe.getsockname()[0]
    except OSError:
        pytest.skip("this machine has no address but its own")
    with serving(root, token_file(tmp_path), own) as page:
        assert page.ask("/").status == 200
        assert page.ask("/api/overview").status == 401
        answer = page.ask("/api/overview", headers={"Authorization": f"Bearer {TOKEN}"})
        assert (answer.status, answer.json["viewer"]["may_change"]) == (200, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_alone(root, host):
    if host == "::1" and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("no IPv6 here")
    server, listener = make_server(root, host, 0, None)
    with listener:
        assert listener.getsockname()[0] in ("127.0.0.1", "::1")
        assert server.config.proxy_headers is False
