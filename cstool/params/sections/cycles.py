"""Learning rates that come back: along cosines and triangles. Names and keys are the vendor's.

Source: cerebras.pytorch.optim.lr_scheduler, 2.10, and torch.optim.lr_scheduler, whose schedules these are. There the
vendor's formula of CosineAnnealingWarmRestarts is that of PyTorch only in the first period, and its OneCycleLR goes on
swinging after the last step; here both are as PyTorch documents them.
"""

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator
from typing_extensions import override

from cstool.params.sections.schedule import Schedule, power
from cstool.yaml_lines.section import Count, NotNegative, Positive, rule_error


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

    @override
    def rate(self, step: int) -> float:
        return self._along(step / self.T_max)


class CosineAnnealingWarmRestarts(_Cosine):
    """Down towards eta_min in T_0 steps, then again from the initial rate, every time in T_mult times as many."""

    T_0: Count
    T_mult: Count = 1

    @override
    def rate(self, step: int) -> float:
        period = self.T_0
        if self.T_mult == 1:
            step %= period
        while step >= period:
            step -= period
            period *= self.T_mult
        return self._along(step / period)


_NO_MOMENTUM: dict[str, tuple[Any, ...]] = {"base_momentum": (), "cycle_momentum": (), "max_momentum": ()}
"""keys of PyTorch, not of the vendor, whose schedules leave the momentum alone"""


class CyclicLR(Schedule):
    """Triangles between base_lr and max_lr.

    `mode`: triangular, triangular2 (each triangle half as high as the one before), or exp_range (times gamma^step).
    Without step_size_down a triangle falls in as many steps as it rises.
    """

    base_lr: NotNegative
    max_lr: NotNegative
    step_size_up: Count = 2000
    step_size_down: Count | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: NotNegative = 1.0

    # It follows from the mode.
    without_effect: ClassVar[frozenset[str]] = frozenset({"scale_mode"})
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {**_NO_MOMENTUM, "scale_fn": ()}

    @field_validator("max_lr")
    @classmethod
    def _is_the_upper_one(cls, max_lr: float, info: ValidationInfo) -> float:
        base_lr = info.data.get("base_lr")
        if base_lr is not None and max_lr < base_lr:
            raise rule_error(f"must be at least base_lr ({base_lr:g})")
        return max_lr

    @override
    def rate(self, step: int) -> float:
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
    pct_start: Annotated[float, Field(gt=0, lt=1)] = 0.3
    final_div_factor: Positive = 1e4
    three_phase: bool = False
    anneal_strategy: Literal["cos", "linear"] = "cos"

    supported: ClassVar[dict[str, tuple[Any, ...]]] = _NO_MOMENTUM

    @field_validator("pct_start")
    @classmethod
    def _leaves_steps(cls, pct_start: float, info: ValidationInfo) -> float:
        steps = info.data.get("total_steps")
        if steps is not None and pct_start * steps <= 1:
            raise rule_error(f"must be more than one of the total_steps ({steps})")
        return pct_start

    @field_validator("three_phase")
    @classmethod
    def _leaves_a_third_phase(cls, three_phase: bool, info: ValidationInfo) -> bool:
        pct_start, steps = info.data.get("pct_start"), info.data.get("total_steps")
        if three_phase and pct_start is not None and steps is not None and 2 * pct_start * steps - 1 >= steps:
            raise rule_error(f"must leave steps after twice the pct_start ({pct_start:g})", "pct_start below 0.5 does")
        return three_phase

    @override
    def rate(self, step: int) -> float:
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
