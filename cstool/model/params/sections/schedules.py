"""Learning rates as functions of the step: one for each, that depends on nothing else. Names and keys are the vendor's.

Source: cerebras.pytorch.optim.lr_scheduler, 2.10. There `rate(step)` is the rate of the update that takes the
weights from `step` to `step + 1`. For schedules that come back, along cosines and triangles: torch.optim.lr_scheduler,
their origin: the vendor's formula of CosineAnnealingWarmRestarts equals PyTorch's only in the first period, and
its OneCycleLR goes on swinging after the last step; here both are as PyTorch documents them.
"""

import itertools
import math
from abc import abstractmethod
from operator import ge
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, ValidationInfo, field_validator, model_validator

from cstool.foundation.yaml_lines.section import (
    Count,
    List,
    NotNegative,
    Positive,
    Section,
    Whole,
    beside,
    increasing,
    rule_error,
)


class Schedule(Section):
    """A learning rate for every step, counted from 0."""

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        return self._rate(step)

    @abstractmethod
    def _rate(self, step: int) -> float:
        pass

    @property
    def length(self) -> int | None:
        """Steps until the next schedule of a sequence takes over; None if nothing says so."""
        return getattr(self, "total_iters", None)

    def entry(self) -> dict[str, Any]:
        """Return the schedule as an entry of the file's `schedulers`."""
        return {type(self).__name__: self.dump()}


def power(number: float, exponent: float) -> float:
    """A power; infinity where it is beyond the range of a float."""
    try:
        return float(number**exponent)
    except OverflowError:
        return math.inf


Part = Annotated[Schedule, PlainSerializer(Schedule.entry)]
"""a schedule within another"""


class ConstantLR(Schedule):
    """The same rate at every step."""

    learning_rate: NotNegative
    total_iters: Count | None = None

    def _rate(self, _step: int) -> float:
        return self.learning_rate


class _Decay(Schedule):
    """From the initial to the end rate in total_iters steps; then the end rate."""

    initial_learning_rate: NotNegative
    end_learning_rate: NotNegative
    total_iters: Count

    # Old files say it beside the end rate that follows from it.
    without_effect = frozenset({"alpha"})

    @abstractmethod
    def _left(self, progress: float) -> float:
        """Return the share of the way that is left, from 1 down to 0."""

    def _rate(self, step: int) -> float:
        if step >= self.total_iters:
            return self.end_learning_rate
        left = self._left(step / self.total_iters)
        return self.end_learning_rate + (self.initial_learning_rate - self.end_learning_rate) * left


class LinearLR(_Decay):
    """Along a straight line."""

    # The vendor's formula comes out the same with and without it.
    without_effect = frozenset({"alpha", "cycle"})

    def _left(self, progress: float) -> float:
        return 1 - progress


class PolynomialLR(LinearLR):
    """Along (1 - step/total_iters)^power."""

    power: NotNegative = 1.0

    def _left(self, progress: float) -> float:
        return power(1 - progress, self.power)


class CosineDecayLR(_Decay):
    """Along half a cosine."""

    def _left(self, progress: float) -> float:
        return (1 + math.cos(math.pi * progress)) / 2


class ExponentialLR(Schedule):
    """Times decay_rate every total_iters steps, smoothly or (staircase) at once; it goes on after total_iters."""

    initial_learning_rate: NotNegative
    total_iters: Count
    decay_rate: NotNegative
    staircase: bool = False

    def _rate(self, step: int) -> float:
        times = step // self.total_iters if self.staircase else step / self.total_iters
        return self.initial_learning_rate * power(self.decay_rate, times)


class InverseExponentialTimeDecayLR(Schedule):
    """The initial rate over 1 + decay_rate * step^step_exponent / total_iters."""

    initial_learning_rate: NotNegative
    step_exponent: Whole
    total_iters: Count
    decay_rate: NotNegative
    staircase: bool = False

    def _rate(self, step: int) -> float:
        powered = power(step, self.step_exponent)
        times = powered // self.total_iters if self.staircase else powered / self.total_iters
        return self.initial_learning_rate / (1 + self.decay_rate * times)


