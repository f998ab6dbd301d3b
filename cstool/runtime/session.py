"""What the parts of a run share: the machine, where the run is, and what it came to so far."""

from __future__ import annotations

import resource
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from cstool.ir import Graph
from cstool.params import Params
from cstool.runtime.appliance import Appliance
from cstool.runtime.kernel_choice import KernelChooser
from cstool.runtime.progress import Progress
from cstool.runtime.state import Position


@dataclass(frozen=True)
class Modelled:
    """What the compiler says of the wafer; nothing of it was measured.

    Args:
        system: name
        execution_mode: pipelined or weight_streaming
        step_s: of a training step
    """

    system: str
    execution_mode: str
    step_s: float


@dataclass
class RunResult:
    """What a run came to. Times and memory were measured on this host, but for `modelled`."""

    mode: str
    model: str
    parameters: int
    first_step: int = 0
    last_step: int = 0
    losses: list[float] = field(default_factory=list)
    """of every step that was run"""
    samples: int = 0
    seconds: float = 0.0
    """of training, without checkpoints and evaluation"""
    step_s: float = 0.0
    """of training, on average"""
    step_seconds: list[float] = field(default_factory=list)
    """of every step that was run; an update that overlaps the next step counts there"""
    samples_per_s: float = 0.0
    tokens_per_s: float = 0.0
    input_wait_s: float = 0.0
    stream_wait_s: float = 0.0
    streamed_bytes_per_step: int = 0
    """weights that MemoryX sent out, forward and backward"""
    dense_streamed_bytes_per_step: int = 0
    """what it would have been with the zeros of sparse weights"""
    checkpoint_s: float = 0.0
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    """what the appliance allocated, by purpose"""
    peak_resident_bytes: int = 0
    num_csx: int = 1
    lanes: int = 1
    grain_samples: int = 1
    sparsity: list[dict[str, Any]] = field(default_factory=list)
    """of the sparse weights, those that are alike together: how sparse, and which kernels computed with them"""
    op_seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    """of a training step, by op: forward and backward, all lanes together"""
    modelled: Modelled | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)


@dataclass
class Session:
    """One run while it lasts."""

    params: Params
    graph: Graph
    appliance: Appliance
    progress: Progress
    result: RunResult
    position: Position = field(default_factory=Position)
    chooser: KernelChooser = field(default_factory=lambda: KernelChooser("auto"))
    """says which kernels compute with sparse weights"""
    kept_choices: dict[str, Any] = field(default_factory=dict)
    """what the run that this one continues chose"""
    resumes: bool = True
    """whether the same command would go on from the latest checkpoint in model_dir"""
    saved_step: int | None = None
    """step of the newest checkpoint in model_dir that is of this run"""


def peak_resident_bytes() -> int:
    """Return the largest resident memory of this process so far [bytes]."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
