"""Every error that a user can cause: a message (where: rule, got value) and, where there is one, a hint."""

import os
from collections.abc import Sequence

from cstool.foundation.plain_text import one_line


class CstoolError(Exception):
    """An error that the user can act on.

    Both are one line. Text from a file in them, a name or a value, is shown and not obeyed: no line ends in it,
    no escape sequences (`plain_text.one_line`).

    Args:
        message: *where: rule, got value*
        hint: a remedy, without the word "hint"
    """

    exit_code = 2

    def __init__(self, message: str, hint: str | None = None) -> None:
        self.message = one_line(message)
        self.hint = None if hint is None else one_line(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class ToldElsewhere(CstoolError):
    """An error that rank 0 of a run has reported already: this rank prints nothing, and exits like it."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("the run has ended")
        self.exit_code = exit_code


class ParamsError(CstoolError):
    """Errors in a params file: every problem of the file at once.

    Args:
        problems: (message, hint or None) for each, in the order of the file.
    """

    def __init__(self, problems: Sequence[tuple[str, str | None]]) -> None:
        each = [CstoolError(message, hint) for message, hint in problems]
        self.problems = tuple((error.message, error.hint) for error in each)
        super().__init__("")
        self.message = "\n".join(map(str, each))


class DataError(CstoolError):
    """A data set is missing, unreadable, damaged, or does not fit the model."""


class CheckpointError(CstoolError):
    """A checkpoint cannot be written, read, or does not belong to this model."""


class StoreError(CheckpointError):
    """The file behind MemoryX cannot be written, read, or does not belong to this run."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is not whole: cut short, changed, or never finished."""


class ClusterError(CstoolError):
    """The run does not fit the cluster that was asked for."""


class RankLostError(ClusterError):
    """A process of a run died, or fell silent, while the run was under way."""

    exit_code = 1


class EstimateError(CstoolError):
    """The estimate is impossible as asked."""


class CompileError(CstoolError):
    """The model does not fit the wafer, or cannot be compiled as asked."""


class ArtifactError(CstoolError):
    """An artifact cannot be written, read, or does not belong to this model."""


class TraceError(CstoolError):
    """A trace cannot be recorded as asked, or not be written."""


class InferenceError(CstoolError):
    """A model cannot answer as asked."""


class AnswerError(CstoolError):
    """A request without an answer, as a client sees it.

    Args:
        message, hint: of any error
        code: the server's word for programs; None without one
    """

    def __init__(self, message: str, hint: str | None = None, *, code: str | None = None) -> None:
        super().__init__(message, hint)
        self.code = code


class NonFiniteError(CstoolError):
    """Training, or a model that answers, ran into NaN or infinity."""

    exit_code = 1


class Interrupted(CstoolError):
    """The run was stopped by a signal, after it finished its step and saved."""

    exit_code = 130


def fault_of(error: BaseException) -> CstoolError | None:
    """Return a fault of the surroundings as an error with a message; None for any other error."""
    if isinstance(error, MemoryError):
        return CstoolError(
            f"the memory of this machine does not suffice: {str(error) or 'there is no more'}",
            "a smaller model, batch_size or max_sequence_length needs less",
        )
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return CstoolError(
            "the system must let this process start another thread, it refuses",
            "fewer --lanes or --processes need fewer; ulimit -u and ulimit -v say what is allowed",
        )
    if isinstance(error, ImportError) and "failed to map segment" in str(error):
        return CstoolError(f"a library does not fit the memory: {error}", "ulimit -v says what is allowed")
    # HDF5 and others raise it without a number for an invalid file: then the code that opened the file reports it.
    if isinstance(error, OSError) and error.errno is not None:
        if error.filename is None:
            return CstoolError(f"a file or the output cannot be written: {error.strerror}")
        return CstoolError(f"{os.fsdecode(error.filename)}: cannot be read or written, got: {error.strerror}")
    return None
