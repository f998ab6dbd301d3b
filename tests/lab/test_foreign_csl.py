"""Programs that compilers of others made into CSL, on the simulated fabric, against NumPy.

spcl/spada compiles its own language: CSTOOL_SPADA names a checkout, and its `sptlc` is on the PATH. Each twin follows
the comments of its sample.

xdslproject/wse-stencil compiles programs of MLIR by xDSL. They are not part of this project: CSTOOL_WSE_STENCIL names
a checkout, and `xdsl-opt` (xdsl 0.35) and an `mlir-opt` with test passes (Debian's mlir-19-tools has one) are on the
PATH. Its own check is statistics; here every number is compared.

Each twin follows the MLIR program, but for two mistakes of xDSL 0.35 (with MLIR 19), which are in its CSL and are said
where they are. Sums are in another order on the fabric, so float32 differs in the last bits.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from cstool.csl.sdk.platforms import MemcpyDataType, MemcpyOrder
from cstool.csl.sdk.runtime import SdkRuntime
from tests.end_to_end.pages import typed

CHECKOUT = "CSTOOL_WSE_STENCIL"
SIZE = (9, 10, 17)
"""PEs in x and y, and values on each; unlike each other"""

Near = Callable[[int, int, int], np.ndarray]
"""The values at an offset (x, y, z) from each point of the inner part."""


def average(near: Near) -> np.ndarray:
    """`smoke-test` and `loop-kernel`: six neighbours."""
    around = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    return np.float32(0.16666) * sum(near(*at) for at in around)


def star(near: Near) -> np.ndarray:
    """`25-point-stencil`: four points each way."""
    steps = [each for each in range(-4, 5) if each]
    around = [at for step in steps for at in ((step, 0, 0), (0, step, 0), (0, 0, step))]
    return np.float32(0.04) * (near(0, 0, 0) + sum(near(*at) for at in around))


def laplacian(near: Near, *widths: float) -> np.ndarray:
    """The second derivatives of fourth order, along each axis with its width."""
    total = np.float32(0)
    for axis, width in enumerate(widths):
        at = np.eye(3, dtype=int)[axis]
        for step, weight in ((-1, 1.333333), (1, 1.333333), (0, -2.5), (-2, -8.333333e-2), (2, -8.333333e-2)):
            total = total + np.float32(weight) * np.float32(width) ** -2 * near(*(step * at))
    return np.asarray(total)


def diffusion(near: Near) -> np.ndarray:
    """`diffusion`: one explicit step."""
    step = np.float32(3.522598e-7)
    return step * (near(0, 0, 0) / step + np.float32(0.9) * laplacian(near, 2.105263e-2, 2.105263e-2, 2.86123e-3))


def acoustic(near: Near, before: np.ndarray) -> np.ndarray:
    """`acoustic`: a step of the wave equation, from the field now and one step before."""
    step = np.float32(4.529)
    return 2 * near(0, 0, 0) - before + step**2 * laplacian(near, 10, 10, 10)


class Grid:
    """Fields of a size, and their inner part: all points further than a margin (x, y, z) from the edges."""

    def __init__(self, *margin: int) -> None:
        self.margin = margin

    def near(self, field: np.ndarray) -> Near:
        """Values of a field at an offset."""
        return lambda *at: field[
            tuple(
                slice(edge + step, size - edge + step)
                for edge, step, size in zip(self.margin, at, field.shape, strict=True)
            )
        ]

    def put(self, field: np.ndarray, values: np.ndarray) -> None:
        """Write the inner part."""
        self.near(field)(0, 0, 0)[:] = values


def two_fields(step: Callable[[Near], np.ndarray], reach: int) -> Callable[[list[np.ndarray], int], np.ndarray]:
    """A program with two fields that take turns; the second one is its result."""

    def run(fields: list[np.ndarray], iterations: int) -> np.ndarray:
        grid = Grid(reach, reach, reach)
        now, following = fields
        for _ in range(iterations):
            grid.put(following, step(grid.near(now)))
            now, following = following, now
        return fields[1]

    return run


def three_fields(fields: list[np.ndarray], iterations: int) -> np.ndarray:
    """`acoustic`: three fields that take turns; the third one is its result.

    The CSL reads the oldest field at z - 2, not at z: its DSD lacks the margin that those of the other fields have.
    """
    grid = Grid(2, 2, 2)
    now, following, before = fields
    for _ in range(iterations):
        grid.put(following, acoustic(grid.near(now), grid.near(before)(0, 0, -2)))
        now, following, before = following, before, now
    return fields[2]


def uvbke(fields: list[np.ndarray], _iterations: int) -> np.ndarray:
    """`uvbke`, its second result: no iterations, no neighbours in z.

    The CSL takes the neighbour in x from the buffers of the second exchange: a value of u, where MLIR has v.
    """
    grid = Grid(1, 1, 0)
    u, v, cosa, rsina, _, result = fields
    at = [grid.near(field) for field in (u, v, cosa, rsina)]
    along, across = at[0](0, -1, 0) + at[0](0, 0, 0), at[0](-1, 0, 0) + at[1](0, 0, 0)
    grid.put(result, at[3](0, 0, 0) * (np.float32(112.5) * (across - along * at[2](0, 0, 0))))
    return result


class Kind(NamedTuple):
    """A program.

    Args:
        names: of its fields on the PEs; the last is its result
        twin: the same computation: fields [x, y, z], float32, and iterations -> the last field
        more: iterations that the program does beyond the asked ones
        archs: generations on which it is right
    """

    names: str
    twin: Callable[[list[np.ndarray], int], np.ndarray]
    more: int = 0
    archs: str = "23"


KINDS = {
    "smoke-test": Kind("a b", two_fields(average, 1)),
    "loop-kernel-small": Kind("a b", two_fields(average, 1)),
    "25-point-stencil-small": Kind("a b", two_fields(star, 4)),
    "diffusion-small": Kind("u_vec0 u_vec1", two_fields(diffusion, 2), more=1),
    "acoustic-small": Kind("u_vec0 u_vec1 u_vec2", three_fields),
    # Its code for WSE-3 asks for the first neighbour by 1, as for WSE-2; there it is 0, and 1 is outside of the buffer.
    "uvbke-small": Kind("arg0 arg1 arg2 arg3 arg4 arg5", uvbke, archs="2"),
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the compiler's programs; without one, or without its tools, there is nothing to run."""
    if CHECKOUT not in os.environ:
        pytest.skip(f"{CHECKOUT} names no checkout of xdslproject/wse-stencil")
    for tool in ("xdsl-opt", "mlir-opt"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on the PATH")
    passes = subprocess.run(["mlir-opt", "--help"], capture_output=True, text=True, check=False).stdout
    if "test-math-algebraic-simplification" not in passes:
        pytest.skip("this mlir-opt has no test passes")
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(os.environ[CHECKOUT], tmp_path / "stencils", ignore=shutil.ignore_patterns(".git"))


def resize(program: Path, size: tuple[int, int, int], iterations: int) -> None:
    """Write sizes and iterations into a program that has them as numbers."""
    text = program.read_text().replace(" 100000 :", f" {iterations} :")
    found = re.search(r"\[-4,(\d+)\]x\[-4,\d+\]x\[-4,(\d+)\]", text)
    if found:
        margin = 2 if "uvbke" in program.name else 0
        ends = [each + margin for each in size[:2]] + [size[2] + 2 * margin]
        extents = "x".join(f"[-4,{end}]" for end in ends)
        text = text.replace(found[0], extents)
        bounds = re.compile(r"<\[0, 0, 0\], \[\d+, \d+, \d+\]>")
        text = bounds.sub(f"<[0, 0, 0], [{', '.join(str(end - 4) for end in ends)}]>", text)
    program.write_text(text)


def on_fabric(folder: Path, function: str, fields: dict[str, np.ndarray]) -> np.ndarray:
    """Run a function of a compiled program on fields [x, y, z], y from the last row on; returns the last field."""
    how = {
        "streaming": False,
        "data_type": MemcpyDataType.MEMCPY_32BIT,
        "order": MemcpyOrder.ROW_MAJOR,
        "nonblock": False,
    }
    width, height, depth = next(iter(fields.values())).shape
    runtime = SdkRuntime(folder)
    runtime.load()
    runtime.run()
    for name, field in fields.items():
        words = np.ascontiguousarray(field[:, ::-1].transpose(1, 0, 2)).ravel()
        runtime.memcpy_h2d(runtime.get_id(name), words, 0, 0, width, height, depth, **how)
    runtime.launch(function, nonblock=False)
    found = np.zeros(width * height * depth, np.float32)
    runtime.memcpy_d2h(found, runtime.get_id(list(fields)[-1]), 0, 0, width, height, depth, **how)
    runtime.stop()
    return found.reshape(height, width, depth).transpose(1, 0, 2)[:, ::-1]


@pytest.mark.parametrize(("name", "arch"), [(name, arch) for name, kind in KINDS.items() for arch in kind.archs])
def test_xdsl_stencils_compute_what_numpy_does(checkout: Path, name: str, arch: str) -> None:
    kind, iterations = KINDS[name], 3
    resize(checkout / f"{name}.mlir", SIZE, iterations)
    sizes = "xdim={} ydim={} zdim={}".format(*SIZE)
    ended = typed(f"{sizes} iter_count={iterations} ./driver.sh {name} --target={arch} --no-run", checkout)
    assert (checkout / "out" / "out.json").is_file(), ended
    function = re.sub(r"^(?=\d)", "_", name.replace("-", "_"))
    random = np.random.default_rng(5)
    fields = {field: random.uniform(-1, 1, SIZE).astype(np.float32) for field in kind.names.split()}
    found = on_fabric(checkout / "out", function, fields)
    expected = kind.twin([field.copy() for field in fields.values()], iterations + kind.more)
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize("arch", ["2", "3"])
def test_its_own_driver_and_host_script_run(checkout: Path, arch: str) -> None:
    ended = typed(f"xdim=8 ydim=7 zdim=12 iter_count=3 ./driver.sh smoke-test --target={arch}", checkout)
    results = list(checkout.glob("run_result-*.txt"))
    assert len(results) == 1, ended
    grid = np.arange(1, 8 * 7 * 12 + 1, dtype=np.float32).reshape(7, 8, 12).transpose(1, 0, 2)
    expected = KINDS["smoke-test"].twin([grid % 1000, grid % 1000], 3)
    total = re.search(r"sum = np\.float32\((.*)\)", results[0].read_text())
    assert total is not None
    assert float(total[1]) == pytest.approx(expected.sum(), rel=1e-5)
    assert "nans = np.int64(0)" in results[0].read_text()


class Sample(NamedTuple):
    """A sample of SpaDA.

    Args:
        file: in its folder of samples
        params: of the kernel
        inputs: (width, height, elements) by name; no shape: a float32 argument
        out: the shape of its result
        twin: the same computation
    """

    file: str
    params: str
    inputs: dict[str, tuple[int, ...]]
    out: tuple[int, int, int]
    twin: Callable[..., np.ndarray]


def gemv(x: np.ndarray, a: np.ndarray, y: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """alpha A x + beta y, by blocks of k x k."""
    blocks = a.reshape(*a.shape[:2], -1, x.shape[2])
    return np.einsum("ijrc,ic->jr", alpha * blocks, x[:, 0])[None] + beta * y


BLOCKS = {"inp_x": (3, 1, 2), "inp_A": (3, 2, 4), "inp_y": (1, 2, 2), "alpha": (), "beta": ()}
SAMPLES = {
    "axpy": Sample(
        "blas/axpy",
        "N=3 K=5",
        {"x": (3, 3, 5), "alpha": (), "y": (3, 3, 5)},
        (3, 3, 5),
        lambda x, alpha, y: alpha * x + y,
    ),
    "gemv": Sample("blas/gemv", "PX=3 PY=2 K=2", BLOCKS, (1, 2, 2), gemv),
    "chain_reduce": Sample(
        "collectives/chain_reduce_1D", "N=4 K=6", {"a_in": (4, 1, 6)}, (1, 1, 6), lambda a: a.sum(0, keepdims=True)
    ),
    "tree_reduce_1d": Sample(
        "collectives/tree_reduce_1D", "L=3 K=2", {"a_in": (8, 1, 2)}, (1, 1, 2), lambda a: a.sum(0, keepdims=True)
    ),
    "allreduce_2d": Sample(
        "collectives/allreduce_2D",
        "NX=3 NY=4 K=3",
        {"a_in": (3, 4, 3)},
        (3, 4, 3),
        lambda a: np.broadcast_to(a.sum((0, 1)), a.shape),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("arch", ["wse2", "wse3"])
def test_spada_samples_compute_what_numpy_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, arch: str
) -> None:
    if "CSTOOL_SPADA" not in os.environ or shutil.which("sptlc") is None:
        pytest.skip("CSTOOL_SPADA names no checkout of spcl/spada, or sptlc is not on the PATH")
    monkeypatch.chdir(tmp_path)  # logs of the simulation go there
    sample = SAMPLES[name]
    file = Path(os.environ["CSTOOL_SPADA"], "samples", "spatial", f"{sample.file}.sptl")
    params = " ".join(f"-p {each}" for each in sample.params.split())
    ended = typed(f"WSE_ARCH={arch} sptlc {file} made {params}", tmp_path)
    assert (tmp_path / "made" / "out" / "out.json").is_file(), ended
    random = np.random.default_rng(5)
    inputs = {each: random.uniform(0, 1, shape).astype(np.float32) for each, shape in sample.inputs.items()}
    how = {
        "streaming": False,
        "data_type": MemcpyDataType.MEMCPY_32BIT,
        "order": MemcpyOrder.ROW_MAJOR,
        "nonblock": False,
    }
    runtime = SdkRuntime(tmp_path / "made" / "out")
    runtime.load()
    runtime.run()
    for each, array in inputs.items():
        if array.shape:
            words = np.ascontiguousarray(array.transpose(1, 0, 2)).ravel()
            runtime.memcpy_h2d(runtime.get_id(each), words, 0, 0, *array.shape, **how)
    runtime.launch(name, *(np.float32(array) for array in inputs.values() if not array.shape), nonblock=False)
    width, height, depth = sample.out
    found = np.zeros(width * height * depth, np.float32)
    runtime.memcpy_d2h(found, runtime.get_id("out"), 0, 0, width, height, depth, **how)
    runtime.stop()
    result = found.reshape(height, width, depth).transpose(1, 0, 2)
    np.testing.assert_allclose(result, sample.twin(*inputs.values()), rtol=1e-5)
