"""The same run twice, sparse and dense, and one verdict on kernels, learning and the cost of a step."""

# Ahead of matplotlib, which is told to be quiet there.
import cstool.foundation.drawing
from cstool.training.compare.judge import validate
from cstool.training.compare.request import Request
from cstool.training.compare.verdict import Amounts, Comparison, Cost, CostRow, Numerics, Quality, Setting, Verdict
