"""Hosts in software: network namespaces with names and addresses of their own, joined by cables to a switch.

A host is what a process sees: its name, its network device, its `/etc/hosts`. The cores, the memory and the files are
those of this machine. `tc` says how much goes into both ends of a cable, and a process carries it (`cable.py`). All is
held by processes that end with this one, however that ends.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

PROJECT = Path(__file__).parents[1]
PROGRAMS = ("ip", "tc", "unshare", "nsenter", "setsid", "chrt")
NAMES = ("alpha", "beta", "gamma", "delta")
NETWORK = "10.87.0."
BURST_BYTES, QUEUE_BYTES = 2**17, 2**21
"""of `tc`'s token bucket: what may leave at once, and what waits; more is lost [bytes]"""
HOLD = 'mount --bind "$1" /etc/hosts && hostname "$2" && ip link set lo up && echo ready && exec cat'
"""what the process of a host does; it ends with its standard input"""


def why_not() -> str | None:
    """Why there can be no such hosts here; None where there can be."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid():
        return "network namespaces need root"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"there is no {missing[0]}"
    try:
        with Hosts(1):
            return None
    except OSError as error:
        return f"network namespaces cannot be made: {error}"


class Hosts:
    """Hosts with a cable each. Use as a context manager.

    Args:
        count: how many
        rate: of each cable, each way, as `tc` has it; None for cables that take no time, which cannot be cut
        delay_s: from one host to another [s]
        goes_first: whether the hosts get the cores before anything else on this machine

    Raises:
        OSError: there can be none; see `why_not`
    """

    def __init__(self, count: int, rate: str | None = "1gbit", delay_s: float = 0.0, goes_first: bool = False) -> None:
        self.names = NAMES[:count]
        self._rate, self._delay_s, self._goes_first = rate, delay_s, goes_first
        self._stack = ExitStack()
        self._holders: dict[str, int] = {}
        """the process that holds a host"""
        self._enter: dict[str, list[str]] = {}
        """what has a command run on a host"""
        self._cables: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Hosts:
        with ExitStack() as stack:
            self._stack = stack
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts.")))
            lines = [f"{NETWORK}{number} {name}" for number, name in enumerate(self.names, 1)]
            (self._folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
            switch = self._hold("switch")
            _inside(switch, "ip", "link", "add", "bridge", "type", "bridge")
            _inside(switch, "ip", "link", "set", "bridge", "up")
            for number, name in enumerate(self.names, 1):
                self._add(number, name, switch)
            self._start().chmod(0o755)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def _hold(self, name: str) -> int:
        separate = ("unshare", "--net", "--uts", "--ipc", "--mount", "--propagation", "private")
        table = str(self._folder / "hosts")
        return _started(self._stack, *separate, "sh", "-c", HOLD, "sh", table, name).pid

    def _add(self, number: int, name: str, switch: int) -> None:
        host = self._holders[name] = self._hold(name)
        self._enter[name] = _enter(host)
        if self._goes_first:
            self._enter[name] = ["chrt", "--rr", "1", *self._enter[name]]
        if self._rate is None:
            _inside(switch, *("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(host)))
        else:
            # From host to host there are two cables.
            self._cables[name] = _started(
                self._stack,
                *(sys.executable, "-m", "tests.cable", "--delay", str(self._delay_s / 2)),
                *("--ends", f"{host}:eth0", f"{switch}:{name}"),
            )
        _inside(host, "ip", "address", "add", f"{NETWORK}{number}/24", "dev", "eth0")
        _inside(switch, "ip", "link", "set", name, "master", "bridge")
        for process, device in ((host, "eth0"), (switch, name)):
            _inside(process, "ip", "link", "set", device, "up")
            if self._rate is not None:
                bucket = ["rate", self._rate, "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES)]
                _inside(process, "tc", "qdisc", "replace", "dev", device, "root", "tbf", *bucket)

    def _start(self) -> Path:
        """Write what mpirun is to use as ssh: `-x HOST COMMAND...`. As with ssh, its end is not that of the command."""
        cases = [f'{name}) setsid {shlex.join(enter)} sh -c "$*" <&0 & ;;' for name, enter in self._enter.items()]
        file = self._folder / "start"
        file.write_text(
            "\n".join(["#!/bin/sh", "shift", "host=$1", "shift", 'case "$host" in', *cases, "esac", "wait $!"])
        )
        return file

    def on(self, name: str, *words: str) -> Sequence[str]:
        """The command that has a command run on a host."""
        return [*self._enter[name], *words]

    def mpirun(self, mpirun: str, *words: str) -> Sequence[str]:
        """The command of an mpirun (MPICH's) of the first host that starts one rank on each."""
        by = ("-launcher", "ssh", "-launcher-exec", str(self._folder / "start"), "-iface", "eth0")
        where = ("-hosts", ",".join(self.names), "-ppn", "1", "-n", str(len(self.names)))
        return self.on(self.names[0], mpirun, *by, *where, *words)

    @property
    def environment(self) -> Mapping[str, str]:
        """What has MPI use the cables alone: the memory that these hosts share is none that hosts share."""
        return {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}

    def processes(self, name: str) -> list[int]:
        """The processes on a host, but for the one that holds it."""
        mine, found = os.readlink(f"/proc/{self._holders[name]}/ns/net"), []
        for folder in Path("/proc").iterdir():
            # A process may have just gone.
            with suppress(OSError):
                if folder.name.isdecimal() and os.readlink(folder / "ns" / "net") == mine:
                    found.append(int(folder.name))
        return [process for process in found if process != self._holders[name]]

    def cut(self, name: str) -> None:
        """Cut the cable of a host: what is sent through it is lost, and nobody is told."""
        self._order(name, "cut")

    def mend(self, name: str) -> None:
        """Have the cable of a host whole again."""
        self._order(name, "mend")

    def _order(self, name: str, order: str) -> None:
        stdin = self._cables[name].stdin
        assert stdin is not None
        stdin.write(f"{order}\n")
        stdin.flush()


def _enter(process: int) -> list[str]:
    separate = ("--net", "--uts", "--ipc", "--mount")
    return ["nsenter", "--target", str(process), *separate, f"--wd={PROJECT}", "--"]


def _inside(process: int, *words: str) -> None:
    """Run a command in the namespaces of a process."""
    done = subprocess.run([*_enter(process), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


def _started(stack: ExitStack, *words: str) -> subprocess.Popen[str]:
    """Start a process that says when it is ready, and ends with its standard input."""
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT
    )

    def end() -> None:
        process.kill()
        process.communicate()

    stack.callback(end)
    assert process.stdout is not None
    assert process.stderr is not None
    if process.stdout.readline().strip() != "ready":
        process.kill()
        raise OSError(f"{words[0]}: {process.stderr.read().strip()}")
    return process
