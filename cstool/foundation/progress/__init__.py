"""Progress of the runtime, told to a user interface without printing anything."""

from typing import Protocol


class Progress(Protocol):
    """Interface of a display of progress; tasks differ by their text, for example "Training"."""

    def start(self, task: str, total: int | None) -> None:
        """Begin a task of `total` units; None: unknown."""

    def advance(self, task: str, done: int, detail: str = "", *, loss: float | None = None) -> None:
        """Tell the units of a task done in all, a few words, such as "loss 2.123", and the loss of the step."""

    def finish(self, task: str) -> None:
        """End a task."""


class Silent:
    """Shows nothing."""

    def start(self, task: str, total: int | None) -> None:
        """See `Progress.start`."""

    def advance(self, task: str, done: int, detail: str = "", *, loss: float | None = None) -> None:
        """See `Progress.advance`."""

    def finish(self, task: str) -> None:
        """See `Progress.finish`."""
