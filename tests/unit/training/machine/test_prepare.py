"""What a run says of its kernels before it begins."""

import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from cstool.foundation.progress import Silent
from cstool.model.optimizers import make_optimizer
from cstool.model.params import AdamW
from cstool.training.kernels import compile as compiling
from cstool.training.kernels import onednn_float32
from cstool.training.kernels._cache import KernelFolder
from cstool.training.machine import prepare as preparing
from tests.models import fc_mnist
from tests.patience import wait_until

NEEDS = ["magnitudes", "residual"]


@pytest.fixture
def said(monkeypatch, caplog):  # type: ignore[no-untyped-def]
    """Return what the log says of a run with this folder of kernels, times left out."""

    def prepare(folder: KernelFolder) -> list[str]:
        for module in (preparing, compiling):
            monkeypatch.setattr(module, "kernel_folder", lambda: folder)
        caplog.clear()
        preparing.prepare_kernels(Silent(), NEEDS)
        return [re.sub(r"\d+\.\d", "N", line) for line in caplog.messages]

    caplog.set_level(logging.INFO, "cstool")
    return prepare


def test_kernels_are_compiled_once(said, tmp_path):
    folder = KernelFolder(tmp_path)
    assert said(folder) == [
        "Compiling the kernels for this machine. This happens once and may take a minute.",
        "Compile was successful! It took N seconds.",
    ]
    assert said(folder) == []


@pytest.mark.parametrize("executable", [None, "/bin/false", "/is/not/there"])
def test_a_second_process_that_fails_does_no_harm(said, monkeypatch, tmp_path, capfd, executable):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(preparing, "available_cores", lambda: 2)
    monkeypatch.setattr(sys, "executable", executable)
    assert len(said(KernelFolder(tmp_path))) == 2
    assert capfd.readouterr() == ("", "")
    assert said(KernelFolder(tmp_path)) == []


def test_one_core_ranks_a_budget_and_no_folder_have_no_second_process(said, monkeypatch, tmp_path):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("there is one"))
    monkeypatch.setattr(preparing, "available_cores", lambda: 2)
    said(KernelFolder(None, "it is shared"))
    monkeypatch.setattr(preparing, "kernel_folder", lambda: KernelFolder(tmp_path))
    preparing.prepare_kernels(Silent(), NEEDS, alone=True)
    monkeypatch.setenv("CSTOOL_MEMORY", str(2**30))
    said(KernelFolder(tmp_path / "budget"))
    monkeypatch.delenv("CSTOOL_MEMORY")
    monkeypatch.setattr(preparing, "available_cores", lambda: 1)
    said(KernelFolder(tmp_path / "none"))


def test_kernels_are_compiled_ahead_where_some_are_missing_and_a_second_process_may_be(monkeypatch, tmp_path):
    begun: list[str] = []
    monkeypatch.setattr(preparing, "second_process", lambda needs: begun.append("".join(needs)) or nullcontext())
    for module in (preparing, compiling):
        monkeypatch.setattr(module, "kernel_folder", lambda: KernelFolder(tmp_path))
    (tmp_path / "complete.there").touch()
    for cores, need in ((1, "one core"), (2, "there"), (2, "missing")):
        monkeypatch.setattr(preparing, "available_cores", lambda cores=cores: cores)
        with preparing.kernels_ahead([need]):
            pass
    monkeypatch.setenv("CSTOOL_MEMORY", str(2**30))
    with preparing.kernels_ahead(["budget"]):
        pass
    assert begun == ["missing"]


def test_within_a_budget_kernels_are_compiled_before_it_is_shared_out_if_they_are_missing(monkeypatch):
    compiled: list[set[str]] = []
    monkeypatch.setattr(preparing, "prepare_kernels", lambda _, needs: compiled.append(set(needs)))
    for budget, cached in ((None, False), (2**30, True), (2**30, False)):
        monkeypatch.setenv("CSTOOL_MEMORY", "" if budget is None else str(budget))
        monkeypatch.setattr(preparing, "kernels_cached", lambda *_, cached=cached: cached)
        preparing.compile_within_budget(Silent(), {"sparse"})
    assert compiled == [{"sparse"}]


