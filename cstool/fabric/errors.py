"""What can go wrong on the simulated fabric."""

from cstool.errors import CstoolError


class SimulationError(CstoolError):
    """The simulated program did what the wafer cannot do, or would do for ever.

    Args:
        message: *where: rule, got what*, one line
        hint: what to do about it
        report: text of several lines that shows the state of the fabric, where there is one
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None, report: str | None = None) -> None:
        super().__init__(message, hint)
        self.report = report
