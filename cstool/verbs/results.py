"""The types of what verbs return, for annotations of those who report on it: for type checkers alone, not for a run."""

from cstool.models.statistics import Part
from cstool.store import CheckpointDiff, CheckpointInfo, TensorComparison, TensorForm, TensorInfo
