"""One estimate: a model on a given number of systems."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from cstool.foundation.brief import Brief
from cstool.foundation.errors import CompileError, EstimateError
from cstool.foundation.words import bytes_text, size_text
from cstool.model.ir import Artifact, MemoryXNeed
from cstool.model.optimizers import costed_optimizer
from cstool.model.params import Params
from cstool.model.system import System, load_system, system_names
from cstool.plan import compiler
from cstool.plan.compiler.prepared import Prepared
from cstool.plan.compiler.program import Program
from cstool.plan.estimation.bands import Band, band_for
from cstool.plan.estimation.kept import KeptResults, kept_results
from cstool.plan.estimation.request import Request, loader_of, samples_per_csx
from cstool.plan.timing.cluster import Step
from cstool.plan.timing.resources import COMPUTE
from cstool.plan.timing.wafer import cluster_step, limit_shares, shares_of, tree_stages, useful_flops, zero_weights

DAY_S = 86_400.0


@dataclass(frozen=True, repr=False)
class Estimate(Brief):
    """Time, throughput and power of a training step on a number of systems. All of it is modelled.

    Args:
        artifact: the compiled model; it sets the number of systems
        step: time of the step by cause, and the work of each resource
        update_ops: operations of an update per weight
        limits: limit -> share of the kernels' time in which it is the bound
        flops: of the products of a step on all systems, without zeros and recomputation [FLOP]
        peak_flops: of all systems [FLOP/s]
        memoryx_unit_bytes: the smallest MemoryX that holds the model; None where there is none, or none is needed
        stages: of SwarmX
        tokens: number of training tokens; None: not given
    """

    artifact: Artifact
    step: Step
    update_ops: int
    limits: dict[str, float]
    flops: int
    peak_flops: float
    memoryx_unit_bytes: int | None
    stages: int
    tokens: int | None

    @property
    def num_csx(self) -> int:
        """Number of systems."""
        return self.artifact.num_csx

    @property
    def batch_size(self) -> int:
        """Global batch size [samples]."""
        return self.artifact.batch_size

    @property
    def samples_per_csx(self) -> int:
        """Samples of a step per system."""
        return self.batch_size // self.num_csx

    @property
    def step_s(self) -> float:
        """Time of a step, from the artifact [s]."""
        return self.artifact.step_s

    @property
    def samples_per_s(self) -> float:
        """Samples per second of all systems."""
        return self.batch_size / self.step_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of all systems; samples where the model has no sequence."""
        return self.samples_per_s * self.artifact.tokens

    @property
    def zero_weights(self) -> int:
        """Number of zero weights, which are not streamed."""
        return zero_weights(self.artifact)

    @property
    def flops_per_s(self) -> float:
        """Rate of useful products [FLOP/s]."""
        return self.flops / self.step_s

    @property
    def share_of_peak(self) -> float:
        """Share of the peak of all PEs, by clock and datapath."""
        return self.flops_per_s / self.peak_flops

    @property
    def busy(self) -> dict[str, float]:
        """Resource -> share of the step in which it is busy."""
        return {name: seconds / self.step_s for name, seconds in self.step.busy_s.items()}

    @property
    def bound(self) -> str:
        """The cause of the largest part of the step: the bottleneck."""
        return self.step.bound

    @property
    def power_w(self) -> float:
        """Power of all systems [W]; the power of their servers is part of `JobCost`."""
        system = self.artifact.system
        busy = self.busy[COMPUTE]
        return self.num_csx * (system.idle_power_w + (system.power_w - system.idle_power_w) * min(1.0, busy))

    @property
    def joules_per_token(self) -> float:
        """Energy of the systems per token [J]."""
        return self.power_w / self.tokens_per_s

    @property
    def reads_images(self) -> bool:
        """Whether samples are images, that is values of pixels, and not tokens."""
        return self.artifact.graph.inputs[0].dtype == "float32"

    @property
    def days(self) -> float | None:
        """Days of training with the given number of tokens; None without one."""
        return None if self.tokens is None else self.tokens / self.tokens_per_s / DAY_S

    @property
    def band(self) -> Band:
        """Range of the time of a step, from the held-out errors of similar published results."""
        return band_for(self)

    def facts(self) -> dict[str, str]:
        """See `Brief.facts`."""
        unit = "samples" if self.artifact.tokens == 1 else "tokens"
        return {
            "model": self.artifact.graph.name,
            "systems": f"{self.num_csx} x {self.artifact.system.name}",
            "batch": f"{self.batch_size:,} samples",
            "step": f"{self.step_s:.3g} s modelled, {self.band.text(self.step_s)}",
            "throughput": f"{self.tokens_per_s:,.0f} {unit}/s",
            "of peak": f"{self.share_of_peak:.1%}",
            "bound by": self.bound,
            **({} if self.days is None else {f"for {self.tokens:,} tokens": f"{self.days:,.3g} days"}),
        }


