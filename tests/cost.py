"""What the tests cost: seconds of CPU of each, with the processes that it started, and a budget for each folder.

`--budget` (as `make test` has it) prints the ten dearest tests and what each folder took, and fails the run if a folder
took more than its budget, or a test more than a test may without a reason:

    @pytest.mark.takes("whole runs on two ranks, which are processes")

Seconds are those of the machine that the budgets were measured on: a fixed piece of work, timed now and then while the
tests run, says how fast this machine is at the time.
"""

import resource
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pytest

BUDGETS_S = {
    "tests/unit": 15,
    "tests/unit/appliance": 35,
    "tests/unit/cli": 80,
    "tests/unit/convert": 5,
    "tests/unit/csl": 220,
    "tests/unit/foundation": 15,
    "tests/unit/inference": 25,
    "tests/unit/model": 50,
    "tests/unit/plan": 270,
    "tests/unit/serving": 40,
    "tests/unit/training": 500,
    "tests/end_to_end": 880,
    "tests/reference": 5,
}
"""seconds of CPU by folder: twice what was measured, since two quiet runs differ by a fifth and a busy one by half"""
LONG_S = 2.0
"""a test that takes longer has a reason"""
TOLERANCE = 5
"""times as long before a test without a reason fails the run: the first of its kind compiles kernels"""
UNIT_S = 0.0040
"""seconds that `piece_of_work` takes on an AMD EPYC (Zen 4), quiet; what BUDGETS_S and LONG_S are seconds of"""
EVERY_S = 20.0
"""seconds between two timings of it"""
DEAREST = 10
_COST = "cost"
_BEGAN = pytest.StashKey[float]()


def cpu_s() -> float:
    """Return the seconds of CPU of this process and of all that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def piece_of_work() -> None:
    """Do a little of what tests do: Python, and NumPy on small arrays."""
    array, total = np.arange(256.0), 0.0
    for number in range(2_000):
        total += float((array * number).sum()) + len(str(number))


class Costs:
    """A plugin that takes the cost of each test, in a worker or where there are none, and sums up."""

    def __init__(self, *, checks: bool) -> None:
        self.checks = checks
        self.costs: dict[str, tuple[float, str | None]] = {}
        self.units_s: list[float] = []
        self.timed = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[_BEGAN] = cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        if call.when == "teardown":
            mark = item.get_closest_marker("takes")
            reason = mark.args[0] if mark else None
            report.user_properties.append((_COST, (cpu_s() - item.stash[_BEGAN], reason, self._unit_s())))
        return report

    def _unit_s(self) -> float | None:
        """Time the piece of work, once in a while."""
        if time.monotonic() - self.timed < EVERY_S:
            return None
        began = time.thread_time()
        piece_of_work()
        self.timed = time.monotonic()
        return time.thread_time() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == _COST:
                seconds, reason, unit_s = value
                self.costs[report.nodeid] = (seconds, reason)
                if unit_s is not None:
                    self.units_s.append(unit_s)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.checks and self.complaints() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not (self.checks and self.costs):
            return
        write = terminalreporter.write_line
        terminalreporter.section("what the tests cost")
        write(f"seconds of CPU; this machine took {self.slowness():.2f} times as long as the one of the budgets")
        for folder, seconds in sorted(self.by_folder().items()):
            budget = f" of {BUDGETS_S[folder] * self.slowness():.0f}" if folder in BUDGETS_S else ""
            write(f"{seconds:8.1f}{budget:8}  {folder}")
        write(f"the {DEAREST} dearest:")
        dearest = sorted(self.costs.items(), key=lambda cost: -cost[1][0])[:DEAREST]
        for test, (seconds, reason) in dearest:
            write(f"{seconds:8.1f}  {test}" + (f": {reason}" if reason else ""))
        for complaint in self.complaints():
            write(complaint, red=True)

    def slowness(self) -> float:
        """Return how many times as long the piece of work takes here."""
        return max(median(self.units_s) / UNIT_S, 1.0) if self.units_s else 1.0

    def by_folder(self) -> Counter[str]:
        """Return seconds of CPU by folder."""
        sums: Counter[str] = Counter()
        for test, (seconds, _) in self.costs.items():
            sums[folder_of(test)] += seconds
        return sums

    def complaints(self) -> list[str]:
        """Return a line for each folder over its budget, and for each test that takes long without a reason."""
        found = []
        for folder, seconds in sorted(self.by_folder().items()):
            if folder not in BUDGETS_S:
                found.append(f"{folder}: must have a budget in {Path(__file__).name}, took {seconds:.1f} s of CPU")
            elif seconds > (budget := BUDGETS_S[folder] * self.slowness()):
                found.append(f"{folder}: may take {budget:.1f} s of CPU here, took {seconds:.1f} s")
        limit = LONG_S * TOLERANCE * self.slowness()
        for test, (seconds, reason) in sorted(self.costs.items()):
            if seconds > limit and reason is None:
                found.append(
                    f'{test}: may take {limit:.1f} s of CPU here, took {seconds:.1f} s; or says why: mark "takes"'
                )
        return found


def folder_of(test: str) -> str:
    """Return the folder of a test that has a budget: of tests/unit/csl/sdk/test_cslc.py::test_x, tests/unit/csl."""
    return "/".join(Path(test.partition("::")[0]).parent.parts[:3])
