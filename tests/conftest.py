"""Fixtures for all tests."""

import contextlib
import gc
import hashlib
import math
import os
import pickle
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path

import pytest
from hypothesis import settings

from cstool.cli.app import COLLECTED_EVERY
from cstool.csl.fast.ahead import compile_engine
from cstool.csl.fast.kernels import engine_path
from cstool.foundation.atomic_file import write_replacing
from cstool.foundation.folders import cache_root, make_private_folder
from cstool.foundation.progress import Silent
from cstool.plan.estimation.published import Prediction, Published, predict
from cstool.training.kernels import onednn_float32
from cstool.training.kernels._cache import cache_folder
from cstool.training.kernels.compile import all_kernels
from cstool.training.machine.prepare import prepare_kernels
from tests.cost import Costs
from tests.examples import WHOLE

# How long an example takes says more about the machine than about the code; in CI every run tries the same examples.
for profile, count in (("test", WHOLE // 5), ("lab", WHOLE)):
    settings.register_profile(profile, deadline=None, derandomize=os.environ.get("CI") == "true", max_examples=count)
settings.load_profile("test")

GOLDEN = Path(__file__).parent / "golden"
LAB = Path(__file__).parent / "lab"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update_golden", action="store_true", help="rewrite the golden files with what the tests see")
    parser.addoption("--budget", action="store_true", help="check what the tests cost, and print it")


def pytest_configure(config: pytest.Config) -> None:
    # As `cstool` has it: modules and tests stay, and looking for cycles among them costs much.
    gc.set_threshold(COLLECTED_EVERY)
    if config.getoption("--update_golden") and os.environ.get("CI") == "true":
        raise pytest.UsageError("--update_golden is refused in CI: golden files are read before they are committed")
    # A shell that is not interactive lets what it starts in the background ignore Ctrl-C, nohup the end of a terminal;
    # so would all children.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)

    # A choice by timing would have other bits from machine to machine.
    onednn_float32.SMALL_FLOPS = math.inf

    config.pluginmanager.register(Costs(checks=config.getoption("--budget")))
    if not hasattr(config, "workerinput"):  # those of pytest-xdist inherit the environment
        _leave_rates_behind(config)
        if config.getoption("--budget"):  # else what a worker needs first, it compiles while the other does the same
            prepare_kernels(Silent(), all_kernels())
            compile_engine()


def _leave_rates_behind(config: pytest.Config) -> None:
    """Give all tests, and what they start, a cache with the user's kernels alone.

    What a run prints depends on whether this host was measured.
    """
    folder = Path(tempfile.mkdtemp(prefix="cstool_tests_"))
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    for kernels in (cache_folder(), engine_path()):
        with contextlib.suppress(OSError):  # else each process compiles its own, as for the user
            make_private_folder(kernels)
            (folder / kernels.name).symlink_to(kernels)
    os.environ["CSTOOL_CACHE_DIR"] = str(folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    for item in items:
        if LAB in item.path.parents:
            item.add_marker(pytest.mark.lab)
        if "golden" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.golden)
    yield
    # What was not selected is gone now.
    items[:] = begin_with_lab(items, getattr(config, "workerinput", {}).get("workercount", 1))


def begin_with_lab(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return tests so that each worker of pytest-xdist begins with some files of tests/lab.

    These wait for long, while others compute; at the end of all tests every core would wait for them.
    """
    in_lab = [item for item in items if LAB in item.path.parents]
    files = sorted(([*tests] for _, tests in groupby(in_lab, lambda item: item.path)), key=len, reverse=True)
    others = iter([item for item in items if LAB not in item.path.parents])
    dealt: list[pytest.Item] = []
    for worker in range(workers):
        share = (len(items) - len(dealt)) // (workers - worker)
        first = [item for tests in files[worker::workers] for item in tests]
        dealt += first + [*islice(others, max(0, share - len(first)))]
    return dealt + [*others]


@pytest.fixture(scope="session")
def _predict_once() -> Callable[[Published], Prediction]:
    known: dict[str, Prediction] = {}
    folder = cache_root()

    def predict_once(result: Published) -> Prediction:
        # Not the name alone: a fit asks for the same result with other numbers of its system.
        key = repr(result)
        if key not in known:
            file = folder / f"prediction-{hashlib.sha256(key.encode()).hexdigest()}"
            if file.is_file():
                known[key] = pickle.loads(file.read_bytes())
            else:
                known[key] = predict(result)
                write_replacing(file, pickle.dumps(known[key]))
        return known[key]

    return predict_once


@pytest.fixture
def predicted_once(_predict_once: Callable[[Published], Prediction], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what the model says of each published result computed once, by the worker that first asks for it."""

    for module in ("published", "comparison"):
        monkeypatch.setattr(f"cstool.plan.estimation.{module}.predict", _predict_once)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a whole text with the golden file of that name: `golden("cli/run_help.txt", text)`."""

    def check(name: str, actual: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update_golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        assert path.is_file(), f"there is no golden file {path}; `make golden` writes it from:\n{actual}"
        assert actual == path.read_text(encoding="utf-8")

    return check
