"""The choice of a provider of float32. No test depends on the speed of this machine: clocks are made up."""

from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

from cstool.foundation.errors import ClusterError
from cstool.model.graphs import build_graph
from cstool.model.ir import Graph
from cstool.model.params import load_params
from cstool.training.kernels import fastest, gemm_providers, onednn_float32
from cstool.training.kernels._cache import KernelFolder
from cstool.training.kernels.fastest import ENOUGH_S, ROUNDS, Shape, choose_for, measure_speeds, timed_shapes
from cstool.training.kernels.gemm import NUMPY, NumpyGemm
from cstool.training.kernels.gemm_providers import Found


class Timed(NumpyGemm):
    """A provider that takes as long as it is told on a machine with a clock of its own.

    Args:
        seconds: of a product, by its number of multiply-adds
    """

    name = "onednn_float32"

    def __init__(self, clock: list[float], seconds: dict[int, float]) -> None:
        self.clock, self.seconds = clock, seconds
        self.calls = 0
        self.blas_threads: set[int] = set()
        """when it was first called"""

    def multiply(self, a, b, out, bias=None):
        self.clock[0] += self.seconds.get(out.size * a.shape[1], 0.0) * (5 if self.calls == 0 else 1)
        if self.calls == 0:
            self.blas_threads = {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}
        self.calls += 1


SHORT, LONG = Shape(64, 128, 256), Shape(512, 128, 256)
SECONDS = {2_097_152: 1e-4, 16_777_216: 1e-3}


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(fastest, "clock_s", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("shapes", "speed"),
    [({LONG: 1.0}, 1.25), ({SHORT: 1.0}, 0.8), ({SHORT: 0.25, LONG: 0.75}, 1.118)],
    ids=["large", "small", "both by their work"],
)
def test_the_speed_is_that_of_the_fastest_calls_weighted_by_work(shapes, speed, clock, monkeypatch):
    numpy = Timed(clock, SECONDS)
    own = Timed(clock, {2_097_152: 1.25e-4, 16_777_216: 0.8e-3})
    monkeypatch.setattr(fastest, "NUMPY", numpy)
    monkeypatch.setattr(fastest, "ENOUGH_S", 0.0)
    assert measure_speeds(shapes, {"own": own}, trains=True) == {"own": speed}
    assert numpy.blas_threads == own.blas_threads == {1}


def test_rounds_end_when_enough_time_has_passed_and_an_evaluation_has_products_of_one_kind(clock, monkeypatch):
    slow, quick = ENOUGH_S, ENOUGH_S / 100
    for seconds, trains, calls in ((slow, True, 3 * ROUNDS), (slow, False, ROUNDS), (quick, False, 50)):
        own = Timed(clock, {2**24: seconds})
        own.calls = 1  # the first is no slower
        monkeypatch.setattr(fastest, "NUMPY", numpy := Timed(clock, {2**24: seconds}))
        numpy.calls = 1
        measure_speeds({LONG: 1.0}, {"own": own}, trains=trains)
        assert own.calls - 1 == pytest.approx(calls, abs=1)


def graph_of(name: str, tokens: int | None) -> Graph:
    params = load_params(name)
    return build_graph(params.model, tokens)


@pytest.fixture(autouse=True)
def small_flops(monkeypatch) -> None:
    """The limit of a run: that of all other tests leaves everything to NumPy."""
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 4_000_000)


def test_the_largest_products_of_a_model_are_timed_in_part_and_small_ones_not_at_all():
    assert timed_shapes(graph_of("gpt2_small", 512), 1) == {Shape(512, 256, 768): 0.77, Shape(512, 256, 1024): 0.23}
    assert timed_shapes(graph_of("fc_mnist", None), 12) == {Shape(12, 256, 784): 1.0}
    assert timed_shapes(graph_of("fc_mnist", None), 1) == {}
    # An expert meets a quarter of the tokens.
    assert Shape(128, 256, 128) in timed_shapes(graph_of("moe_tiny", 128), 4)


@pytest.fixture
def speeds(monkeypatch, tmp_path) -> list[float]:
    """Speeds of a provider that are measured, the next one first, in a cache that is empty; the other is slow."""
    measured = [1.2, 0.9, 1.5]
    monkeypatch.setattr(gemm_providers, "find_onednn_float32", lambda: Found("onednn_float32", Timed([0.0], {}), ""))
    monkeypatch.setattr(
        fastest, "measure_speeds", lambda shapes, gemms, trains: {"onednn_float32": measured.pop(0), "fma": 0.5}
    )
    monkeypatch.setattr(fastest, "kernel_folder", lambda: KernelFolder(tmp_path))
    return measured


def chosen(samples: int = 12, *, trains: bool = True, name: object = None) -> str:
    return choose_for(graph_of("fc_mnist", None), "float32", samples, trains=trains, name=name).name


