"""SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask a run to stop; they do not tear it."""

import json
import math
import signal
import threading
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.model.params import EarlyStopping
from cstool.training.run.patience import Patience
from cstool.training.run.stopping import StopRequest

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_only_noted_one_that_is_ignored_stays_ignored(number):
    with StopRequest() as stop:
        before = stop.signal_name
        signal.raise_signal(number)
    assert (before, stop.signal_name) == (None, number.name)
    usual = signal.signal(number, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(number)
        assert (stop.signal_name, signal.getsignal(number)) == (None, signal.SIG_IGN)
    finally:
        signal.signal(number, usual)


@pytest.mark.parametrize(
    ("second", "ends"), [(signal.SIGINT, pytest.raises(KeyboardInterrupt)), (signal.SIGTERM, nullcontext())]
)
def test_a_second_sigint_interrupts_at_once_and_a_sigterm_is_noted_like_the_first(second, ends):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        with ends:
            signal.raise_signal(second)
    assert stop.signal_name == second.name


@pytest.mark.parametrize("ends", [nullcontext(), pytest.raises(ZeroDivisionError)], ids=["well", "with an error"])
def test_the_handlers_are_as_before_however_it_ends(ends):
    before = [signal.getsignal(number) for number in SIGNALS]
    with ends, StopRequest():
        during = [signal.getsignal(number) for number in SIGNALS]
        if not isinstance(ends, nullcontext):
            raise ZeroDivisionError
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert all(new is not old for new, old in zip(during, before, strict=True))


def test_outside_the_main_thread_it_touches_no_handler():
    before = [signal.getsignal(number) for number in SIGNALS]
    during = []

    def work() -> None:
        with StopRequest():
            during.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert during == before


# A run that stops early, for want of a better loss.


def after(values: list[float], **keys: Any) -> Patience:
    """Return the patience after evaluations every ten steps; each counts once."""
    found = Patience(EarlyStopping.model_validate({"patience": 2, **keys}))
    for number, value in enumerate(values, start=1):
        for _ in range(2):
            found.look(10 * number, {found.asked.monitor: value})
    return found


@pytest.mark.parametrize(
    ("values", "keys", "best", "best_step", "bad"),
    [
        ([3.0, 2.0, 1.0], {}, 1.0, 30, 0),
        ([3.0, 2.0, 2.0], {}, 2.0, 20, 1),
        ([3.0, 2.0, 2.5, 1.9], {}, 1.9, 40, 0),
        ([3.0, 2.0, 1.95, 1.91, 1.85], {"min_delta": 0.1}, 1.85, 50, 0),
        ([3.0, 2.0, 1.95, 1.9], {"min_delta": 0.25}, 2.0, 20, 2),
        ([0.1, 0.3, 0.2], {"monitor": "eval/accuracy"}, 0.3, 20, 1),
        ([0.1, 0.3, 0.2], {"mode": "max"}, 0.3, 20, 1),
        ([math.nan, math.nan], {}, None, 0, 2),
        ([2.0, math.nan, math.inf], {}, 2.0, 10, 2),
    ],
)
def test_the_best_is_what_nothing_was_better_than(values, keys, best, best_step, bad):
    found = after(values, **keys)
    assert (found.best, found.best_step, found.bad, found.is_over) == (best, best_step, bad, bad >= 2)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=12), st.integers(0, 12))
def test_after_an_interruption_it_goes_on_as_if_there_had_been_none(values, cut):
    found = after([])
    found.adopt(json.loads(json.dumps(after(values[:cut]).as_dict())))
    for number, value in list(enumerate(values, start=1))[cut:]:
        found.look(10 * number, {"eval/loss": value})
    assert found == after(values)


@pytest.mark.parametrize(
    "state",
    [
        *(None, 5, {}),
        *(after([2.0], **keys).as_dict() for keys in ({"monitor": "eval/accuracy"}, {"mode": "max"})),
        *(after([2.0]).as_dict() | damage for damage in ({"bad": "x"}, {"best": "x"}, {"step": True})),
    ],
)
def test_what_is_of_another_metric_or_of_none_is_not_gone_on_from(state):
    found = after([])
    found.adopt(state)
    assert found == after([])


def test_it_says_why():
    rule = "EarlyStopping: eval/loss has not improved on"
    assert after([2.0, 3.0]).reason() == f"{rule} 2.00000, that of step 10, in 1 evaluation"
    assert after([math.nan, math.nan]).reason() == f"{rule} nothing, in 2 evaluations"
