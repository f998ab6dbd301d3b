"""Choices of recomputation, side by side; the verb behind `cstool estimate --recompute_table`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cstool.foundation.errors import CompileError, EstimateError
from cstool.plan.verbs.estimating import SPARSITY_KEY, _estimator, one_trainer

if TYPE_CHECKING:
    from cstool.plan.estimation import Estimate


CHOICES = ("none", "all", "needed", "fastest")
"""choices of recomputation; the others choose between the first two, or go beyond them"""


class RecomputeChoice(NamedTuple):
    """A choice of recomputation, and its estimate.

    Args:
        name: of the choice
        estimate: None where it does not fit
        why: it does not
    """

    name: str
    estimate: Estimate | None
    why: str


def recompute_choices(
    file: Path,
    overrides: Sequence[str] = (),
    *,
    num_csx: int | None = None,
    sparsity: float | None = None,
    **asked: Any,
) -> list[RecomputeChoice]:
    """Return the estimates of all choices of recomputation, the least recomputation first.

    Args:
        file: of params
        overrides: of its values
        num_csx: systems; None for the params' number
        sparsity: share of zeros; None for the params' share
        asked: the other arguments of `cstool.plan.verbs.estimating.estimate`

    Raises:
        EstimateError, ParamsError: as of `estimate`
    """
    from cstool.plan.estimation import Estimator

    typed = {} if sparsity is None else {SPARSITY_KEY: ("--sparsity", sparsity)}
    request = _estimator(one_trainer(file, overrides, typed), None, **asked).request
    count = request.params.num_csx if num_csx is None else num_csx
    found = []
    for name in CHOICES:
        try:
            found.append(RecomputeChoice(name, Estimator(replace(request, recompute=name)).at(count), ""))
        except (CompileError, EstimateError) as error:
            found.append(RecomputeChoice(name, None, error.message))
    return found


def without_lora(file: Path, overrides: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """Return the overrides of a params file that take the vendor's callback `Lora` out of it, and its adapters.

    Args:
        file: of params, or the name of a stock one
        overrides: of its values, which stay

    Returns:
        With the adapters as `--adapters` has them; None where the file has none

    Raises:
        EstimateError: the adapters are none that can be estimated
        ParamsError: the file cannot be read
    """
    from cstool.plan.estimation.lora_callback import KEY, take_lora

    found = take_lora(file)
    if found is None:
        return tuple(overrides), None
    rest, adapters = found
    return (f"{KEY}={json.dumps(rest) if rest else 'null'}", *overrides), adapters
