"""Learning rates as functions of the step. Names, keys and formulas are the vendor's.

Source: cerebras.pytorch.optim.lr_scheduler, 2.10. There `rate(step)` is the rate of the update that takes the
weights from `step` to `step + 1`.
"""

import itertools
import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator, model_validator
from typing_extensions import override

from cstool.params.sections.cycles import CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from cstool.params.sections.schedule import Schedule, power
from cstool.yaml_lines.section import Count, List, NotNegative, Whole, rule_error


class ConstantLR(Schedule):
    """The same rate at every step."""

    learning_rate: NotNegative
    total_iters: Count | None = None

    @override
    def rate(self, step: int) -> float:
        return self.learning_rate


class _Decay(Schedule):
    """From the initial to the end rate in total_iters steps; then the end rate."""

    initial_learning_rate: NotNegative
    end_learning_rate: NotNegative
    total_iters: Count

    # Old files say it beside the end rate that follows from it.
    without_effect: ClassVar[frozenset[str]] = frozenset({"alpha"})

    @abstractmethod
    def _left(self, progress: float) -> float:
        """Return the share of the way that is left, from 1 down to 0."""

    @override
    def rate(self, step: int) -> float:
        if step >= self.total_iters:
            return self.end_learning_rate
        left = self._left(step / self.total_iters)
        return self.end_learning_rate + (self.initial_learning_rate - self.end_learning_rate) * left


class LinearLR(_Decay):
    """Along a straight line."""

    # The vendor's formula comes out the same with and without it.
    without_effect: ClassVar[frozenset[str]] = frozenset({"alpha", "cycle"})

    @override
    def _left(self, progress: float) -> float:
        return 1 - progress


class PolynomialLR(LinearLR):
    """Along (1 - step/total_iters)^power."""

    power: NotNegative = 1.0

    @override
    def _left(self, progress: float) -> float:
        return power(1 - progress, self.power)


class CosineDecayLR(_Decay):
    """Along half a cosine."""

    @override
    def _left(self, progress: float) -> float:
        return (1 + math.cos(math.pi * progress)) / 2


class ExponentialLR(Schedule):
    """Times decay_rate every total_iters steps, smoothly or (staircase) at once; it goes on after total_iters."""

    initial_learning_rate: NotNegative
    total_iters: Count
    decay_rate: NotNegative
    staircase: bool = False

    @override
    def rate(self, step: int) -> float:
        times = step // self.total_iters if self.staircase else step / self.total_iters
        return self.initial_learning_rate * power(self.decay_rate, times)


class InverseExponentialTimeDecayLR(Schedule):
    """The initial rate over 1 + decay_rate * step^step_exponent / total_iters."""

    initial_learning_rate: NotNegative
    step_exponent: Whole
    total_iters: Count
    decay_rate: NotNegative
    staircase: bool = False

    @override
    def rate(self, step: int) -> float:
        powered = power(step, self.step_exponent)
        times = powered // self.total_iters if self.staircase else powered / self.total_iters
        return self.initial_learning_rate / (1 + self.decay_rate * times)


class InverseSquareRootDecayLR(Schedule):
    """The initial rate times scale / sqrt(step), and until warmup_steps times scale / sqrt(warmup_steps)."""

    initial_learning_rate: NotNegative = 1.0
    scale: NotNegative = 1.0
    warmup_steps: Count = 1

    @override
    def rate(self, step: int) -> float:
        return self.initial_learning_rate * self.scale / math.sqrt(max(step, self.warmup_steps))


class MultiplicativeLR(Schedule):
    """Times coefficient at every step."""

    initial_learning_rate: NotNegative
    coefficient: NotNegative

    @override
    def rate(self, step: int) -> float:
        return self.initial_learning_rate * power(self.coefficient, step)


