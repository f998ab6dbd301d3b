"""The same job on GPUs, beside an estimate that was made; the verb behind `cstool estimate --gpus`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.model.verbs.asked import asked_params

if TYPE_CHECKING:
    from cstool.model.params import Params
    from cstool.plan.estimation.gpu import Beside, GpuValidation
    from cstool.plan.verbs.estimating import Estimates


def beside_gpus(
    found: Estimates,
    params: str | Path | Params,
    counts: Sequence[int],
    *,
    gpu: str = "a100",
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
) -> Beside:
    """Set GPUs beside the first estimate: the same model, batch and tokens.

    Args:
        found: estimates of wafers
        params: that were estimated
        counts: numbers of GPUs
        gpu: a known name, or a GPU file
        overrides: of values of the params

    Raises:
        EstimateError: the closed forms do not know the model, or no number of GPUs holds it
        ParamsError: there is no such GPU, or its file breaks rules
    """
    from cstool.plan.estimation.gpu import beside_gpus as beside

    return beside(asked_params(params, overrides), found.estimate, gpu, counts)


def validate_gpus() -> GpuValidation:
    """Set the closed forms beside published steps on A100s."""
    from cstool.plan.estimation.gpu import validate_gpus as validate

    return validate()
