"""The file of a trace, checked before anything takes time."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cstool.errors import TraceError

if TYPE_CHECKING:
    from cstool.params import Params


def check_trace_file(path: Path) -> None:
    """Check that a trace can be written.

    Raises:
        TraceError: the name does not end in .json, or there is no folder for it that can be written
    """
    if path.suffix != ".json":
        raise TraceError(f"--trace: must end in .json, got {path}")
    if path.exists() and not path.is_file():
        raise TraceError(f"--trace: must be a file, got {'a folder' if path.is_dir() else 'what is none'}: {path}")
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent):
            pass
    except OSError as error:
        raise TraceError(
            f"--trace: must be in a folder that can be written, got {path}: {error.strerror}",
            "create the folder first" if error.errno == errno.ENOENT else "choose another folder",
        ) from error


def check_traced(trainers: Sequence[Params], mode: str) -> None:
    """Check that there is something to record: the training of one trainer.

    Raises:
        TraceError: there is not
    """
    if len(trainers) > 1:
        raise TraceError(
            f"--trace: must be for one trainer, got {len(trainers)} in {trainers[0].path}", "trace them apart"
        )
    for key in ("validate_only", "compile_only"):
        if getattr(trainers[0], key):
            raise TraceError(f"--trace: must be for a run, got {key}", "nothing runs with it")
    if mode in ("eval", "eval_all"):
        raise TraceError(f"--trace: must be for training, got --mode {mode}", "train_and_eval trains, too")