SECOND = """
import os, signal, sys, time
from pathlib import Path
from cstool.training.kernels import kernel_folder
from cstool.training.kernels.second_process import second_process

folder = kernel_folder().path
needs = ["attention", "magnitudes", "updates lion"]  # the first is left to this process
with second_process(needs):
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    print(children.read_text(), flush=True)
    if sys.argv[1] == "lives":
        time.sleep(60)
    wanted = [folder / f"complete.{name}" for name in ("magnitudes", "updates.lion")]
    while sys.argv[1] == "works" and not all(mark.exists() for mark in wanted):
        time.sleep(0.05)
print(len(list(folder.glob("*.kernel"))), (folder / "complete.attention").exists(), children.read_text())
"""


def _begin(tmp_path: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SECOND, how]
    env = {**os.environ, "CSTOOL_CACHE_DIR": str(tmp_path)}
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.lab
def test_a_second_process_compiles_into_the_same_cache(tmp_path: Path) -> None:
    out, err = _begin(tmp_path, "works").communicate(timeout=60)
    first, has_attention = out.splitlines()[1].split()
    assert (int(first) >= 3, has_attention, err) == (True, "False", "")


@pytest.mark.lab
def test_a_second_process_that_is_not_done_ends_with_the_first_part(tmp_path: Path) -> None:
    out, err = _begin(tmp_path, "leaves").communicate(timeout=60)
    child, after = out.splitlines()
    assert (int(child) > 0, after.split(), err) == (True, ["0", "False"], "")


@pytest.mark.takes("two processes that import the kernels")
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.lab)])
def test_a_second_process_ends_with_the_first(tmp_path: Path, number: signal.Signals) -> None:
    with _begin(tmp_path, "lives") as process:
        child = int(process.stdout.readline())
        process.send_signal(number)
    wait_until(lambda: not os.path.exists(f"/proc/{child}"), "the second process is still there")


def test_why_they_are_not_kept_is_said_in_each_run(said):
    for _ in range(2):
        assert said(KernelFolder(None, "/home/ada/.cache: it belongs to bob (uid 1001)")) == [
            "Compiling the kernels, which may take a minute, for this run alone: no folder keeps them that is private "
            "(/home/ada/.cache: it belongs to bob (uid 1001)). CSTOOL_CACHE_DIR may name one.",
            "Compile was successful! It took N seconds.",
        ]


def test_what_a_run_needs_beside_the_kernels_of_its_ops(monkeypatch) -> None:
    graph, optimizer = fc_mnist(4, 3, 2), make_optimizer(AdamW.model_validate({}), None)
    needed = preparing.needed_kernels
    evaluates = {"activation relu", "first_values uniform", "magnitudes", "softmax_loss", "tables"}
    narrow = {"activation relu bfloat16", "bfloat16", "softmax_loss bfloat16"}
    assert needed(graph, "float32", []) == evaluates
    assert needed(graph, "float32", ["a.weight"], optimizer) == evaluates | {"sparse", "sparse forward", "updates adam"}
    assert needed(graph, "bfloat16", []) == evaluates | narrow | {"products"}
    answers = {"activation relu forward", "magnitudes forward"}
    answers |= {"answering", "answering rows", "answering slices", "choosing", "skipping"}
    assert needed(graph, "float32", [], answers=True) == answers
    assert needed(graph, "float32", ["a.weight"], answers=True) == answers | {"sparse forward"}
    # Rows are multiplied one by one.
    assert "products" not in needed(graph, "bfloat16", [], answers=True)
    # Where products are large enough to be timed.
    monkeypatch.setattr(onednn_float32, "SMALL_FLOPS", 2 * 512 * 3 * 4)
    assert needed(graph, "float32", []) == evaluates | {"products float32"}
    assert needed(graph, "float32", [], answers=True) == answers
