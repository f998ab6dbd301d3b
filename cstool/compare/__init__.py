"""The same run twice, sparse and dense, and one verdict: do kernels agree, is as much learnt, what does a step cost."""

from cstool.compare.judge import validate
from cstool.compare.request import MAX_LOSS_GAP, NUM_STEPS, Request
from cstool.compare.verdict import Amounts, Comparison, Cost, CostRow, Numerics, Quality, Setting, Verdict

__all__ = [
    "MAX_LOSS_GAP",
    "NUM_STEPS",
    "Amounts",
    "Comparison",
    "Cost",
    "CostRow",
    "Numerics",
    "Quality",
    "Request",
    "Setting",
    "Verdict",
    "validate",
]
