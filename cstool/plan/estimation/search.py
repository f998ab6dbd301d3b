"""Search: the fewest systems on which a job keeps its limits, or the fastest plan that does; and the alternatives.

With a limit on days, the answer is the fewest systems, with the fastest plan on them. Without one, a single system
would always do, so the answer is the fastest plan.

A candidate is a share of zeros, a number of systems, a batch that they share, and a way to run it: pipelined, or
weights streamed, with a size of micro-batches, a layout and a choice of recomputation. For each number of systems, all
batches and ways are considered. Lower bounds exclude candidates that cannot be the answer:

- A streamed step takes at least the busy time of its PEs. It is known for each way before any simulation: the number
  of micro-batches times the cycles of one. A pipelined step takes at least the time of its products at the peak.
- Systems draw at least their idle power.
- A job takes at least the time of its steps, and costs at least the price of these hours.

More systems are not always faster: batches and micro-batches are whole numbers of samples. So the search assumes
no quantity to fall or rise with the number of systems, nor with the share of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from cstool.foundation.errors import EstimateError
from cstool.model.ir import Artifact, ExecutionMode
from cstool.plan.compiler.prepared import Prepared, Streamed
from cstool.plan.estimation.cost import HOUR_S, CostInputs, job_cost
from cstool.plan.estimation.limits import BUDGET, DAYS, POWER, Limits, Space, counts_of, samples_of
from cstool.plan.estimation.plan import Found, Plan, front
from cstool.plan.estimation.point import DAY_S, Estimator, estimate_of
from cstool.plan.estimation.request import Request

MODES = {
    "auto": (ExecutionMode.WEIGHT_STREAMING, ExecutionMode.PIPELINED),
    "weight_streaming": (ExecutionMode.WEIGHT_STREAMING,),
    "pipelined": (ExecutionMode.PIPELINED,),
}
MOST_ROWS = 24
"""most rows that list every number of systems; beyond: doublings, the last one, the answer and its neighbours"""


class Model:
    """Estimates of a model with one share of zeros, each made once.

    Args:
        sparsity: share of zeros; None: the share of the file
        request: model, systems and tokens of the estimates
        inputs: of the cost
        checkpoint_steps: between checkpoints, as the params have it
    """

    def __init__(
        self, sparsity: float | None, request: Request, inputs: CostInputs, checkpoint_steps: int | None
    ) -> None:
        self.sparsity, self.request = sparsity, request
        self._inputs, self._steps = inputs, checkpoint_steps
        self.simulated = 0
        self._fastest: dict[tuple[int, int], Plan | None] = {}
        self._all: dict[tuple[int, int], list[Plan]] = {}

    @cached_property
    def prepared(self) -> Prepared:
        """The compiler passes that all numbers of systems share."""
        request = self.request
        return Prepared(request.params, request.system, MODES[request.execution_mode], **request.of_graph)

    @cached_property
    def _flops_s(self) -> float:
        """Time of a sample at the peak of one system [s]."""
        peak = self.request.system.peak_flops(self.request.params.operand_bits)
        return self.prepared.sample_flops / peak

    def least_step_s(self, samples: int) -> float:
        """Lower bound of a step [s] by samples per system, for any number of systems; infinite if nothing fits."""
        prepared, clock_hz = self.prepared, self.request.system.clock_hz
        ways = prepared.streamed(samples)
        bound = prepared.busy_cycles(ways[0], samples) / clock_hz if ways else math.inf
        bound = min(bound, samples * self._flops_s) if prepared.may_pipeline else bound
        # A step is rounded to whole cycles.
        return max(0.0, bound - 1 / clock_hz)

    def least(self, count: int, samples: int) -> dict[str, float]:
        """Lower bounds of a job, by the number of systems and samples per system: flag of the limit -> amount."""
        tokens = self.request.tokens
        assert tokens is not None
        job_s = tokens / (count * samples * self.prepared.tokens) * self.least_step_s(samples)
        price = (self._inputs.price or 0.0) * count * job_s / HOUR_S
        power_w = count * min(self.request.system.idle_power_w, self.request.system.power_w)
        # Sums of the same numbers in another order differ in their last digits.
        slack = 1 - 1e-9
        return {DAYS: slack * job_s / DAY_S, POWER: slack * power_w, BUDGET: slack * price}

    def fastest(self, count: int, samples: int) -> Plan | None:
        """The fastest plan for a number of systems and samples per system; None where nothing fits."""
        key = count, samples
        if key not in self._fastest:
            best: Artifact | None = None
            for way in self.prepared.streamed(samples):
                bound = self.prepared.busy_cycles(way, samples)
                if best is not None and bound > best.step_cycles:
                    break
                made = self._streamed(way, count, samples)
                best = made if best is None or made.step_cycles < best.step_cycles else best
            placed = self.prepared.pipelined(count, samples, best)
            if placed is not None and (best is None or placed.step_cycles <= best.step_cycles):
                best = placed
            self._fastest[key] = None if best is None else self._plan(best)
        return self._fastest[key]

    def every(self, count: int, samples: int) -> list[Plan]:
        """All plans for a number of systems and samples per system, the fastest first."""
        key = count, samples
        if key not in self._all:
            ways = [way for choice in ("fastest", "all") for way in self.prepared.streamed(samples, choice)]
            made = [self._streamed(way, count, samples) for way in ways]
            placed = (self.prepared.pipelined(count, samples, None, choice) for choice in ("fastest", "none", "all"))
            made += [each for each in placed if each is not None]
            plans = [self._plan(each) for each in sorted(made, key=lambda each: each.step_cycles)]
            self._all[key] = [plan for plan in plans if plan is not None]
        return self._all[key]

    def _streamed(self, way: Streamed, count: int, samples: int) -> Artifact:
        self.simulated += 1
        return self.prepared.artifact(way, count, samples)

    def _plan(self, artifact: Artifact) -> Plan | None:
        estimate = estimate_of(self.request, artifact)
        try:
            return Plan(self.sparsity, estimate, job_cost(estimate, self._inputs, self._steps))
        except EstimateError:
            # Failures are so frequent that the job never ends.
            return None


class Search:
    """Plans of a job, over a space of clusters and batches.

    Args:
        models: one for each share of zeros, at least one
        space: the choices of systems and batches
        limits: of the job

    Raises:
        EstimateError: more systems are asked for than a cluster has
    """

    def __init__(self, models: list[Model], space: Space, limits: Limits) -> None:
        self.models, self.space, self.limits = models, space, limits
        system = models[0].request.system
        most = 1 if system.swarmx is None else system.max_systems
        if space.most is not None and space.most > most:
            raise EstimateError(
                f"--num_csx: must be at most {most:,}, the systems of a cluster of {system.name}, got {space.most:,}"
            )
        self.counts = counts_of(space, most)

    def run(self) -> Found | None:
        """Return the result; None where no plan keeps the limits."""
        of_shares = {model.sparsity: self._best_of(model) for model in self.models}
        has_days = self.limits.days is not None

        def order(plan: Plan) -> tuple[float, ...]:
            if has_days:
                return plan.order
            return plan.amounts(is_confident=self.limits.is_confident)[DAYS], *plan.order

        best = min((plan for plan in of_shares.values() if plan is not None), key=order, default=None)
        if best is None:
            return None
        beside: Plan | None = None
        if next_to := [count for count in self.counts if (count < best.systems if has_days else count > best.systems)]:
            nearest = next_to[-1] if has_days else next_to[0]
            beside = min(self.fastest_on(nearest), key=lambda plan: plan.days, default=None)
        plans = [plan for count in self._rows(best.systems) for plan in self.fastest_on(count)]
        plans += [plan for plan in of_shares.values() if plan is not None and plan not in plans]
        plans.sort(key=lambda plan: (plan.sparsity or 0.0, plan.systems, plan.days))

        def amounts(plan: Plan) -> tuple[float, ...]:
            return plan.systems, plan.days, plan.power_w, plan.price or 0.0, plan.sparsity or 0.0

        return Found(
            best=best,
            of_shares=of_shares,
            beside=beside,
            broken=() if beside is None else tuple(beside.breaks(self.limits)),
            front=tuple(front(plans, amounts)),
            plans=tuple(plans),
            limits=self.limits,
            simulated=sum(model.simulated for model in self.models),
        )

    def _best_of(self, model: Model) -> Plan | None:
        if self.limits.days is None:
            return self.least_within(DAYS, self.limits, [model])
        for count in self.counts:
            firsts = (
                next(self._meeting(model, count, samples, self.limits), None)
                for samples in samples_of(self.space, count)
            )
            if found := [plan for plan in firsts if plan is not None]:
                return min(found, key=lambda plan: plan.order)
        return None

    def _meeting(self, model: Model, count: int, samples: int, limits: Limits) -> Iterator[Plan]:
        """Yield plans that keep the limits, the fastest first: only one, unless slower plans are needed to keep them.

        Days and price grow with the time of a step. So where the fastest plan exceeds them, all plans do, unless the
        slow end of the range of the estimate must keep them.
        """
        bounds = model.least(count, samples)
        if any(bounds[flag] > most for flag, most in limits.values().items()):
            return
        plan = model.fastest(count, samples)
        if plan is None:
            return
        broken = plan.breaks(limits)
        if not broken:
            yield plan
        elif broken == [POWER] or limits.is_confident:
            # In slower plans, systems are idle for a larger share of the time and draw less; and the range of one
            # mode may be narrower than the range of the faster mode.
            yield from (each for each in model.every(count, samples) if not each.breaks(limits))

    def fastest_on(self, count: int) -> list[Plan]:
        """Return the fastest plan on a number of systems, over all batches, for each share of zeros that fits."""
        found = []
        for model in self.models:
            plans = [plan for each in samples_of(self.space, count) if (plan := model.fastest(count, each)) is not None]
            found += [min(plans, key=lambda plan: plan.order)] if plans else []
        return found

    def least(self, flag: str) -> Plan | None:
        """Return the plan with the least days, power or price that keeps the other limits; None where there is none."""
        rest = Limits(
            None if flag == DAYS else self.limits.days,
            None if flag == POWER else self.limits.power_w,
            None if flag == BUDGET else self.limits.budget,
            self.limits.is_confident,
        )
        return self.least_within(flag, rest)

    def least_within(self, flag: str, limits: Limits, models: Sequence[Model] | None = None) -> Plan | None:
        """Return the plan with the least days, power or price that keeps limits; None where there is none.

        Args:
            models: that may be planned; None for all
        """
        models = self.models if models is None else models
        best: Plan | None = None

        def amount(plan: Plan) -> float:
            return plan.amounts(is_confident=limits.is_confident)[flag]

        # The lowest bounds come first, so that the loop ends early.
        points = sorted(
            (model.least(count, samples)[flag], count, samples, number)
            for number, model in enumerate(models)
            for count in self.counts
            for samples in samples_of(self.space, count)
        )
        for bound, count, samples, number in points:
            if best is not None and bound > amount(best):
                break
            model = models[number]
            plans = list(self._meeting(model, count, samples, limits))
            if flag == POWER or limits.is_confident:
                plans = [plan for plan in model.every(count, samples) if not plan.breaks(limits)]
            for plan in plans:
                if best is None or (amount(plan), plan.order) < (amount(best), best.order):
                    best = plan
        return best

    def _rows(self, answer: int) -> list[int]:
        """Numbers of systems in the front."""
        counts = self.counts
        if len(counts) <= MOST_ROWS:
            return list(counts)
        place = counts.index(answer)
        kept = {*counts[max(0, place - 1) : place + 2], counts[-1]}
        kept |= {count for count in counts if count & (count - 1) == 0}
        return sorted(kept)

    def raise_misfit(self) -> None:
        """Raise the reason that nothing fits, the error of an estimate for the first number of systems."""
        request = self.models[0].request
        samples = samples_of(self.space, 1) or samples_of(self.space, self.counts[0])
        Estimator(request).compiled(min(samples), request.execution_mode, num_csx=1)
