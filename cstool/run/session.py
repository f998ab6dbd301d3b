"""What the parts of a run share: the machine, where the run is, and what it came to so far."""

import resource
import secrets
import sys
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cstool.brief import Brief
from cstool.ir import Graph
from cstool.machine.appliance import Appliance
from cstool.machine.sparsity import KernelChooser
from cstool.machine.state import Position
from cstool.params import Params
from cstool.progress import Progress
from cstool.run.patience import Patience
from cstool.run.report.events import Events
from cstool.run.report.file_traffic import FileTraffic
from cstool.run.report.time_split import TimeSplit

COMPARED_STEPS = 1000
"""last steps of a run, at the most, whose times are compared with what was predicted"""


@dataclass(frozen=True)
class Modelled:
    """What the compiler says of the wafer; nothing of it was measured.

    Args:
        execution_mode: pipelined or weight_streaming
    """

    system: str
    execution_mode: str
    step_s: float


@dataclass(frozen=True)
class Recomputed:
    """The layers whose activations are computed again in backward, and what that saves.

    Args:
        grain_bytes: activations of one grain
        whole_grain_bytes: what they would take if all were kept
    """

    layers: int
    grain_bytes: int
    whole_grain_bytes: int


@dataclass(repr=False)
class RunResult(Brief):
    """What a run came to. Times and memory were measured on this host, but for `modelled`."""

    mode: str
    model: str
    parameters: int
    first_step: int = 0
    last_step: int = 0
    losses: list[float] = field(default_factory=list)
    """of every step that was run"""
    samples: int = 0
    tokens: int = 0
    """unmasked ones"""
    seconds: float = 0.0
    """of training, without checkpoints and evaluation"""
    step_s: float = 0.0
    """of training, on average"""
    median_step_s: float = 0.0
    """of the steps but the first, which meets cold caches; of a long run over the last"""
    step_seconds: list[float] = field(default_factory=list)
    """of every step that was run; an update that overlaps the next step counts there"""
    samples_per_s: float = 0.0
    tokens_per_s: float = 0.0
    last_rate: float = 0.0
    """the smoothed rate of the last log line [samples/s]"""
    input_wait_s: float = 0.0
    """that training waited for batches"""
    stream_wait_s: float = 0.0
    """that a lane waited, on average, for weights and their updates in training, and steps for commits"""
    streamed_bytes_per_step: int = 0
    """weights that MemoryX sent out: forward, backward, and forward again for layers that are recomputed"""
    dense_streamed_bytes_per_step: int = 0
    """what it would have been with the zeros of sparse weights"""
    checkpoint_s: float = 0.0
    """that checkpoints took, whether training stood still for them or not"""
    wall_s: float = 0.0
    """of the run, from the opening of its data to its summary"""
    time_s: dict[str, float] = field(default_factory=dict)
    """what it was spent on; the parts add up to it"""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    stopped_early: dict[str, Any] | None = None
    """why training ended before its last step; None where it did not"""
    checkpoints: list[str] = field(default_factory=list)
    model_dir: str = ""
    log: str | None = None
    """the log of the run; None for a run without"""
    events: str | None = None
    """folder of its event files; None where it wrote none"""
    commands: dict[str, str] = field(default_factory=dict)
    """what to type next: continue, evaluate, generate; nothing where nothing was saved"""
    memory_bytes: dict[str, int] = field(default_factory=dict)
    """what the appliance allocated, by purpose"""
    peak_resident_bytes: int = 0
    num_csx: int = 1
    lanes: int = 1
    grain_samples: int = 1
    waves: int = 1
    recomputed: Recomputed | None = None
    """None where training keeps the activations of all layers"""
    memoryx: FileTraffic | None = None
    """None where it is in main memory"""
    sparsity: list[dict[str, Any]] = field(default_factory=list)
    """of the sparse weights, those that are alike together: how sparse, and which kernels computed with them"""
    op_seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    """of a training step, by op, all lanes together: forward, backward, and again (the second forward of an op whose
    layer is recomputed)"""
    modelled: Modelled | None = None
    predicted: dict[str, dict[str, float]] | None = None
    """of a step on this host, by phase: predicted and measured [s]; None where this host was not calibrated"""

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)

    def facts(self) -> dict[str, str]:
        """See `Brief.facts`."""
        found = {"mode": self.mode, "model": f"{self.model}, {self.parameters:,} parameters"}
        if self.losses:
            steps = f"{self.first_step:,} to {self.last_step:,}"
            found["steps"] = f"{steps}, {self.median_step_s:.3g} s each on this host (median)"
            found["loss"] = f"{self.losses[0]:.5f} to {self.losses[-1]:.5f}"
        elif self.mode.startswith("train"):
            found["steps"] = "none"
        if self.evaluations:
            last = self.evaluations[-1]
            found["held out"] = f"loss {last['loss']:.5f} after step {last['step']:,}"
        if self.checkpoints:
            found["checkpoint"] = self.checkpoints[-1]
        return found


