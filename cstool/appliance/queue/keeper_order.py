"""The order that a keeper gets from its starter, as JSON. Part of the keeper: it imports little, to be light."""

from __future__ import annotations

from typing import NamedTuple


class Order(NamedTuple):
    """The order of a keeper.

    Args:
        command: words
        cwd: folder to start it in; where it is gone, the folder of the job
        environment: all variables of the run
        cpus: numbers of the cores that it is pinned to
        memory_bytes: of all its processes together; None for no budget [bytes]
        disk_bytes: largest growth of `model_dir` since the first attempt began; None for no budget [bytes]
        limit_s: time after which it is asked to stop; None for no limit [s]
        model_dir: "" where the disk is not watched
        log_limit_bytes: of each of out and err, before its text moves to out.1 or err.1 [bytes]
        user: user, group and other groups that it becomes; None where it stays the same user
        group: folder of the control group that guards its memory; "" where the keeper does
        grace_s: time for a run that was asked to stop for its disk or its time, before it is killed [s]
        record_s: time for which it tries to record the end on a full disk [s]
        tick_s: so often it looks at the run [s]
    """

    command: list[str]
    cwd: str
    environment: dict[str, str]
    cpus: list[int]
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    limit_s: float | None = None
    model_dir: str = ""
    log_limit_bytes: int = 2**24
    user: tuple[int, int, list[int]] | None = None
    group: str = ""
    grace_s: float = 120.0
    record_s: float = 120.0
    tick_s: float = 0.1
