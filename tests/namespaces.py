"""Hosts in software: network namespaces with names and addresses of their own, joined by cables to a switch.

A host is what a process sees: its name, its network devices, its `/etc/hosts`. The cores, the memory and the files are
those of this machine. `tc` shapes both ends of each cable, and a process carries what goes through it (`cable.py`).
Everything is held by processes that end with this one, however that ends.
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
PROGRAMS = ("ip", "tc", "unshare", "nsenter")
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
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        with Hosts(1):
            return None
    except (OSError, subprocess.CalledProcessError, EOFError) as error:
        return f"network namespaces cannot be made: {error}"


class Hosts:
    """Hosts with a cable each. Use as a context manager.

    Args:
        count: how many
        rate: of each cable, each way, as `tc` has it
        delay_s: from one host to another [s]
    """

    def __init__(self, count: int, rate: str = "1gbit", delay_s: float = 0.0) -> None:
        self.names = NAMES[:count]
        self._rate, self._delay_s = rate, delay_s
        self._stack = ExitStack()
        self._processes: dict[str, int] = {}
        self._cables: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Hosts:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hosts.")))
            table = folder / "hosts"
            lines = [f"{NETWORK}{number} {name}" for number, name in enumerate(self.names, 1)]
            table.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
            switch = self._hold(stack, table, "switch")
            _inside(switch, "ip", "link", "add", "bridge", "type", "bridge")
            _inside(switch, "ip", "link", "set", "bridge", "up")
            for number, name in enumerate(self.names, 1):
                host = self._processes[name] = self._hold(stack, table, name)
                # Half on each of the two cables between hosts.
                self._cables[name] = _started(
                    stack,
                    *(sys.executable, "-m", "tests.cable", "--delay", str(self._delay_s / 2)),
                    *("--ends", f"{host}:eth0", f"{switch}:{name}"),
                )
                _inside(host, "ip", "address", "add", f"{NETWORK}{number}/24", "dev", "eth0")
                _inside(switch, "ip", "link", "set", name, "master", "bridge")
                for process, device in ((host, "eth0"), (switch, name)):
                    _inside(process, "ip", "link", "set", device, "up")
                    bucket = ["rate", self._rate, "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES)]
                    _inside(process, "tc", "qdisc", "replace", "dev", device, "root", "tbf", *bucket)
            start = folder / "start"
            cases = "\n".join(f"{name}) process={process} ;;" for name, process in self._processes.items())
            # Called by mpirun as ssh is: -x HOST COMMAND...
            enter = " ".join(_enter('"$process"'))
            start.write_text(f'#!/bin/sh\n[ "$1" = -x ] && shift\ncase "$1" in\n{cases}\nesac\nshift\n{enter} setsid sh -c "$*" <&0 & wait $!\n')
            start.chmod(0o755)
            self.start = start
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def _hold(self, stack: ExitStack, table: Path, name: str) -> int:
        separate = ("unshare", "--net", "--uts", "--ipc", "--mount", "--propagation", "private")
        return _started(stack, *separate, "sh", "-c", HOLD, "sh", str(table), name).pid

    def on(self, name: str, *words: str) -> Sequence[str]:
        """The command that has a command run on a host."""
        return [*_enter(str(self._processes[name])), *words]

    def mpirun(self, mpirun: str, *flags: str) -> Sequence[str]:
        """The command of an mpirun (MPICH's) of the first host that starts one rank on each."""
        by = ("-launcher", "ssh", "-launcher-exec", str(self.start), "-iface", "eth0")
        where = ("-hosts", ",".join(self.names), "-ppn", "1", "-n", str(len(self.names)))
        return self.on(self.names[0], mpirun, *by, *where, *flags)

    @property
    def environment(self) -> Mapping[str, str]:
        """What has MPI use the cables alone: the memory that hosts share here is none that hosts share."""
        return {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}

    def processes(self, name: str) -> list[int]:
        """The processes on a host, but for the one that holds it."""
        mine, found = os.readlink(f"/proc/{self._processes[name]}/ns/net"), []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdecimal() and os.readlink(folder / "ns" / "net") == mine:
                    found.append(int(folder.name))
        return [process for process in found if process != self._processes[name]]

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


def _enter(process: str) -> list[str]:
    return ["nsenter", "--target", process, "--net", "--uts", "--ipc", "--mount", f"--wd={shlex.quote(str(PROJECT))}", "--"]


def _inside(process: int, *words: str) -> None:
    """Run a command in the namespaces of a process."""
    done = subprocess.run([*_enter(str(process)), *words], capture_output=True, text=True, check=False)
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
    assert process.stdout is not None and process.stderr is not None
    if process.stdout.readline().strip() != "ready":
        raise OSError(f"{words[0]}: {process.stderr.read().strip()}")
    return process