class StepLR(Schedule):
    """Times gamma every step_size steps."""

    initial_learning_rate: NotNegative
    step_size: Count
    gamma: NotNegative

    @override
    def rate(self, step: int) -> float:
        return self.initial_learning_rate * power(self.gamma, step // self.step_size)


def _increasing(milestones: tuple[int, ...]) -> tuple[int, ...]:
    if any(later <= earlier for earlier, later in itertools.pairwise(milestones)):
        raise rule_error("must increase")
    return milestones


class MultiStepLR(Schedule):
    """Times gamma at each milestone."""

    initial_learning_rate: NotNegative
    gamma: NotNegative
    milestones: Annotated[tuple[Count, ...], List]

    _milestones_increase = field_validator("milestones")(_increasing)

    @override
    def rate(self, step: int) -> float:
        passed = sum(step >= milestone for milestone in self.milestones)
        return self.initial_learning_rate * power(self.gamma, passed)


class PiecewiseConstantLR(Schedule):
    """The next of the learning_rates at each milestone."""

    learning_rates: Annotated[tuple[NotNegative, ...], List, Field(min_length=1)]
    milestones: Annotated[tuple[Count, ...], List]

    @field_validator("milestones")
    @classmethod
    def _milestones_part_the_rates(cls, milestones: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        rates = info.data.get("learning_rates")
        if rates is not None and len(milestones) != len(rates) - 1:
            raise rule_error(f"must hold {len(rates) - 1}, one less than learning_rates")
        return _increasing(milestones)

    @override
    def rate(self, step: int) -> float:
        return self.learning_rates[sum(step >= milestone for milestone in self.milestones)]


class SequentialLR(Schedule):
    """One schedule after the other, each counting its own steps from 0.

    `milestones`, the steps at which the next one takes over, are the running sums of `total_iters`.
    """

    schedulers: Annotated[tuple[Schedule, ...], List, Field(min_length=1)]
    milestones: Annotated[tuple[Count, ...], List]

    @model_validator(mode="before")
    @classmethod
    def _fill_milestones(cls, data: Any) -> Any:
        parts = data.get("schedulers") if isinstance(data, dict) else None
        if not isinstance(parts, list) or "milestones" in data:
            return data
        lengths = []
        for part in parts[:-1]:
            if part.length is None:
                raise rule_error(f"needs milestones, because {type(part).__name__} has no total_iters")
            lengths.append(part.length)
        return {**data, "milestones": tuple(itertools.accumulate(lengths))}

    @field_validator("milestones")
    @classmethod
    def _milestones_are_running_sums(cls, milestones: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if (schedules := info.data.get("schedulers")) is None:
            return milestones
        if len(milestones) != len(schedules) - 1:
            raise rule_error(f"must hold {len(schedules) - 1}, one less than schedulers")
        right: list[int] = []
        for schedule, start, end in zip(schedules, (0, *milestones), milestones, strict=False):
            right.append(start + (schedule.length or end - start))
        if list(milestones) != right:
            sums = ", ".join(map(str, right))
            raise rule_error(f"must be [{sums}], the running sums of total_iters", "leave milestones out")
        return _increasing(milestones)

    @override
    def rate(self, step: int) -> float:
        number = sum(step >= milestone for milestone in self.milestones)
        return self.schedulers[number].rate(step - (0, *self.milestones)[number])

    @property
    @override
    def length(self) -> int | None:
        last = self.schedulers[-1].length
        return None if last is None else (0, *self.milestones)[-1] + last

    @override
    def dump(self) -> dict[str, Any]:
        return {"schedulers": [s.entry() for s in self.schedulers], "milestones": list(self.milestones)}


class ChainedScheduler(Schedule):
    """Several schedules at once: the rate of the first, times what the others make of their initial rate."""

    schedulers: Annotated[tuple[Schedule, ...], List, Field(min_length=1)]

    @field_validator("schedulers")
    @classmethod
    def _others_have_an_initial_rate(cls, schedulers: tuple[Schedule, ...]) -> tuple[Schedule, ...]:
        for schedule in schedulers[1:]:
            if not getattr(schedule, "initial_learning_rate", 0):
                name = type(schedule).__name__
                raise rule_error(
                    f"needs an initial_learning_rate above 0 in every schedule after the first, {name} has none",
                    "what counts of these is the rate over the initial one",
                )
        return schedulers

    @override
    def rate(self, step: int) -> float:
        first, *others = self.schedulers
        rate = first.rate(step)
        for schedule in others:
            rate *= schedule.rate(step) / float(getattr(schedule, "initial_learning_rate"))  # noqa: B009
        return rate

    @override
    def dump(self) -> dict[str, Any]:
        return {"schedulers": [schedule.entry() for schedule in self.schedulers]}


class ScalePerParamLR(Schedule):
    """Another schedule. The factors of `adjust_learning_rate`, for which the vendor has it, count with any schedule."""

    scheduler: Schedule

    @override
    def rate(self, step: int) -> float:
        return self.scheduler.rate(step)

    @property
    @override
    def length(self) -> int | None:
        return self.scheduler.length

    @override
    def dump(self) -> dict[str, Any]:
        return {"scheduler": self.scheduler.entry()}


OTHER_SCHEDULES: dict[str, str] = {
    "LambdaLR": "its rates come from a function in Python: PiecewiseConstantLR and SequentialLR take numbers alone"
}
"""the vendor's schedules that cannot be had, and what to do instead"""
SCHEDULES: dict[str, type[Schedule]] = {
    schedule.__name__: schedule
    for schedule in (
        ConstantLR,
        LinearLR,
        CosineDecayLR,
        ExponentialLR,
        InverseExponentialTimeDecayLR,
        InverseSquareRootDecayLR,
        PolynomialLR,
        PiecewiseConstantLR,
        StepLR,
        MultiStepLR,
        MultiplicativeLR,
        CosineAnnealingLR,
        CosineAnnealingWarmRestarts,
        CyclicLR,
        OneCycleLR,
        SequentialLR,
        ChainedScheduler,
        ScalePerParamLR,
    )
}
