"""What `cstool estimate` tells of a cluster of GPUs that does the same job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cstool.cli.options import option


@dataclass(frozen=True)
class GpuFlags:
    """Which GPUs, and how many."""

    gpu: Annotated[str, option("--gpu", "NAME|FILE", "What the GPUs of --gpus are: a100, or a GPU file.")] = "a100"
    gpus: Annotated[str | None, option("--gpus", "N,N..N", "Set so many GPUs beside it, for the same job.")] = None
