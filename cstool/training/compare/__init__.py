"""The same run twice, sparse and dense, and one verdict: do kernels agree, is as much learnt, what does a step cost."""

from cstool.training.compare.judge import validate
from cstool.training.compare.request import Request
from cstool.training.compare.verdict import Amounts, Comparison, Cost, CostRow, Numerics, Quality, Setting, Verdict