def cached(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.mark.parametrize(("speed", "name"), [(1.029, "numpy"), (1.03, "onednn_float32")])
def test_another_provider_must_gain_three_percent_and_the_choice_is_kept(speed, name, speeds, tmp_path):
    speeds[0] = speed
    assert [chosen(), chosen()] == [name, name]
    assert len(speeds) == 2
    written = f'{{"products": "train 12x256x784:1", "speeds": {{"onednn_float32": {speed}, "fma": 0.5}}}}\n'
    assert cached(tmp_path).read_text() == written


def test_the_fastest_of_several_is_chosen_and_they_are_timed_anew_where_others_are_found(speeds, monkeypatch):
    of_each = {"onednn_float32": 1.1, "fma": 1.2}
    monkeypatch.setattr(
        fastest, "measure_speeds", lambda shapes, gemms, trains: {name: of_each[name] for name in gemms}
    )
    assert chosen() == "fma"
    monkeypatch.setattr(gemm_providers, "find_fma", lambda: Found("fma", None, "is not here"))
    assert chosen() == "onednn_float32"


def test_a_model_with_small_products_of_experts_takes_our_own_if_they_are_a_little_slower(monkeypatch):
    speeds: dict[str, float] = {}
    monkeypatch.setattr(fastest, "_read", lambda _, names: {name: speeds.get(name, 0.1) for name in names})
    for speeds["fma"], name in (0.9, "fma"), (0.89, "numpy"):
        assert choose_for(graph_of("moe_tiny", 128), "float32", 4, trains=True).name == name
        assert choose_for(graph_of("gpt_tiny", 128), "float32", 4, trains=True).name == "numpy"


def test_what_is_kept_can_be_listed_but_for_files_that_make_no_sense(speeds, tmp_path):
    chosen(24), chosen()
    for number, content in enumerate(NONSENSE):
        (tmp_path / f"products-{fastest.blas_digest()}-{number}.json").write_bytes(content)
    assert fastest.measurements() == [
        ("train 12x256x784:1", {"onednn_float32": 0.9, "fma": 0.5}),
        ("train 24x256x784:1", {"onednn_float32": 1.2, "fma": 0.5}),
    ]


def test_other_shapes_and_an_evaluation_are_measured_apart(speeds):
    assert [chosen(), chosen(24), chosen(trains=False)] == ["onednn_float32", "numpy", "onednn_float32"]
    assert [chosen(24), speeds] == ["numpy", []]


@pytest.mark.parametrize("other", ["BLAS", "CPU"])
def test_a_measurement_with_another_blas_or_cpu_does_not_count(other, speeds, tmp_path, monkeypatch):
    """The folder stands for the CPU."""
    before = chosen()
    if other == "BLAS":
        monkeypatch.setattr(fastest, "blas_digest", lambda: "another")
    else:
        (tmp_path / "another").mkdir()
        monkeypatch.setattr(fastest, "kernel_folder", lambda: KernelFolder(tmp_path / "another"))
    assert [before, chosen()] == ["onednn_float32", "numpy"]


def test_of_processes_that_measure_at_once_the_first_is_believed(speeds, tmp_path, monkeypatch):
    def measure(shapes, gemms, trains):
        assert speeds.pop(0) == 1.2
        assert chosen() == "numpy"  # another process, in the meantime
        return {"onednn_float32": 1.2, "fma": 0.5}

    def other(shapes, gemms, trains):
        return {"onednn_float32": speeds.pop(0), "fma": 0.5}

    turns = [measure, other]
    monkeypatch.setattr(fastest, "measure_speeds", lambda *of, trains: turns.pop(0)(*of, trains))
    assert [chosen(), chosen()] == ["numpy", "numpy"]
    assert '"onednn_float32": 0.9' in cached(tmp_path).read_text()


NONSENSE = [
    b"",
    b"\xff",
    b"[]",
    b"1",
    b"{}",
    b'{"speeds": 1.2}',
    b'{"speeds": {"fma": 1.2}}',
    b'{"speeds": {"fma": "1.2", "onednn_float32": "1.2"}}',
    b'{"speeds": {"fma": NaN, "onednn_float32": 1.2}}',
    b'{"speeds": {"fma": -1.0, "onednn_float32": 1.2}}',
    b'{"speeds": {"fma": 1.2, "onednn_float32": 1.2',
]


@pytest.mark.parametrize("content", NONSENSE)
def test_a_file_that_is_cut_short_or_makes_no_sense_is_replaced(content, speeds, tmp_path):
    chosen()
    cached(tmp_path).write_bytes(content)
    assert [chosen(), chosen()] == ["numpy", "numpy"]
    assert len(speeds) == 1


@pytest.mark.parametrize("missing", ["no folder", "a folder that is gone"])
def test_without_a_folder_to_write_to_it_is_measured_each_time(missing, speeds, tmp_path, monkeypatch):
    folder = KernelFolder(None if missing == "no folder" else tmp_path / "missing")
    monkeypatch.setattr(fastest, "kernel_folder", lambda: folder)
    assert [chosen(), chosen()] == ["onednn_float32", "numpy"]


def test_nothing_is_measured_for_small_products_or_where_a_provider_is_named(speeds):
    assert chosen(1) == "numpy"
    assert [chosen(name="onednn_float32"), chosen(name="numpy")] == ["onednn_float32", "numpy"]
    with pytest.raises(ClusterError, match="the run multiplies matrices with a, which must be one of numpy, onednn_"):
        chosen(name="a")
    assert len(speeds) == 3


def test_real_products_can_be_timed(monkeypatch):
    monkeypatch.setattr(fastest, "ENOUGH_S", 0.0)
    assert measure_speeds({Shape(16, 40, 70): 1.0}, {"numpy": NUMPY}, trains=True)["numpy"] > 0
