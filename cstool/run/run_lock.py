"""Keeps a folder for one run that trains at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cstool.params import Params
from cstool.store import FILE_NAME, StoreLock, sweep_temporary

LOCK_NAME = "run.lock"
"""name of the lock in a model_dir, which goes when the run ends"""


@contextmanager
def run_lock(params: Params) -> Iterator[None]:
    """Keep model_dir for a run that trains, and clear it of what a killed one had half written.

    The lock of a process that is gone does not count. Where a folder cannot be locked, a run does without.

    Raises:
        StoreError: another run trains there
    """
    # Whatever is in the way of the folder is said by those who write to it.
    with suppress(OSError):
        params.model_dir.mkdir(parents=True, exist_ok=True)
    rule = "model_dir must be used by one run that trains at a time"
    lock = StoreLock(params.model_dir / LOCK_NAME, rule=rule, optional=True)
    try:
        # Nobody else begins any of these here now, however young they are.
        for name in (f"*{os.path.splitext(params.checkpoint.checkpoint_name)[1]}", FILE_NAME):
            sweep_temporary(params.model_dir, f"{name}.*.tmp", age_s=0)
        yield
    finally:
        lock.remove()
