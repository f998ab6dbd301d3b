"""Progress bars that fit the width of a terminal."""

import sys
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from cstool.foundation.plain_text import one_line
from cstool.foundation.progress.screen import is_terminal

FREE_COLUMNS = 4
"""columns left free at the end of a line, for the ^C that a terminal echoes there"""


class AmountColumn(ProgressColumn):
    """The units of a task done, and in all: `4/10`."""

    def __init__(self, amount: Callable[[int], str]) -> None:
        super().__init__()
        self._amount = amount

    def render(self, task: Task) -> Text:
        """Return the text of one task."""
        total = "?" if task.total is None else self._amount(int(task.total))
        return Text(f"{self._amount(int(task.completed))}/{total}", no_wrap=True)


class FittingBars(Progress):
    """Bars that fit the line: first they get shorter, then they go, then their details, then the time left."""

    def __init__(self, console: Console, amount: Callable[[int], str]) -> None:
        task = TextColumn("{task.description}", markup=False)
        long_bar, bar = BarColumn(bar_width=30), BarColumn(bar_width=10)
        count = AmountColumn(amount)
        detail = TextColumn("{task.fields[detail]}", markup=False)
        left = TimeRemainingColumn(compact=True)
        self._choices: tuple[tuple[ProgressColumn, ...], ...] = (
            (task, long_bar, count, detail, left),
            (task, bar, count, detail, left),
            (task, count, detail, left),
            (task, count, left),
            (count,),
        )
        self._terminal = console  # the constructor makes a first table, when `self.console` is not there yet
        # rich would redirect output into a file or a pipe, too.
        super().__init__(*self._choices[0], console=console, transient=True, redirect_stdout=is_terminal(sys.stdout))

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        """Return the bars of all tasks, with as many columns as the terminal has room for."""
        tasks = list(tasks)
        unbounded = self._terminal.options.update(max_width=10_000)
        for columns in self._choices:
            self.columns = columns
            table = super().make_tasks_table(tasks)
            if self._terminal.measure(table, options=unbounded).maximum + FREE_COLUMNS <= self._terminal.width:
                break
        return table


class BarProgress:
    """Show each running task as a bar with its detail and the time left.

    While no task runs nothing is drawn, and the terminal is free for text that comes piece by piece. While one runs,
    whole lines that others print on the terminal go above the bars; output elsewhere is left alone.
    """

    def __init__(self, console: Console, amount: Callable[[int], str]) -> None:
        self._console = console
        self._amount = amount
        self._bars: FittingBars | None = None
        self._ids: dict[str, TaskID] = {}

    def start(self, task: str, total: int | None) -> None:
        """Add the bar of a task; without a total it only moves."""
        if task in self._ids and self._bars is not None:
            self._bars.remove_task(self._ids.pop(task))
        if self._bars is None:
            self._bars = FittingBars(self._console, self._amount)
            self._bars.start()
        self._ids[task] = self._bars.add_task(one_line(task), total=total, detail="")

    def advance(self, task: str, done: int, detail: str = "", *, loss: float | None = None) -> None:  # noqa: ARG002
        """Move the bar of a task to `done`."""
        if self._bars is not None:
            self._bars.update(self._ids[task], completed=done, detail=one_line(detail))

    def finish(self, task: str) -> None:
        """Take the bar of a task away."""
        if task in self._ids and self._bars is not None:
            self._bars.remove_task(self._ids.pop(task))
            if not self._ids:
                self.close()

    def close(self) -> None:
        """Take all bars away."""
        if self._bars is not None:
            self._bars.stop()
        self._bars = None
        self._ids.clear()
