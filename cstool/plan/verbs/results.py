"""Results of estimates, their units, and the names of limits, for reports."""

from cstool.model.ir import Artifact
from cstool.model.params.sections.tuning import is_of_adapter
from cstool.plan.estimation import Estimate, Row, Tried, estimates_in, unmet
from cstool.plan.estimation.bands import SHARE, Band
from cstool.plan.estimation.comparison import Comparison, Errors
from cstool.plan.estimation.cost import HOUR_S, MWH_J, CostBand, JobCost
from cstool.plan.estimation.gpu import Beside, GpuEstimate, GpuValidation
from cstool.plan.estimation.inference import InferEstimate
from cstool.plan.estimation.limits import BUDGET, DAYS, POWER, parse_shares
from cstool.plan.estimation.mask_updates import MaskUpdates
from cstool.plan.estimation.plan import Found, Plan
from cstool.plan.estimation.point import DAY_S
from cstool.plan.estimation.published import Prediction

__all__ = (
    "Artifact",
    "BUDGET",
    "Band",
    "Beside",
    "Comparison",
    "CostBand",
    "DAYS",
    "DAY_S",
    "Errors",
    "Estimate",
    "Found",
    "GpuEstimate",
    "GpuValidation",
    "HOUR_S",
    "InferEstimate",
    "JobCost",
    "MWH_J",
    "MaskUpdates",
    "POWER",
    "Plan",
    "Prediction",
    "Row",
    "SHARE",
    "Tried",
    "estimates_in",
    "is_of_adapter",
    "parse_shares",
    "unmet",
)
