"""BLAS has one thread while models run, whoever started them, and as many as before in the end."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from threadpoolctl import threadpool_info

from cstool.foundation.errors import ClusterError
from cstool.training.kernels import one_thread
from cstool.training.kernels.one_thread import one_blas_thread


def threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_it_holds_in_whichever_thread_it_is_asked_for():
    before = threads()

    def ask() -> set[int]:
        with one_blas_thread():
            return threads()

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        assert [one.submit(ask).result(), ask(), other.submit(ask).result(), ask()] == [{1}] * 4
    assert threads() == before


def test_it_holds_until_the_last_one_is_through():
    before, has_begun, may_end = threads(), threading.Event(), threading.Event()

    def stay() -> None:
        with one_blas_thread():
            has_begun.set()
            may_end.wait()

    with one_blas_thread():
        longer = threading.Thread(target=stay)
        longer.start()
        has_begun.wait()
    assert threads() == {1}
    may_end.set()
    longer.join()
    assert threads() == before


def test_an_error_ends_it():
    before = threads()
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        raise ZeroDivisionError
    assert threads() == before


def test_where_another_thread_has_its_way_with_blas_there_is_an_error(monkeypatch):
    """As where somebody called `threadpool_limits(4)` without `with`."""
    restored = []
    limits = SimpleNamespace(restore_original_limits=lambda: restored.append(1))
    # A model that other tests share may be open.
    monkeypatch.setattr(one_thread._State, "users", 0)
    monkeypatch.setattr(one_thread, "threadpool_limits", lambda count, user_api: limits)
    monkeypatch.setattr(one_thread, "threadpool_info", lambda: [{"user_api": "blas", "num_threads": 4}])
    with pytest.raises(ClusterError) as caught, one_blas_thread():
        pass
    assert str(caught.value) == (
        "BLAS: must compute with one thread while a model runs, a thread of this process has set 4\n"
        "hint: `with threadpool_limits(...):` lets go of it in the end, a call without `with` does not"
    )
    assert restored == [1]
    monkeypatch.undo()
    with one_blas_thread():
        assert threads() == {1}