class Estimator:
    """Estimates of one request; the model is compiled once for each number of samples and systems.

    Args:
        request: model, systems and choices of the estimates
        keeps: whether artifacts are kept in the user's cache, for later estimates
    """

    def __init__(self, request: Request, *, keeps: bool = False) -> None:
        self.request = request
        asked = f"{request.recompute} {request.expert_imbalance}"
        self._kept = kept_results(request.params, request.system, asked) if keeps else KeptResults(None, ())
        self._compiled: dict[tuple[int, str, int | None, int], Artifact] = {}

    def at(self, num_csx: int) -> Estimate:
        """Return the estimate for a number of systems.

        Raises:
            EstimateError: the systems do not divide the batch or are more than a cluster has, or MemoryX is too small
            CompileError: the model does not fit a wafer
        """
        request = self.request
        samples = samples_per_csx(request, num_csx)
        return estimate_of(request, self.compiled(samples, request.execution_mode, num_csx=num_csx))

    def compiled(
        self, samples: int, execution_mode: str, micro_batch_size: int | None = None, *, num_csx: int = 1
    ) -> Artifact:
        """Return the model compiled for a number of samples per system and step.

        Raises:
            CompileError, EstimateError: it does not fit
        """
        key = samples, execution_mode, micro_batch_size, num_csx
        if key not in self._compiled:
            self._compiled[key] = self._kept.artifact(
                f"artifact {key}",
                self.request.system,
                lambda: self._compile(samples, execution_mode, micro_batch_size, num_csx),
            )
        return self._compiled[key]

    def _compile(self, samples: int, execution_mode: str, micro_batch_size: int | None, num_csx: int) -> Artifact:
        params, system = self._params_of(samples, num_csx), self.request.system
        try:
            return compiler.compile_model(
                params,
                system,
                execution_mode=execution_mode,
                recompute=self.request.recompute,
                micro_batch_size=micro_batch_size,
                like=self._program,
                **self.request.of_graph,
            )
        except CompileError:
            # If MemoryX is too small, that error is the more useful one.
            _check_memoryx(params, system, compiler.count_memoryx(params, system))
            raise

    def kept_number(self, asked: str, make: Callable[[], float]) -> float:
        """Return a number derived from the request and the key `asked`; made once, then kept."""
        return self._kept.number(asked, make)

    def edge_share(self, micro_batch_size: int) -> float:
        """Share of the kernels' time in which links off the wafer are the bound, with weights streamed.

        Raises:
            CompileError: such a micro-batch does not fit
        """

        def compute() -> float:
            shares = shares_of(self._prepared.kernel_cycles(micro_batch_size))
            return shares["ingress"] + shares["egress"]

        return self.kept_number(f"edge_share {micro_batch_size}", compute)

    @cached_property
    def _program(self) -> Program:
        """The model and results of earlier searches, independent of batch and number of systems."""
        params, request = self._params_of(1, 1), self.request
        return compiler.make_program(params, request.system, micro_batch_size=1, **request.of_graph)

    @cached_property
    def _prepared(self) -> Prepared:
        return Prepared(self.request.params, self.request.system, like=self._program)

    def _params_of(self, samples: int, num_csx: int) -> Params:
        params = self.request.params
        loader = loader_of(params).model_copy(update={"batch_size": samples * num_csx})
        return replace(params, train_dataloader=loader, num_csx=num_csx)


def estimate_of(request: Request, artifact: Artifact) -> Estimate:
    """The estimate of an artifact of a request, for the systems and samples of the artifact."""
    system, update_ops = artifact.system, costed_optimizer(request.params.optimizer).update_ops
    sizes = () if system.memoryx is None else system.memoryx.units_bytes
    units = [unit for unit in sizes if unit >= artifact.memoryx.total_bytes]
    return Estimate(
        artifact=artifact,
        step=cluster_step(artifact, update_ops),
        update_ops=update_ops,
        limits=limit_shares(artifact),
        flops=useful_flops(artifact),
        peak_flops=artifact.num_csx * system.peak_flops(artifact.operand_bits),
        memoryx_unit_bytes=None if artifact.streaming is None else min(units, default=None),
        stages=0 if system.swarmx is None else tree_stages(artifact.num_csx, system.swarmx.fan_out),
        tokens=request.tokens,
    )


def _check_memoryx(params: Params, system: System, need: MemoryXNeed) -> None:
    """Raise EstimateError where MemoryX is too small, and name a unit that is large enough."""
    if system.memoryx is None or need.total_bytes <= system.memoryx.capacity_bytes:
        return
    units = [
        (unit, name)
        for name in system_names()
        if (memoryx := load_system(name).memoryx) is not None
        for unit in memoryx.units_bytes
        if unit >= need.total_bytes
    ]
    hint = "no unit that was announced holds it"
    if units:
        unit, name = min(units)
        hint = f"the smallest unit that holds it is {bytes_text(unit)}, of {name}: --system {name} "
        hint += f"--memoryx {size_text(unit)}"
    raise EstimateError(
        f"{params.path}: MemoryX of {system.name} must hold {bytes_text(need.total_bytes)}: weights, optimizer "
        f"state and gradients; got {bytes_text(system.memoryx.capacity_bytes)}",
        hint,
    )
