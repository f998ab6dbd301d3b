"""What a run says of its kernels before it begins."""

import logging
import re

import pytest

from cstool.kernels import compile as compiling
from cstool.kernels._cache import KernelFolder
from cstool.machine import prepare as preparing
from cstool.progress import Silent


@pytest.fixture
def said(monkeypatch, caplog):  # type: ignore[no-untyped-def]
    """Return what the log says of a run with this folder of kernels, times left out."""

    def prepare(folder: KernelFolder) -> list[str]:
        for module in (preparing, compiling):
            monkeypatch.setattr(module, "kernel_folder", lambda: folder)
        caplog.clear()
        preparing.prepare_kernels(Silent())
        return [re.sub(r"\d+\.\d", "N", line) for line in caplog.messages]

    caplog.set_level(logging.INFO, "cstool")
    return prepare


def test_kernels_are_compiled_once(said, tmp_path):  # type: ignore[no-untyped-def]
    folder = KernelFolder(tmp_path)
    assert said(folder) == [
        "Compiling the kernels for this machine. This happens once and may take a minute.",
        "Compile was successful! It took N seconds.",
    ]
    assert said(folder) == []


def test_why_they_are_not_kept_is_said_in_each_run(said):  # type: ignore[no-untyped-def]
    for _ in range(2):
        assert said(KernelFolder(None, "/home/ada/.cache: it belongs to bob (uid 1001)")) == [
            "Compiling the kernels, which may take a minute, for this run alone: no folder keeps them that is private "
            "(/home/ada/.cache: it belongs to bob (uid 1001)). CSTOOL_CACHE_DIR may name one.",
            "Compile was successful! It took N seconds.",
        ]


def test_a_model_that_answers_needs_no_provider_of_products():
    assert preparing.needed_kernels("float32", []) == set()
    assert preparing.needed_kernels("bfloat16", []) == {"bfloat16", "products"}
    assert preparing.needed_kernels("bfloat16", ["a.weight"], answers=True) == {"bfloat16", "sparse", "answering"}
