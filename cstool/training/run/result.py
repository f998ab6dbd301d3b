"""The whole result of a run: `report/summary.py` puts it together at the end."""

from dataclasses import asdict, dataclass, field
from typing import Any

from cstool.foundation.brief import Brief
from cstool.foundation.words import bytes_text
from cstool.training.machine.ranks.orders import RankUse


@dataclass(frozen=True)
class Modelled:
    """The compiler's model of the wafer; nothing of it was measured.

    Args:
        execution_mode: pipelined or weight_streaming
    """

    system: str
    execution_mode: str
    step_s: float


@dataclass(frozen=True)
class Recomputed:
    """The layers whose activations are computed again in backward, and the saving.

    Args:
        grain_bytes: activations of one grain
        whole_grain_bytes: their size if all were kept
    """

    layers: int
    grain_bytes: int
    whole_grain_bytes: int


@dataclass(frozen=True)
class FileTraffic:
    """Reads and writes of the file of a run, measured on this host.

    Args:
        read_bytes, written_bytes: by all threads
        busy_s: time that threads spent in requests, summed over them
        waited_s: time that lanes waited for weights and their updates, and for room for gradients, summed over them,
            and that steps waited for commits: for the file, or for computing on the way to it
        ahead_bytes: distance by which weights were fetched ahead at the end [bytes]
        committed_step: of the last commit; None where there is none
        idle_panels: of experts that no token of a step chose, summed over the steps: they were not read for it
        idle_visits: number of reads and writes of such panels, for the updates of one step or of several
    """

    path: str
    read_bytes: int
    written_bytes: int
    busy_s: float
    waited_s: float
    ahead_bytes: int
    committed_step: int | None
    idle_panels: int = 0
    idle_visits: int = 0

    @property
    def hidden_share(self) -> float:
        """Share of the time of requests without a waiting thread, at the least."""
        return max(0.0, 1 - self.waited_s / self.busy_s) if self.busy_s else 1.0

    def line(self) -> str:
        """Return it as the log has it."""
        rate = (self.read_bytes + self.written_bytes) / self.busy_s / 1e9 if self.busy_s else 0.0
        idle = (
            f" It left {self.idle_panels:,} panels of experts alone that no token of a step chose, and updated them in "
            f"{self.idle_visits:,} visits."
        )
        return (
            f"MemoryX read {bytes_text(self.read_bytes)} and wrote {bytes_text(self.written_bytes)} in "
            f"{self.busy_s:,.1f} s of requests ({rate:.2f} GB/s each); {self.waited_s:,.1f} s were waited for weights, "
            f"updates and commits: {self.hidden_share:.0%} of the requests or more were hidden."
            f"{idle * bool(self.idle_panels)}"
        )


@dataclass(frozen=True, repr=False)
class RunResult(Brief):
    """The result of a run. Times and memory were measured on this host, but for `modelled`."""

    mode: str
    model: str
    parameters: int
    trained_parameters: int = 0
    """those that are not frozen"""
    first_step: int = 0
    last_step: int = 0
    losses: list[float] = field(default_factory=list)
    """of every step that was run"""
    skipped_steps: int = 0
    """number of steps without an update, since a gradient was not finite"""
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
    """time for which training waited for batches"""
    stream_wait_s: float = 0.0
    """time for which a lane waited, on average, for weights and their updates in training, and steps for commits"""
    streamed_bytes_per_step: int = 0
    """weights that MemoryX sent out: forward, backward, and forward again for layers that are recomputed"""
    dense_streamed_bytes_per_step: int = 0
    """the same if sparse weights streamed with their zeros"""
    checkpoint_s: float = 0.0
    """time of checkpoints, including time in which training went on [s]"""
    wall_s: float = 0.0
    """of the run, from the opening of its data to its summary"""
    time_s: dict[str, float] = field(default_factory=dict)
    """time by part of the run; the parts add up to the time"""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    stopped_early: dict[str, Any] | None = None
    """reason for which training ended before its last step; None if it did not"""
    checkpoints: list[str] = field(default_factory=list)
    model_dir: str = ""
    log: str | None = None
    """the log of the run; None for a run without"""
    events: str | None = None
    """folder of its event files; None where it wrote none"""
    commands: dict[str, str] = field(default_factory=dict)
    """commands to type next: continue, evaluate, generate; nothing where nothing was saved"""
    memory_bytes: dict[str, int] = field(default_factory=dict)
    """memory allocated by the appliance, by purpose"""
    peak_resident_bytes: int = 0
    num_csx: int = 1
    lanes: int = 1
    ranks: list[RankUse] = field(default_factory=list)
    """use of each in training; none where all was in one process"""
    grain_samples: int = 1
    waves: int = 1
    recomputed: Recomputed | None = None
    """None where training keeps the activations of all layers"""
    memoryx: FileTraffic | None = None
    """None where it is in main memory"""
    sparsity: list[dict[str, Any]] = field(default_factory=list)
    """sparse weights, like ones together: their sparsity, and the kernels that computed with them"""
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
