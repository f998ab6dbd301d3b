"""The same run twice, sparse and dense, and one verdict on kernels, learning and the cost of a step."""

from cstool.training.compare.judge import validate
from cstool.training.compare.request import Request
from cstool.training.compare.verdict import Amounts, Comparison, Cost, CostRow, Numerics, Quality, Setting, Verdict
