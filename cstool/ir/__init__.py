"""The graph that everything hands around: tensors, weights, ops; the panels that a weight travels in; the artifact."""

from cstool.ir._artifact import (
    BOUNDS,
    SCHEMA,
    Alternative,
    Artifact,
    ExecutionMode,
    KernelCycles,
    Layout,
    MemoryXNeed,
    PhaseCycles,
    PipelinedPlan,
    Recompute,
    SramEntry,
    Stage,
    StreamedKernel,
    StreamingPlan,
)
from cstool.ir._artifact_file import artifact_digest, artifact_text, read_artifact, write_artifact
from cstool.ir._graph import Graph, Initializer, Op, OpKind, Segment, Tensor, Weight
from cstool.ir._kernel import FusedKernel, KernelKind
from cstool.ir._panel import PANEL_BYTES, Panel, panels_of
from cstool.ir._plain_data import plain_data, plain_digest
from cstool.ir._region import Region, Route
from cstool.ir._require_model import require_model
from cstool.ir._verify import verify
from cstool.ir._verify_artifact import verify_artifact

__all__ = [
    "BOUNDS",
    "Alternative",
    "Artifact",
    "ExecutionMode",
    "FusedKernel",
    "Graph",
    "Initializer",
    "KernelCycles",
    "KernelKind",
    "Layout",
    "MemoryXNeed",
    "Op",
    "OpKind",
    "PANEL_BYTES",
    "Panel",
    "PhaseCycles",
    "PipelinedPlan",
    "Recompute",
    "Region",
    "Route",
    "SCHEMA",
    "Segment",
    "SramEntry",
    "Stage",
    "StreamedKernel",
    "StreamingPlan",
    "Tensor",
    "Weight",
    "artifact_digest",
    "artifact_text",
    "panels_of",
    "plain_data",
    "plain_digest",
    "read_artifact",
    "require_model",
    "verify",
    "verify_artifact",
    "write_artifact",
]
