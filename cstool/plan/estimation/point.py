"""One estimate: a model on so many systems."""

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
from cstool.plan.timing.schedule import COMPUTE
from cstool.plan.timing.wafer import cluster_step, limit_shares, shares_of, tree_stages, useful_flops, zero_weights

DAY_S = 86_400.0


@dataclass(frozen=True, repr=False)
class Estimate(Brief):
    """What a step comes to on so many systems. All of it is modelled.

    Args:
        artifact: compiled for so many systems; its step is the one that is estimated
        step: what its time is spent on, and the work of each resource
        update_ops: operations of an update per weight
        limits: limit -> share of the kernels' time for which it counts
        flops: of the products of a step, all systems, zeros and repetitions left out [FLOP]
        peak_flops: of all systems [FLOP/s]
        memoryx_unit_bytes: the smallest MemoryX that holds the model; None where there is none, or none is needed
        stages: of SwarmX
        tokens: to train with; None if nobody asked
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
        """Systems."""
        return self.artifact.num_csx

    @property
    def batch_size(self) -> int:
        """Global."""
        return self.artifact.batch_size

    @property
    def samples_per_csx(self) -> int:
        """Of a step."""
        return self.batch_size // self.num_csx

    @property
    def step_s(self) -> float:
        """Of a step, as the compiler has it [s]."""
        return self.artifact.step_s

    @property
    def samples_per_s(self) -> float:
        """Of all systems."""
        return self.batch_size / self.step_s

    @property
    def tokens_per_s(self) -> float:
        """Of all systems; samples where there is no sequence."""
        return self.samples_per_s * self.artifact.tokens

    @property
    def zero_weights(self) -> int:
        """Weights that are zero and not streamed."""
        return zero_weights(self.artifact)

    @property
    def flops_per_s(self) -> float:
        """Of the useful products [FLOP/s]."""
        return self.flops / self.step_s

    @property
    def share_of_peak(self) -> float:
        """Of the peak that follows from PEs, clock and datapath."""
        return self.flops_per_s / self.peak_flops

    @property
    def busy(self) -> dict[str, float]:
        """Resource -> share of the step in which it works."""
        return {name: seconds / self.step_s for name, seconds in self.step.busy_s.items()}

    @property
    def bound(self) -> str:
        """What most of the step is spent on: what would have to be faster."""
        return self.step.bound

    @property
    def power_w(self) -> float:
        """Of all systems [W]; what the servers around them draw is among the costs of a job."""
        system = self.artifact.system
        busy = self.busy[COMPUTE]
        return self.num_csx * (system.idle_power_w + (system.power_w - system.idle_power_w) * min(1.0, busy))

    @property
    def joules_per_token(self) -> float:
        """Of the systems [J]."""
        return self.power_w / self.tokens_per_s

    @property
    def reads_images(self) -> bool:
        """Whether samples are numbers, those of pixels, and not tokens."""
        return self.artifact.graph.inputs[0].dtype == "float32"

    @property
    def days(self) -> float | None:
        """To train with the tokens that were asked for."""
        return None if self.tokens is None else self.tokens / self.tokens_per_s / DAY_S

    @property
    def band(self) -> Band:
        """Range of the time of a step, by the held-out results that are like it."""
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
    """Estimates of one request; what is compiled is compiled once for each number of samples and systems.

    Args:
        request: what is asked for
        keeps: whether what is compiled is kept in the user's cache, for estimates to come
    """

    def __init__(self, request: Request, *, keeps: bool = False) -> None:
        self.request = request
        asked = f"{request.recompute} {request.expert_imbalance} {request.variants!r}"
        self._kept = kept_results(request.params, request.system, asked) if keeps else KeptResults(None, ())
        self._compiled: dict[tuple[int, str, int | None, int], Artifact] = {}

    def at(self, num_csx: int) -> Estimate:
        """Return the estimate for so many systems.

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
        """Return the model compiled for systems with so many samples of a step each.

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
                expert_imbalance=self.request.expert_imbalance,
                variant=self.request.variants,
                like=self._program,
            )
        except CompileError:
            # That MemoryX is too small says more than what else does not fit.
            _check_memoryx(params, system, compiler.count_memoryx(params, system, variant=self.request.variants))
            raise

    def kept_number(self, asked: str, make: Callable[[], float]) -> float:
        """Return a number that follows from the request and from what is asked of it; kept once it is made."""
        return self._kept.number(asked, make)

    def edge_share(self, micro_batch_size: int) -> float:
        """Share of the kernels' time for which the links off the wafer count, weights streamed.

        Raises:
            CompileError: such a micro-batch does not fit
        """

        def compute() -> float:
            shares = shares_of(self._prepared.kernel_cycles(micro_batch_size))
            return shares["ingress"] + shares["egress"]

        return self.kept_number(f"edge_share {micro_batch_size}", compute)

    @cached_property
    def _program(self) -> Program:
        """The model, with what searches found: neither batch nor number of systems count."""
        request = self.request
        return compiler.make_program(
            self._params_of(1, 1),
            request.system,
            micro_batch_size=1,
            expert_imbalance=request.expert_imbalance,
            variant=request.variants,
        )

    @cached_property
    def _prepared(self) -> Prepared:
        return Prepared(self.request.params, self.request.system, like=self._program)

    def _params_of(self, samples: int, num_csx: int) -> Params:
        params = self.request.params
        loader = loader_of(params).model_copy(update={"batch_size": samples * num_csx})
        return replace(params, train_dataloader=loader, num_csx=num_csx)


def estimate_of(request: Request, artifact: Artifact) -> Estimate:
    """The estimate of an artifact that is made for a request, for so many systems and samples as it has."""
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
    """Raise where MemoryX is too small, with a unit that is not."""
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
