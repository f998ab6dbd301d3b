"""Callbacks and loggers of `trainer.init`, and the parts of a checkpoint that some of them name."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    field_validator,
    model_validator,
)

from cstool.foundation.yaml_lines.section import (
    Count,
    List,
    NotNegative,
    Positive,
    Rate,
    Section,
    filled,
    rule_error,
)
from cstool.model.params.paths import PathText
from cstool.model.params.sections.fields import unset
from cstool.model.params.sections.tuning import LEAVES, MODULES, Adapters

STATES = ("model", "optimizer", "dataloader")
"""by name; `optimizer` includes the step, and so the learning rate"""
ALL_STATES = frozenset(STATES)


def parse_states(written: str | Iterable[str]) -> frozenset[str]:
    """Return the parts that a text or a list asks for.

    Args:
        written: `all`, or names, in a text with commas between them

    Raises:
        ValueError: there is no such part; the message has the valid names
    """
    names = [name.strip() for name in (written.split(",") if isinstance(written, str) else written)]
    if [name.lower() for name in names] == ["all"]:
        return ALL_STATES
    unknown = set(names) - ALL_STATES
    if unknown or not names:
        raise ValueError(
            f"must be all or some of {', '.join(STATES)}, got {min(unknown, default='') or 'an empty name'}"
        )
    return frozenset(names)


def written_states(states: frozenset[str]) -> str:
    """Return parts as a text that `parse_states` understands."""
    return "all" if states == ALL_STATES else ",".join(state for state in STATES if state in states)


def _states(value: Any) -> frozenset[str]:
    if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(state, str) for state in value)):
        raise rule_error("must be all, or names of states", "for example model")
    try:
        return parse_states(value)
    except ValueError as error:
        raise rule_error(str(error).partition(", got ")[0]) from None


States = Annotated[frozenset[str], PlainValidator(_states), PlainSerializer(written_states)]


class LoadCheckpointStates(Section):
    """Which parts of a checkpoint to load: `all`, or names with commas between them."""

    load_checkpoint_states: States = ALL_STATES


class KeepNCheckpoints(Section):
    """Number of checkpoints of a run that stay: once a newer one is whole, the oldest beyond these is deleted."""

    n: Count | None = None


class SaveCheckpointState(Section):
    """A second file beside every k-th checkpoint, with parts of it; KeepNCheckpoints leaves it alone."""

    k: Count
    checkpoint_states: States = frozenset({"model"})
    checkpoint_name: str = "{checkpoint_states}_{ckpt_name}"

    @field_validator("checkpoint_name")
    @classmethod
    def _holds_the_name_of_the_checkpoint(cls, name: str) -> str:
        rest = name.replace("{ckpt_name}", "", 1).replace("{checkpoint_states}", "", 1)
        if "{ckpt_name}" not in name or not rest + name.replace("{ckpt_name}", "", 1) or re.search("[{}/]", rest):
            raise rule_error(
                "must be a file name that holds {ckpt_name} and more", "for example {checkpoint_states}_{ckpt_name}"
            )
        return name

    def file_name(self, checkpoint: str) -> str:
        """Return the name of the file beside a checkpoint of a name."""
        states = "_".join(state for state in STATES if state in self.checkpoint_states)
        return self.checkpoint_name.replace("{checkpoint_states}", states).replace("{ckpt_name}", checkpoint)


_MORE_IS_BETTER = re.compile("accura(cy|cies)[^/]*$|/f1_score$|/rouge[12]$")
"""metrics that are better the larger they are"""


class EarlyStopping(Section):
    """When to stop before the last step: after `patience` evaluations in a row without an improvement. It is ours.

    `monitor` is a metric as the log has it, such as eval/loss; `min_delta` is the least improvement; `mode`
    says whether less or more of it is better, and is max for accuracies and scores, min for all else.
    """

    monitor: str = "eval/loss"
    patience: Count
    min_delta: NotNegative = 0.0
    mode: Annotated[
        Literal["min", "max"],
        filled(lambda data: "max" if _MORE_IS_BETTER.search(str(data.get("monitor"))) else "min"),
    ] = unset()


class LoraParams(Section):
    """Low-rank adapters beside linear layers and tables of tokens, whose weights are frozen, as are all others.

    `target_modules` are the vendor's: classes of modules, all of them around a layer, its own class, Linear or
    Embedding, included; null is for all layers of both classes. Tables of positions get none. Ours are `rslora`, and
    `layers`: names, as in `cstool run --lora`. Adapters stay beside their layers, also in evaluations, whatever
    `merge_weights` says.
    """

    r: Count
    alpha: Positive = 1.0
    dropout: Rate = 0.0
    target_modules: Annotated[tuple[str, ...], List] | None = None
    layers: Annotated[tuple[str, ...], List, Field(min_length=1)] | None = None
    rslora: bool = False
    fan_in_fan_out: bool = False
    merge_weights: bool = False

    @field_validator("target_modules")
    @classmethod
    def _are_known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        is_table = "Embedding" in (names or ())
        around = {"EmbeddingLayer", "Embedding"} if is_table else MODULES.keys() - {"Embedding"}
        if names is not None and not (set(names) <= around and set(LEAVES) & set(names)):
            rule = "must have Linear or Embedding and, of the modules around it, only those known here"
            raise rule_error(rule, f"they are {', '.join(name for name in MODULES if name not in LEAVES)}")
        return names

    @field_validator("fan_in_fan_out")
    @classmethod
    def _lie_by_outputs(cls, turned: bool) -> bool:
        if turned:
            raise rule_error("must be false: matrices here have a row for each output")
        return turned

    @model_validator(mode="after")
    def _name_layers(self) -> "LoraParams":
        if self.target_modules is not None and self.layers is not None:
            hint = "target_modules: [Linear] is for all linear layers, null for those and all tables of tokens"
            raise rule_error("must have target_modules or layers, not both", hint)
        return self

    @property
    def adapters(self) -> Adapters:
        """The adapters."""
        asked = self.target_modules or ()
        parts = dict.fromkeys(part for name, part in MODULES.items() if name in asked and part)
        every = tuple(name for name in LEAVES if name in asked) or ("*",)
        layers = self.layers or (every if "Embedding" in asked or not parts else (f"*{'*'.join(parts)}*",))
        return Adapters(self.r, layers, self.alpha, self.dropout, self.rslora)


def _some(groups: tuple[LoraParams, ...]) -> tuple[LoraParams, ...]:
    if not groups:
        raise rule_error("must hold at least one mapping")
    return groups


class Lora(Section):
    """Low-rank adapters, one group of them or several: of a layer the first group that names it counts."""

    lora_params: Annotated[
        tuple[LoraParams, ...],
        AfterValidator(_some),
        BeforeValidator(lambda value: (value,) if isinstance(value, dict) else value),
        List,
    ]

    @classmethod
    def of(cls, adapters: Iterable[Adapters]) -> "Lora":
        """The callback that asks for adapters."""
        return cls(
            lora_params=tuple(
                LoraParams(
                    r=each.rank,
                    alpha=float(each.rank if each.alpha is None else each.alpha),
                    dropout=each.dropout,
                    layers=each.layers,
                    rslora=each.is_stabilized,
                )
                for each in adapters
            )
        )


CALLBACK_SECTIONS: dict[str, type[Section]] = {
    section.__name__: section
    for section in (LoadCheckpointStates, KeepNCheckpoints, SaveCheckpointState, EarlyStopping, Lora)
}
"""the callbacks that are acted on"""
FLAG_CALLBACKS = ("GlobalFlags", "ScopedTrainFlags", "ScopedValidateFlags")
"""callbacks that take any argument: flags of the vendor's compiler and cluster"""
CALLBACKS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        "CheckLoss ComputeNorm DumpAvailableTensorNames DurationProfiler FlopUtilization LogInputSummaries LogSparsity "
        "ModelEvalMetrics RateProfiler SamplesStreamedInfo SavePerformanceData".split(),
        (),
    ),
    "ComputeNormGNS": ("per_example_grad_norms",),
    "CountParams": ("search_and_replace", "order_by", "descending"),
    "DebugArgsPath": ("debug_args_path",),
    "DumpActivations": ("outdir", "buffer_steps"),
    "EmailNotification": ("mailto", "mailfrom", "server_name", "port", "notification_endpoint", "subject"),
    "HFCacheDir": ("cache_dir",),
    "LogOptimizerParamGroup": ("keys",),
    "ModelZooParamsMetadata": ("params",),
    "NaNChecker": ("num_steps",),
    "NormTensorListener": ("listener_name", "tensor_names"),
    "OpProfiler": ("start_step", "end_step", "host_activities"),
    "SlackNotification": ("channels",),
    "SummaryTensorListener": ("listener_name", "tensor_names"),
    "WeightCompression": ("compressions",),
}
"""the vendor's other callbacks, without effect here, and their arguments"""
CALLBACK_LOSSES = {"WeightCompression": "the vendor's loses digits of the weights, here they stay as they are"}
"""callback without effect -> the difference that makes for the user, where it makes one"""
COMPUTE_NORM = "ComputeNorm"
"""the one of them that is acted on: it has norms written to the events"""
OTHER_CALLBACKS = ("BigCodeEvalHarness", "EleutherEvalHarness", "SelectiveGrad", "SkipSamples")
"""the vendor's callbacks that change the training, or evaluate something else"""


class TensorBoardLogger(Section):
    """Where event files go (`summary_dir`: None is `events` in model_dir)."""

    summary_dir: Annotated[PathText, Field(min_length=1)] | None = None

    without_effect = frozenset({"legacy_event_dirs"})


LOGGERS: dict[str, tuple[str, ...]] = {
    "ProgressLogger": (),
    "TelemetryLogger": ("max_buffer_size", "max_buffer_seconds"),
    "WandbLogger": ("project", "group", "run_id", "run_name", "job_type", "tags", "resume", "entity"),
}
"""the vendor's other loggers and their arguments"""
