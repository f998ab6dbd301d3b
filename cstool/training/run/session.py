"""The shared state of the parts of a run: the machine, the position of the run, and its results so far."""

import resource
import secrets
import sys
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from cstool.foundation.progress import Progress
from cstool.model.ir import Graph
from cstool.model.params import Params
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.cluster import Cluster
from cstool.training.machine.device import Device
from cstool.training.machine.ranks.link import ALONE, Link
from cstool.training.machine.ranks.orders import Wire
from cstool.training.machine.sparsity import KernelChooser
from cstool.training.machine.state import Position
from cstool.training.run.patience import Patience
from cstool.training.run.report.events import Events
from cstool.training.run.report.time_split import TimeSplit
from cstool.training.run.result import Modelled

COMPARED_STEPS = 1000
"""largest number of last steps of a run whose times are compared with the prediction"""


class Saving(NamedTuple):
    """A checkpoint on its way, beside the training."""

    path: Path
    step: int
    written: Future[tuple[int, float]]
    """bytes of its tensors, and the seconds that it took"""


@dataclass
class Trained:
    """Results of training, counted by the train loop; `RunResult` has them under the same names."""

    first_step: int = 0
    losses: list[float] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    samples: int = 0
    tokens: int = 0
    seconds: float = 0.0
    last_rate: float = 0.0
    skipped_steps: int = 0
    input_wait_s: float = 0.0
    stream_wait_s: float = 0.0
    stopped_early: dict[str, Any] | None = None
    predicted: dict[str, dict[str, float]] | None = None


@dataclass
class Training(Trained):
    """Results of training so far; times were measured on this host."""

    phase_seconds: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=COMPARED_STEPS + 1))
    """time of the ops since the lanes were made, of a lane, after each of the last steps: forward, again, backward"""
    wire: Wire | None = None
    """between hosts, where there are several"""

    @property
    def median_step_s(self) -> float:
        """Of the steps but the first, which meets cold caches; of a long run over the last."""
        steps = self.step_seconds[1:][-COMPARED_STEPS:] or self.step_seconds
        return median(steps) if steps else 0.0


@dataclass(frozen=True)
class RunOrder:
    """The order to a run, beside its params and its artifact.

    Args:
        mode: "train", "eval", "train_and_eval", or "eval_all"
        checkpoint_path: start from this one; None for the latest in model_dir, if there is one
        load_checkpoint_states: "all", or which parts to load; None: as the params say
        lanes: host threads; None to choose
        sparse_kernels: one of `SPARSE_KERNELS`
        executor: one of `EXECUTORS`, or "fabric" with a device
        trace: the file that a trace of a few training steps goes to; None for no trace
        log_folder: of the log of this run, for `performance.json`; None for none
        command: writes the command that began the run with other flags, as the one to type next; None for no such line
        link: to the other ranks
        trainer: number of the trainer in its file
        device: computes in place of the kernels of this host
    """

    mode: str
    checkpoint_path: Path | None = None
    load_checkpoint_states: str | None = None
    lanes: int | None = None
    sparse_kernels: str = "auto"
    executor: str = "table"
    trace: Path | None = None
    log_folder: Path | None = None
    command: Callable[[Mapping[str, str | None]], str] | None = None
    link: Link = ALONE
    trainer: int = 0
    device: Device | None = None


@dataclass
class Session:
    """One run while it lasts."""

    params: Params
    order: RunOrder
    graph: Graph
    appliance: Appliance
    progress: Progress
    modelled: Modelled | None = None
    position: Position = field(default_factory=Position)
    chooser: KernelChooser = field(default_factory=lambda: KernelChooser("auto"))
    """chooses the kernels for sparse weights"""
    kept_choices: dict[str, Any] = field(default_factory=dict)
    """choices of the run that this one continues"""
    resumes: bool = True
    """whether the same command would go on from the latest checkpoint in model_dir"""
    training: Training = field(default_factory=Training)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    """of this run, oldest first"""
    checkpoint_s: float = 0.0
    """time of the checkpoints, including time in which training went on [s]"""
    saving: Saving | None = None
    """the checkpoint that is being made"""
    committed_step: int | None = None
    """step of the newest commit of MemoryX by this run, or of the commit from which it goes on"""
    metrics: dict[str, float] = field(default_factory=dict)
    """of the last evaluation, by tag"""
    evaluated_step: int | None = None
    """after which that was"""
    run_id: str = field(default_factory=lambda: secrets.token_hex(8))
    """tells the checkpoints of this run, all its interruptions included, from the checkpoints of other runs"""
    base: dict[str, str] | None = None
    """checkpoint with the frozen weights, see `store/adapters.py`; None: checkpoints of this run have all weights"""
    patience: Patience | None = None
    """None where nothing stops the run early"""
    saved_step: int | None = None
    """step of the newest checkpoint of this run in model_dir, or of the one from which it goes on"""
    events: Events = field(default_factory=lambda: Events(None))
    """writes scalars for TensorBoard"""
    times: TimeSplit = field(default_factory=TimeSplit)
    """measures the time of the parts of the run"""
    weights_of: Path | None = None
    """checkpoint of which the weights alone have been loaded, to be trained"""
    last_step: int | None = None
    """last step of training; None before it is known"""

    @property
    def cluster(self) -> Cluster:
        """The systems as they are laid out for training, or for the last data set where nothing trains."""
        return self.appliance.clusters[-1]

    @property
    def is_text(self) -> bool:
        """Whether a sample is a sequence of tokens."""
        return self.graph.sequence_length is not None

    @property
    def steps_left(self) -> int:
        """Number of steps that training has yet to run."""
        return 0 if self.last_step is None else max(0, self.last_step - self.position.step)


def peak_resident_bytes() -> int:
    """Return the largest resident memory of this process so far [bytes]."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
