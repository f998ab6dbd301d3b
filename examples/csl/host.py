"""What the host scripts of these programs share: a compiled program on the wafer, with NumPy arrays in and out."""

import argparse
import json
from types import TracebackType

import numpy as np
from cerebras.sdk.runtime.sdkruntimepybind import MemcpyDataType, MemcpyOrder, SdkRuntime


class Wafer:
    """The program in the directory that `--name` says, loaded and running until the `with` block ends.

    Attributes:
        params: what `cslc --params` set, as integers
    """

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("--name", required=True, help="the directory that cslc wrote")
        name = parser.parse_args().name
        with open(f"{name}/out.json", encoding="utf-8") as file:
            self.params = {key: int(value) for key, value in json.load(file)["params"].items()}
        self._runner = SdkRuntime(name)

    def __enter__(self) -> "Wafer":
        self._runner.load()
        self._runner.run()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._runner.stop()

    def put(self, symbol: str, values: np.ndarray, at: tuple[int, int] = (0, 0)) -> None:
        """Copy values [height, width, n] to a rectangle of PEs, n of `symbol` each; `at`: x and y of its first."""
        height, width, n = values.shape
        data, kind = values.ravel(), MemcpyDataType.MEMCPY_32BIT
        if values.dtype.itemsize == 2:  # the host's words are 32 bits, the PE's 16
            data, kind = values.view(np.uint16).astype(np.uint32).ravel(), MemcpyDataType.MEMCPY_16BIT
        self._runner.memcpy_h2d(
            self._runner.get_id(symbol), data, *at, width, height, n,
            streaming=False, order=MemcpyOrder.ROW_MAJOR, data_type=kind, nonblock=False,
        )  # fmt: skip

    def get(
        self, symbol: str, size: tuple[int, int, int], dtype: type = np.float32, at: tuple[int, int] = (0, 0)
    ) -> np.ndarray:
        """Copy `size` (height, width, n) elements of `symbol` from the PEs of a rectangle."""
        height, width, n = size
        kind, words = MemcpyDataType.MEMCPY_32BIT, np.zeros(height * width * n, dtype)
        if words.itemsize == 2:
            kind, words = MemcpyDataType.MEMCPY_16BIT, np.zeros(words.size, np.uint32)
        self._runner.memcpy_d2h(
            words, self._runner.get_id(symbol), *at, width, height, n,
            streaming=False, order=MemcpyOrder.ROW_MAJOR, data_type=kind, nonblock=False,
        )  # fmt: skip
        if kind == MemcpyDataType.MEMCPY_16BIT:
            words = words.astype(np.uint16).view(dtype)
        return words.reshape(size)

    def cycles(self) -> int:
        """The cycles between start and stop of `columns/clock.csl`, on the PE with the most; simulated."""
        size = (self.params.get("height", 1), self.params.get("width", 1), 6)
        words = self.get("stamps", size, np.uint16).astype(np.int64) << np.array([0, 16, 32] * 2)
        return int((words[:, :, 3:].sum(2) - words[:, :, :3].sum(2)).max())

    def call(self, function: str, *arguments: np.generic) -> None:
        """Start a function on all PEs, and wait until each has unblocked its command stream."""
        self._runner.launch(function, *arguments, nonblock=False)


def check(
    found: np.ndarray,
    expected: np.ndarray,
    tolerance: float = 0.0,
    *,
    picture: np.ndarray | None = None,
    of: str = "",
    upward: bool = False,
    cycles: float = 0.0,
    per: str = "",
) -> None:
    """Compare a result with that of a twin; save both, and what is drawn, in `result.npz`; say SUCCESS.

    Args:
        found: the result of the fabric
        expected: that of the twin, of the same shape
        tolerance: the largest difference that is allowed
        picture: one or two dimensions to draw
        of: what the picture shows
        upward: whether the first row is at the bottom; it is at the top otherwise
        cycles: simulated cycles that the program measured, of one `per`
        per: such as "an iteration"
    """
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64)).max(initial=0)
    assert found.shape == expected.shape, f"shapes {found.shape} and {expected.shape}"
    assert difference <= tolerance, f"largest difference {difference:.3g}, {tolerance:.3g} is allowed"
    drawn = np.zeros(0) if picture is None else picture
    np.savez(
        "result.npz",
        found=found, expected=expected, tolerance=tolerance, picture=drawn, of=of, upward=upward,
        cycles=cycles, per=per,
    )  # fmt: skip
    print("SUCCESS")
