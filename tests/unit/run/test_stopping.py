"""SIGINT, SIGTERM and SIGHUP ask a run to stop; they do not tear it."""

import signal
import threading
from contextlib import nullcontext

import pytest

from cstool.run.stopping import StopRequest

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
