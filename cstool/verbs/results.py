"""The types of what verbs return, for annotations of those who report on it: for type checkers alone, not for a run."""

from cstool.compare import Amounts, Comparison, Cost, CostRow, Numerics, Quality, Setting, Verdict
from cstool.compiler.difference import Change
from cstool.data import DataInfo, PartInfo, PreferenceSummary, TextSummary
from cstool.estimation import Estimate, Row
from cstool.estimation.cost import CostBand, JobCost
from cstool.estimation.gpu import Beside, GpuEstimate, GpuValidation
from cstool.estimation.inference import InferEstimate, InferRow
from cstool.estimation.mask_updates import MaskUpdates
from cstool.estimation.plan import Found, Plan
from cstool.estimation.published import Comparison as PublishedComparison
from cstool.estimation.published import Errors, Prediction
from cstool.fabric.stats import FabricStats
from cstool.fabric.trace_view import Hop as FabricHop
from cstool.fabric.trace_view import Run as FabricWavelets
from cstool.fabric.trace_view import Span as FabricSpan
from cstool.inference.answer import Answers, Completion
from cstool.inference.encoder_answers import EncoderAnswers
from cstool.inference.model import InferenceModel
from cstool.ir import Artifact, KernelCycles, PipelinedPlan, Stage, StreamedKernel, StreamingPlan
from cstool.jobs.appliance import ApplianceStatus
from cstool.jobs.job import Capacity, Event, Job, Needs
from cstool.machine.ranks.link import Link
from cstool.models.statistics import Part
from cstool.params import Params
from cstool.perf.host import HostRates
from cstool.store import CheckpointDiff, CheckpointInfo, TensorComparison, TensorForm, TensorInfo
from cstool.verbs.estimate_variants import RecomputeChoice
