"""Hosts in software: network namespaces with names and addresses of their own, joined by cables to a switch.

A host is what a process sees: its name, its network device, its `/etc/hosts`. The cores, the memory and the files are
those of this machine. All is held by processes that end with this one, however that ends.

    python -m tests.namespaces --ends 1234:eth0 1200:alpha --delay 0.005

is a cable: an Ethernet device (TAP) at each end, and this process between them, which hands on a packet so much later
than it came; a kernel may have no `netem`. How many go into it is settled by `tc` at the devices. Packets are up to
64 KiB, as they are between a kernel and a network card that cuts them up itself. It says `ready`, takes `cut` and
`mend` on its standard input, and ends with that.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import select
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
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
NEW_NETWORK = 0x40000000
"""CLONE_NEWNET, <linux/sched.h>"""
SET_NAME, SET_OFFLOAD = 0x400454CA, 0x400454D0
"""TUNSETIFF and TUNSETOFFLOAD, <linux/if_tun.h>"""
TAP, NO_INFORMATION, WITH_HEADER = 0x0002, 0x1000, 0x4000
"""IFF_TAP, IFF_NO_PI, IFF_VNET_HDR: frames, each behind what a network card is told of it"""
CHECKSUMS, LARGE = 0x01, 0x02
"""TUN_F_CSUM, TUN_F_TSO4: the card, which is this process, takes both over"""
LONGEST = 2**17
"""no frame has more [bytes]"""
AT_ONCE = 64
"""frames of a direction that are taken before the other has its turn"""
TICK_S = 1e-3
"""how often frames are handed on. One by one they would take twice the time of a core, which the hosts need [s]"""


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
                *(sys.executable, "-m", "tests.namespaces", "--delay", str(self._delay_s / 2)),
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


def open_end(end: str) -> int:
    """Make an Ethernet device in the network namespace of a process; the file of its other side.

    Args:
        end: the process and the name of the device, as `1234:eth0`
    """
    process, name = end.split(":")
    with open(f"/proc/{process}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace of process {process}")
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, SET_NAME, struct.pack("16sH22x", name.encode(), TAP | NO_INFORMATION | WITH_HEADER))
    fcntl.ioctl(file, SET_OFFLOAD, CHECKSUMS | LARGE)
    return file


class Direction:
    """Frames from one end to the other."""

    def __init__(self, source: int, target: int, delay_s: float) -> None:
        self._source, self._target, self._delay_s = source, target, delay_s
        self._under_way: deque[tuple[float, bytes]] = deque()
        """when each is to arrive"""

    @property
    def due_s(self) -> float | None:
        """When the next one is to arrive."""
        return self._under_way[0][0] if self._under_way else None

    def take(self, is_cut: bool) -> None:
        """Take what is there."""
        due_s = time.monotonic() + self._delay_s
        with suppress(BlockingIOError):
            for _ in range(AT_ONCE):
                frame = os.read(self._source, LONGEST)
                if not is_cut:
                    self._under_way.append((due_s, frame))

    def hand_over(self) -> None:
        """Hand over those that are due."""
        now_s = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now_s:
            # A device that takes nothing, since it is down, loses them.
            with suppress(OSError):
                os.write(self._target, self._under_way[0][1])
            self._under_way.popleft()


def carry(first: int, second: int, delay_s: float) -> None:
    """Carry frames both ways until standard input ends."""
    directions = {first: Direction(first, second, delay_s), second: Direction(second, first, delay_s)}
    orders, is_cut = sys.stdin.fileno(), False
    while True:
        due = [direction.due_s for direction in directions.values() if direction.due_s is not None]
        wait_s = max(0.0, min(due) - time.monotonic()) if due else None
        time.sleep(TICK_S)
        for file in select.select([*directions, orders], [], [], wait_s)[0]:
            if file != orders:
                directions[file].take(is_cut)
                continue
            order = os.read(orders, 64).decode()
            if not order:
                return
            is_cut = order.split()[-1] == "cut"
        for direction in directions.values():
            direction.hand_over()


def main() -> None:
    """Be a cable."""
    parser = argparse.ArgumentParser(description="be a cable")
    parser.add_argument("--ends", nargs=2, required=True, help="process:device, twice")
    parser.add_argument("--delay", type=float, required=True, help="of a frame, from end to end [s]")
    asked = parser.parse_args()
    first, second = map(open_end, asked.ends)
    # A real one does not wait for a core.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    print("ready", flush=True)
    carry(first, second, max(0.0, asked.delay - TICK_S))


if __name__ == "__main__":
    main()
