"""A program of several PEs, compiled and simulated in this process, with a host that copies, launches and streams."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cstool.csl.compile import compile_csl
from cstool.fabric.host import Host, Rectangle
from cstool.fabric.simulation import Simulation


class Hosted:
    """`files` by name, one of them `layout.csl`; `params` are the layout's.

    Attributes:
        said: lines that the program printed
    """

    def __init__(self, folder: Path, files: Mapping[str, str], arch: str, **params: int) -> None:
        for name, text in files.items():
            (folder / name).write_text(text)
        self.program = compile_csl(folder / "layout.csl", arch=arch, params=params)
        self.said: list[str] = []
        simulation = Simulation(
            self.program, max_cycles=2_000_000, on_say=lambda _time, _pe, line: self.said.append(line)
        )
        self.host = Host(simulation)
        self._everywhere = Rectangle(0, 0, self.program.width, self.program.height)

    def put(self, name: str, values: np.ndarray) -> None:
        """Copy values to a symbol of all PEs, those of the first PE first."""
        words, bits = _words(values)
        at = self._everywhere
        self.host.finish(self.host.copy_in(name, at, words.reshape(at.height, at.width, -1), bits, words.size))

    def get(self, name: str, count: int, kind: Any = np.float32) -> np.ndarray:
        """`count` elements of a symbol of all PEs: [height, width, count]."""
        command = self.host.copy_out(name, self._everywhere, count, 8 * np.dtype(kind).itemsize)
        self.host.finish(command)
        assert command.result is not None
        return _typed(command.result, kind)

    def launch(self, name: str, *arguments: float) -> None:
        """Start a function on all PEs, and wait for all of them."""
        self.host.finish(self.host.launch(name, arguments))

    def send(self, color: int, values: np.ndarray) -> None:
        """Stream values to PE 0.0."""
        words, bits = _words(values)
        self.host.stream_in(color, Rectangle(0, 0, 1, 1), words.reshape(1, 1, -1), bits)

    def take(self, color: int, count: int, kind: Any = np.float32) -> np.ndarray:
        """Wavelets of PE 0.0."""
        command = self.host.stream_out(color, Rectangle(0, 0, 1, 1), count, 8 * np.dtype(kind).itemsize)
        self.host.finish(command)
        assert command.result is not None
        return _typed(command.result, kind)[0, 0]

    def stop(self) -> list[str]:
        """Let everything happen that can; what is not as it should be."""
        return self.host.stop()


def _words(values: np.ndarray) -> tuple[np.ndarray, int]:
    bits = 8 * values.dtype.itemsize
    return values.view(np.uint16 if bits == 16 else np.uint32).astype(np.uint32), bits


def _typed(words: np.ndarray, kind: Any) -> np.ndarray:
    return (words.astype(np.uint16) if np.dtype(kind).itemsize == 2 else words).view(kind)