class Saving(NamedTuple):
    """A checkpoint on its way, beside the training."""

    path: Path
    step: int
    written: Future[tuple[int, float]]
    """bytes of its tensors, and the seconds that it took"""


@dataclass(frozen=True)
class RunOrder:
    """What a run does with its params and its artifact.

    Args:
        mode: "train", "eval", "train_and_eval", or "eval_all"
        checkpoint_path: start from this one; None for the latest in model_dir, if there is one
        load_checkpoint_states: "all", or which parts to load; None for what the params say
        lanes: host threads; None to choose
        sparse_kernels: one of `SPARSE_KERNELS`
        trace: the file that a trace of a few training steps goes to; None for no trace
        log_folder: of the log of this run, for `performance.json`; None for none
        command: writes the command that began the run with other flags, for what to type next; None for nothing
    """

    mode: str
    checkpoint_path: Path | None = None
    load_checkpoint_states: str | None = None
    lanes: int | None = None
    sparse_kernels: str = "auto"
    trace: Path | None = None
    log_folder: Path | None = None
    command: Callable[[Mapping[str, str | None]], str] | None = None


@dataclass
class Session:
    """One run while it lasts."""

    params: Params
    order: RunOrder
    graph: Graph
    appliance: Appliance
    progress: Progress
    result: RunResult
    position: Position = field(default_factory=Position)
    chooser: KernelChooser = field(default_factory=lambda: KernelChooser("auto"))
    """says which kernels compute with sparse weights"""
    kept_choices: dict[str, Any] = field(default_factory=dict)
    """what the run that this one continues chose"""
    phase_seconds: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=COMPARED_STEPS + 1))
    """what the ops took since the lanes were made, of a lane, after each of the last steps: forward, again, backward"""
    resumes: bool = True
    """whether the same command would go on from the latest checkpoint in model_dir"""
    saving: Saving | None = None
    """the checkpoint that is being made"""
    committed_step: int | None = None
    """step of the newest commit of MemoryX that is of this run, or that it goes on from"""
    metrics: dict[str, float] = field(default_factory=dict)
    """of the last evaluation, by tag"""
    evaluated_step: int | None = None
    """after which that was"""
    run_id: str = field(default_factory=lambda: secrets.token_hex(8))
    """tells the checkpoints of this run, all its interruptions included, from those of others"""
    patience: Patience | None = None
    """None where nothing stops the run early"""
    saved_step: int | None = None
    """step of the newest checkpoint in model_dir that is of this run, or that it goes on from"""
    events: Events = field(default_factory=lambda: Events(None))
    """writes scalars for TensorBoard"""
    times: TimeSplit = field(default_factory=TimeSplit)
    """where the time of the run goes"""
    last_step: int | None = None
    """with which training ends; None before it is known"""

    @property
    def is_text(self) -> bool:
        """Whether a sample is a sequence of tokens."""
        return self.graph.sequence_length is not None

    @property
    def steps_left(self) -> int:
        """How many steps training has not come to."""
        return 0 if self.last_step is None else max(0, self.last_step - self.position.step)


def peak_resident_bytes() -> int:
    """Return the largest resident memory of this process so far [bytes]."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
