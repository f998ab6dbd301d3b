"""The graph that everything hands around: tensors, weights, ops; the panels that a weight travels in; the artifact."""

from cstool.model.ir._artifact import SCHEMA, Alternative, Artifact, ExecutionMode, FusedKernel, MemoryXNeed, Recompute
from cstool.model.ir._artifact_file import artifact_digest, artifact_text, read_artifact, write_artifact
from cstool.model.ir._graph import (
    PANEL_BYTES,
    Barrier,
    Graph,
    Initializer,
    Loss,
    Op,
    Panel,
    Segment,
    Tensor,
    Weight,
    panel_sizes,
    panels_of,
)
from cstool.model.ir._op_kinds import (
    OP_RULES,
    Delta,
    KernelKind,
    OpKind,
    delta_source,
    losses_of,
    matrices_of,
    matrix_of,
    read_backward,
    rules_of,
    share_met,
    vectors_of,
    work_of,
)
from cstool.model.ir._op_shapes import texts_of
from cstool.model.ir._op_work import Lookup, MatMul, OpWork, Pairs, RowSums, VectorOps, column_keys, visible_pairs
from cstool.model.ir._plain_data import plain_data, plain_digest
from cstool.model.ir._plans import (
    BOUNDS,
    KernelCycles,
    Layout,
    PhaseCycles,
    PipelinedPlan,
    Region,
    Route,
    SramEntry,
    Stage,
    StreamedKernel,
    StreamingPlan,
)
from cstool.model.ir._require_model import require_model
from cstool.model.ir._verify_artifact import verify, verify_artifact, verify_plans
