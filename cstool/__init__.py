"""A wafer-scale cluster in software: train models by weight streaming, from a YAML file.

The verbs behind the commands are here: `cstool.train("params/gpt_tiny.yaml", max_steps=50)`; docs/python.md has them
all. A name is imported at its first use.

Glossary, the field's words and only they:

- *fabric*: the two-dimensional mesh of a wafer; *PE*: one processing element of it, with its *router*;
  *wavelet*: one 32-bit message on the fabric; *color*: the virtual channel that a wavelet travels on;
  *tile*: the part of an array that one PE holds; *region*: a rectangle of PEs; *kernel*: the code of one op.
- *CSX*: one system: a wafer with its power, cooling and links. It holds activations, never weights.
- *MemoryX*: where weights, gradients and optimizer state live; it applies the optimizer.
- *SwarmX*: hands the weight stream to every CSX and sums the gradients on the way back.
- *input worker*: reads samples and hands each CSX its part of the batch.
- *appliance*: all of these together, run as one machine. *Weight streaming* is how it trains: weights pass
  through, op by op.
- *rank*: one process of a run, with some of its systems. Rank 0 has MemoryX and runs the run; the others follow its
  orders.
- *activation*: a tensor of the forward pass; *delta*: the derivative of the loss with respect to an
  activation; *gradient*: the derivative with respect to a weight.
- *global batch*: the samples of one step. *grain*: the samples that one kernel call of this host works on.
  *panel*: a range of rows of one weight, the unit in which weights and gradients travel.
  *lane*: a host thread that takes a fixed share of the grains through the stream. *slot*: the memory of one grain on
  a CSX; *wave*: the grains that have one at the same time. A layer is *recomputed* where its activations are not kept,
  but computed again just before its backward.
- *mask*: the places of a matrix's non-zero weights; *pattern*: the same in the order in which they stream; *density*:
  the share of non-zeros, *sparsity* the share of zeros.
- *window*: the last tokens that a token attends to; *sink*: a first token, in reach of all others beyond their window.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cstool.foundation.errors import ArtifactError as ArtifactError
    from cstool.foundation.errors import CheckpointError as CheckpointError
    from cstool.foundation.errors import ClusterError as ClusterError
    from cstool.foundation.errors import CompileError as CompileError
    from cstool.foundation.errors import CstoolError as CstoolError
    from cstool.foundation.errors import DamagedCheckpointError as DamagedCheckpointError
    from cstool.foundation.errors import DataError as DataError
    from cstool.foundation.errors import EstimateError as EstimateError
    from cstool.foundation.errors import InferenceError as InferenceError
    from cstool.foundation.errors import Interrupted as Interrupted
    from cstool.foundation.errors import NonFiniteError as NonFiniteError
    from cstool.foundation.errors import ParamsError as ParamsError
    from cstool.foundation.errors import StoreError as StoreError
    from cstool.foundation.errors import TraceError as TraceError
    from cstool.foundation.progress import Progress as Progress
    from cstool.foundation.progress import Silent as Silent
    from cstool.inference.completions import Answers as Answers
    from cstool.inference.completions import Completion as Completion
    from cstool.inference.encoder_answers import EncoderAnswers as EncoderAnswers
    from cstool.inference.model import InferenceModel as InferenceModel
    from cstool.inference.predict import Predictions as Predictions
    from cstool.inference.verbs.answer import generate as generate
    from cstool.inference.verbs.answer import open_model as open_model
    from cstool.inference.verbs.answer import predict as predict
    from cstool.inference.verbs.asking import ask as ask
    from cstool.model.ir import Artifact as Artifact
    from cstool.model.ir import read_artifact as read_artifact
    from cstool.model.ir import write_artifact as write_artifact
    from cstool.model.params import Params as Params
    from cstool.model.params import load_all_params as load_all_params
    from cstool.model.params import load_params as load_params
    from cstool.model.system import System as System
    from cstool.model.system import load_system as load_system
    from cstool.plan.estimation import Estimate as Estimate
    from cstool.plan.estimation import Row as Row
    from cstool.plan.verbs.compiling import compile_model as compile_model
    from cstool.plan.verbs.estimating import estimate as estimate
    from cstool.plan.verbs.estimating import estimate_scaling as estimate_scaling
    from cstool.training.compare import Verdict as Verdict
    from cstool.training.data import DataCheck as DataCheck
    from cstool.training.data import DataInfo as DataInfo
    from cstool.training.data import DigitsSummary as DigitsSummary
    from cstool.training.data import InstructionSummary as InstructionSummary
    from cstool.training.data import PreferenceSummary as PreferenceSummary
    from cstool.training.data import PreprocessSummary as PreprocessSummary
    from cstool.training.data import ShownSample as ShownSample
    from cstool.training.data import TextSummary as TextSummary
    from cstool.training.machine.appliance import Appliance as Appliance
    from cstool.training.run.result import RunResult as RunResult
    from cstool.training.store import CheckpointEntry as CheckpointEntry
    from cstool.training.store import SavedState as SavedState
    from cstool.training.store import list_checkpoints as list_checkpoints
    from cstool.training.store.checkpoint_opening import open_checkpoint as open_checkpoint
    from cstool.training.verbs.comparison import validate as validate
    from cstool.training.verbs.data import check_data as check_data
    from cstool.training.verbs.data import data_info as data_info
    from cstool.training.verbs.data import prepare_digits as prepare_digits
    from cstool.training.verbs.data import prepare_mlm as prepare_mlm
    from cstool.training.verbs.data import prepare_preferences as prepare_preferences
    from cstool.training.verbs.data import prepare_span as prepare_span
    from cstool.training.verbs.data import prepare_text as prepare_text
    from cstool.training.verbs.data import read_samples as read_samples
    from cstool.training.verbs.instruction_data import prepare_instructions as prepare_instructions
    from cstool.training.verbs.instruction_data import preprocess_data as preprocess_data
    from cstool.training.verbs.instruction_data import show_samples as show_samples
    from cstool.training.verbs.run import NotRun as NotRun
    from cstool.training.verbs.run import RunRequest as RunRequest
    from cstool.training.verbs.run import evaluate as evaluate
    from cstool.training.verbs.run import run_trainers as run_trainers
    from cstool.training.verbs.run import train as train

__version__ = "1.0.0"

_NAMES = {
    "cstool.inference.verbs.answer": ("generate", "open_model", "predict"),
    "cstool.inference.verbs.asking": ("ask",),
    "cstool.training.verbs.comparison": ("validate",),
    "cstool.plan.verbs.compiling": ("compile_model",),
    "cstool.plan.verbs.estimating": ("estimate", "estimate_scaling"),
    "cstool.training.verbs.run": ("NotRun", "RunRequest", "evaluate", "run_trainers", "train"),
    "cstool.model.system": ("System", "load_system"),
    "cstool.training.verbs.data": (
        "check_data",
        "data_info",
        "prepare_digits",
        "prepare_mlm",
        "prepare_preferences",
        "prepare_span",
        "prepare_text",
        "read_samples",
    ),
    "cstool.training.verbs.instruction_data": ("prepare_instructions", "preprocess_data", "show_samples"),
    "cstool.training.data": (
        "DataCheck",
        "DataInfo",
        "DigitsSummary",
        "InstructionSummary",
        "PreferenceSummary",
        "PreprocessSummary",
        "ShownSample",
        "TextSummary",
    ),
    "cstool.foundation.errors": (
        "ArtifactError",
        "CheckpointError",
        "ClusterError",
        "CompileError",
        "CstoolError",
        "DamagedCheckpointError",
        "DataError",
        "EstimateError",
        "InferenceError",
        "Interrupted",
        "NonFiniteError",
        "ParamsError",
        "StoreError",
        "TraceError",
    ),
    "cstool.plan.estimation": ("Estimate", "Row"),
    "cstool.inference.completions": ("Answers", "Completion"),
    "cstool.inference.encoder_answers": ("EncoderAnswers",),
    "cstool.inference.model": ("InferenceModel",),
    "cstool.inference.predict": ("Predictions",),
    "cstool.model.ir": ("Artifact", "read_artifact", "write_artifact"),
    "cstool.model.params": ("Params", "load_all_params", "load_params"),
    "cstool.training.machine.appliance": ("Appliance",),
    "cstool.foundation.progress": ("Progress", "Silent"),
    "cstool.training.run.result": ("RunResult",),
    "cstool.training.store": ("CheckpointEntry", "SavedState", "list_checkpoints"),
    "cstool.training.store.checkpoint_opening": ("open_checkpoint",),
    "cstool.training.compare": ("Verdict",),
}
"""the public names, by module"""
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)

# A type checker is to see the names above and no others.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import the object of a public name, once."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        """Return the names that are offered, imported yet or not, and none that this module needs itself."""
        return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
