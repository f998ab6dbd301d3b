"""The types of what verbs return, for annotations of those who report on it: for type checkers alone, not for a run."""

from cstool.training.compare import Amounts, Comparison, Cost, CostRow, Numerics, Quality, Setting, Verdict
from cstool.plan.compiler.difference import Change
from cstool.training.data import DataInfo, PartInfo, PreferenceSummary, TextSummary
from cstool.plan.estimation import Estimate, Row
from cstool.plan.estimation.cost import CostBand, JobCost
from cstool.plan.estimation.gpu import Beside, GpuEstimate, GpuValidation
from cstool.plan.estimation.inference import InferEstimate, InferRow
from cstool.plan.estimation.mask_updates import MaskUpdates
from cstool.plan.estimation.plan import Found, Plan
from cstool.plan.estimation.published import Comparison as PublishedComparison
from cstool.plan.estimation.published import Errors, Prediction
from cstool.csl.fabric.stats import FabricStats
from cstool.csl.fabric.trace_view import Hop as FabricHop
from cstool.csl.fabric.trace_view import Run as FabricWavelets
from cstool.csl.fabric.trace_view import Span as FabricSpan
from cstool.inference.answer import Answers, Completion
from cstool.inference.encoder_answers import EncoderAnswers
from cstool.inference.model import InferenceModel
from cstool.model.ir import Artifact, KernelCycles, PipelinedPlan, Stage, StreamedKernel, StreamingPlan
from cstool.appliance.queue.appliance import ApplianceStatus
from cstool.appliance.queue.job import Capacity, Event, Job, Needs
from cstool.training.machine.ranks.link import Link
from cstool.model.graphs.statistics import Part
from cstool.model.params import Params
from cstool.training.host.step import HostRates
from cstool.training.store import CheckpointDiff, CheckpointInfo, TensorComparison, TensorForm, TensorInfo
from cstool.plan.verbs.estimate_variants import RecomputeChoice
