"""Progress in a notebook: a bar for each running task, and the loss curve, drawn again while training goes on."""

import html
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

REFRESH_S = 0.25
"""least time between two drawings [s]"""
WIDTH, HEIGHT, MARGIN = 480, 120, 14
"""size of the curve [CSS pixels]"""


@dataclass
class _Task:
    total: int | None
    done: int = 0
    detail: str = ""


class NotebookProgress:
    """Show running tasks in the output of a cell, in one place that is written anew. Use as a context manager."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}
        self._losses: list[float] = []
        self._ended = ""
        self._handle: Any = None
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._tasks.clear()
        if self._handle is not None:
            self._draw()

    def start(self, task: str, total: int | None) -> None:
        """Add the bar of a task."""
        self._tasks[task] = _Task(total)
        self._draw()

    def advance(self, task: str, done: int, detail: str = "", *, loss: float | None = None) -> None:
        """Move the bar of a task, and the curve with the loss of a step."""
        shown = self._tasks[task]
        shown.done, shown.detail = done, detail
        if loss is not None:
            self._losses.append(loss)
            self._ended = f"{task} {_amount(shown)}, {detail}"
        if time.monotonic() - self._drawn_s >= REFRESH_S:
            self._draw()

    def finish(self, task: str) -> None:
        """Take the bar of a task away."""
        if self._tasks.pop(task, None) is not None:
            self._draw()

    def _draw(self) -> None:
        from IPython.display import display

        self._drawn_s = time.monotonic()
        lines = [f"{name} {_amount(task)} {task.detail}".rstrip() for name, task in self._tasks.items()]
        if not lines and self._ended:
            lines = [self._ended]
        bars = [_bar(name, task) for name, task in self._tasks.items()] or [
            f"<div>{html.escape(line)}</div>" for line in lines
        ]
        curve = loss_curve(self._losses) if len(self._losses) > 1 else ""
        bundle = {"text/plain": "\n".join(lines), "text/html": "".join([*bars, curve])}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)


def _amount(task: _Task) -> str:
    return f"{task.done:,}/{'?' if task.total is None else f'{task.total:,}'}"


def _bar(name: str, task: _Task) -> str:
    far = "" if task.total is None else f' value="{task.done}" max="{max(1, task.total)}"'
    words = html.escape(f"{name} {_amount(task)} {task.detail}".rstrip())
    return f'<div><progress{far} style="width:12em"></progress> {words}</div>'


def loss_curve(losses: Sequence[float]) -> str:
    """Return the losses of two or more steps as an SVG picture: steps to the right, the smallest loss at the bottom.

    Of many steps, neighbours are drawn as their mean.
    """
    group = -(-len(losses) // WIDTH)
    parts = [losses[at : at + group] for at in range(0, len(losses), group)]
    means = [sum(part) / len(part) for part in parts]
    # A loss that is not finite ends the run; there is no place for it in a picture.
    drawn = [(at, mean) for at, mean in enumerate(means) if abs(mean) < float("inf")]
    if not drawn:
        return ""
    low, high = min(mean for _, mean in drawn), max(mean for _, mean in drawn)
    across = (WIDTH - 2 * MARGIN) / max(1, len(means) - 1)
    up = (HEIGHT - 2 * MARGIN) / ((high - low) or 1.0)
    points = " ".join(f"{MARGIN + across * at:.1f},{HEIGHT - MARGIN - up * (mean - low):.1f}" for at, mean in drawn)
    label = '<text x="{}" y="{}" font-size="11" fill="currentColor"{}>{}</text>'.format
    end = ' text-anchor="end"'
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="loss of {len(losses):,} steps">'
        f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>'
        f"{label(WIDTH - MARGIN, 10, end, f'highest loss {high:.3f}')}"
        f"{label(MARGIN, HEIGHT - 2, '', f'lowest loss {low:.3f}')}"
        f"{label(WIDTH - MARGIN, HEIGHT - 2, end, f'{len(losses):,} steps')}"
        "</svg>"
    )
