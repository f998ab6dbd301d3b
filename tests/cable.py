"""A network cable between two network namespaces: it takes its time, and it can be cut.

    python -m tests.cable --ends 1234:eth0 1200:alpha --delay 0.005

Where the kernel has no `netem`, this is what delays packets: an Ethernet device (TAP) at each end, and this process
between them, which hands on a packet so much later than it came. How many go into it is settled by `tc` at the devices.
Packets are up to 64 KiB, as they are between a kernel and a network card that cuts them up itself.

It says `ready`, takes `cut` and `mend` on its standard input, and ends with that.
"""

import argparse
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from contextlib import suppress

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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
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