class InverseSquareRootDecayLR(Schedule):
    """The initial rate times scale / sqrt(step), and until warmup_steps times scale / sqrt(warmup_steps)."""

    initial_learning_rate: NotNegative = 1.0
    scale: NotNegative = 1.0
    warmup_steps: Count = 1

    def _rate(self, step: int) -> float:
        return self.initial_learning_rate * self.scale / math.sqrt(max(step, self.warmup_steps))


class MultiplicativeLR(Schedule):
    """Times coefficient at every step."""

    initial_learning_rate: NotNegative
    coefficient: NotNegative

    def _rate(self, step: int) -> float:
        return self.initial_learning_rate * power(self.coefficient, step)


class StepLR(Schedule):
    """Times gamma every step_size steps."""

    initial_learning_rate: NotNegative
    step_size: Count
    gamma: NotNegative

    def _rate(self, step: int) -> float:
        return self.initial_learning_rate * power(self.gamma, step // self.step_size)


class MultiStepLR(Schedule):
    """Times gamma at each milestone."""

    initial_learning_rate: NotNegative
    gamma: NotNegative
    milestones: Annotated[tuple[Count, ...], List, AfterValidator(increasing)]

    def _rate(self, step: int) -> float:
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
        return increasing(milestones)

    def _rate(self, step: int) -> float:
        return self.learning_rates[sum(step >= milestone for milestone in self.milestones)]


class _Cosine(Schedule):
    """Between the initial rate and eta_min, along cosines."""

    initial_learning_rate: NotNegative
    eta_min: NotNegative = 0.0

    def _along(self, share: float) -> float:
        """Return the rate after a share of half a period: 0 is the initial rate, 1 is eta_min."""
        return self.eta_min + (self.initial_learning_rate - self.eta_min) * (1 + math.cos(math.pi * share)) / 2


class CosineAnnealingLR(_Cosine):
    """Down to eta_min in T_max steps, and up again in as many, and so on."""

    T_max: Count

    def _rate(self, step: int) -> float:
        return self._along(step / self.T_max)


class CosineAnnealingWarmRestarts(_Cosine):
    """Down towards eta_min in T_0 steps, then again from the initial rate, every time in T_mult times as many."""

    T_0: Count
    T_mult: Count = 1

    def _rate(self, step: int) -> float:
        period = self.T_0
        if self.T_mult == 1:
            step %= period
        while step >= period:
            step -= period
            period *= self.T_mult
        return self._along(step / period)


_NO_MOMENTUM: dict[str, tuple[Any, ...]] = dict.fromkeys(("base_momentum", "cycle_momentum", "max_momentum"), ())
"""keys of PyTorch, not of the vendor, whose schedules leave the momentum alone"""


class CyclicLR(Schedule):
    """Triangles between base_lr and max_lr.

    `mode`: triangular, triangular2 (each triangle half as high as the one before), or exp_range (times gamma^step).
    Without step_size_down a triangle falls in as many steps as it rises.
    """

    base_lr: NotNegative
    max_lr: Annotated[NotNegative, beside("base_lr", ge, "must be at least base_lr ({:g})")]
    step_size_up: Count = 2000
    step_size_down: Count | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: NotNegative = 1.0

    # It follows from the mode.
    without_effect = frozenset({"scale_mode"})
    supported = {**_NO_MOMENTUM, "scale_fn": ()}

    def _rate(self, step: int) -> float:
        up, down = self.step_size_up, self.step_size_down or self.step_size_up
        cycle, place = divmod(step, up + down)
        height = place / up if place <= up else (up + down - place) / down
        scale = {"triangular": 1.0, "triangular2": power(2.0, -cycle), "exp_range": power(self.gamma, step)}[self.mode]
        return self.base_lr + (self.max_lr - self.base_lr) * height * scale


class OneCycleLR(Schedule):
    """Up from the initial rate to max_lr in pct_start of total_steps, then down to the initial one / final_div_factor.

    With three_phase it comes down to the initial rate in as many steps as it went up, and then to the last one. After
    total_steps it stays there. The momentum does not change, as with the vendor.
    """

    initial_learning_rate: NotNegative
    max_lr: NotNegative
    total_steps: Count = 1000
    pct_start: Annotated[
        float,
        Field(gt=0, lt=1),
        beside("total_steps", lambda share, steps: share * steps > 1, "must be more than one of the total_steps ({})"),
    ] = 0.3
    final_div_factor: Positive = 1e4
    three_phase: bool = False
    anneal_strategy: Literal["cos", "linear"] = "cos"

    supported = _NO_MOMENTUM

    @field_validator("three_phase")
    @classmethod
    def _leaves_a_third_phase(cls, three_phase: bool, info: ValidationInfo) -> bool:
        pct_start, steps = info.data.get("pct_start"), info.data.get("total_steps")
        if three_phase and pct_start is not None and steps is not None and 2 * pct_start * steps - 1 >= steps:
            raise rule_error(f"must leave steps after twice the pct_start ({pct_start:g})", "pct_start below 0.5 does")
        return three_phase

    def _rate(self, step: int) -> float:
        first, last = self.initial_learning_rate, self.initial_learning_rate / self.final_div_factor
        top = self.pct_start * self.total_steps - 1
        phases = [(top, first, self.max_lr), (self.total_steps - 1, self.max_lr, last)]
        if self.three_phase:
            phases[1:] = [(2 * top, self.max_lr, first), (self.total_steps - 1, first, last)]
        begin = 0.0
        for end, start_rate, end_rate in phases:
            if step <= end:
                share = (step - begin) / (end - begin)
                if self.anneal_strategy == "linear":
                    return start_rate + (end_rate - start_rate) * share
                return end_rate + (start_rate - end_rate) * (1 + math.cos(math.pi * share)) / 2
            begin = end
        return last


class SequentialLR(Schedule):
    """One schedule after the other, each counting its own steps from 0.

    `milestones`, the steps at which the next one takes over, are the running sums of `total_iters`.
    """

    schedulers: Annotated[tuple[Part, ...], List, Field(min_length=1)]
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
        return increasing(milestones)

    def _rate(self, step: int) -> float:
        number = sum(step >= milestone for milestone in self.milestones)
        return self.schedulers[number].rate(step - (0, *self.milestones)[number])

    @property
    def length(self) -> int | None:
        """See `Schedule.length`."""
        last = self.schedulers[-1].length
        return None if last is None else (0, *self.milestones)[-1] + last


class ChainedScheduler(Schedule):
    """Several schedules at once: the rate of the first, times the factors of the others on their initial rate."""

    schedulers: Annotated[tuple[Part, ...], List, Field(min_length=1)]

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

    def _rate(self, step: int) -> float:
        first, *others = self.schedulers
        rate = first.rate(step)
        for schedule in others:
            rate *= schedule.rate(step) / float(getattr(schedule, "initial_learning_rate"))  # noqa: B009
        return rate


class ScalePerParamLR(Schedule):
    """Another schedule. The factors of `adjust_learning_rate`, for which the vendor has it, count with any schedule."""

    scheduler: Part

    def _rate(self, step: int) -> float:
        return self.scheduler.rate(step)

    @property
    def length(self) -> int | None:
        """See `Schedule.length`."""
        return self.scheduler.length


OTHER_SCHEDULES: dict[str, str] = {
    "LambdaLR": "its rates come from a function in Python: PiecewiseConstantLR and SequentialLR take numbers alone"
}
"""the vendor's schedules that cannot be had, and replacements"""
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
