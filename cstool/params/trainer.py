"""The sections of `trainer.init` that are neither model, optimizer nor schedule."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, ValidationInfo, field_validator, model_validator

from cstool.params.section import MAX_STEPS, Count, Positive, Section, Whole, rule_error


class PrecisionParams(Section):
    """Clipping of gradients. Arithmetic is float32 throughout, so the rest of the vendor's keys has no effect."""

    max_gradient_norm: Positive | None = None
    max_gradient_value: Positive | None = None

    without_effect: ClassVar[frozenset[str]] = frozenset(
        {
            "enabled",
            "fp16_type",
            "initial_loss_scale",
            "log_loss_scale",
            "loss_scaling_factor",
            "max_loss_scale",
            "min_loss_scale",
            "precision_opt_level",
            "steps_per_increase",
        }
    )

    @field_validator("max_gradient_value")
    @classmethod
    def _one_kind_of_clipping(cls, value: float | None, info: ValidationInfo) -> float | None:
        if info.data.get("max_gradient_norm") is not None:
            raise rule_error("cannot stand beside max_gradient_norm", "keep one of the two")
        return value


def _frequency(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise rule_error("must be a number of steps, or a share of the run up to 1.0")
    if isinstance(value, int) and not 1 <= value <= MAX_STEPS or isinstance(value, float) and not 0 < value <= 1:
        raise rule_error("must be at least 1 step, or a share of the run between 0.0 and 1.0")
    return value


class LoopParams(Section):
    """How long to train, and when to evaluate.

    `num_steps` counts from where the run starts and wins over `max_steps`, which counts from step 0 of the
    checkpoint. Without any length it is one epoch. `eval_frequency`: steps (an int) or a share of the run (a float).
    """

    num_steps: Count | None = None
    max_steps: Count | None = None
    num_epochs: Count | None = None
    steps_per_epoch: Count | None = None
    eval_frequency: Annotated[int | float, PlainValidator(_frequency)] = 1.0
    eval_steps: Count | None = None

    supported: ClassVar[dict[str, tuple[Any, ...]]] = {"grad_accum_steps": (1,)}

    @model_validator(mode="before")
    @classmethod
    def _fill_length(cls, data: Any) -> Any:
        if isinstance(data, dict) and not {"num_steps", "max_steps", "num_epochs"} & data.keys():
            return {**data, "num_epochs": 1}
        return data

    def eval_interval(self, steps: int) -> int:
        """Return the number of steps between evaluations in a run of `steps`."""
        if isinstance(self.eval_frequency, int):
            return self.eval_frequency
        return max(1, round(self.eval_frequency * steps))


class CheckpointParams(Section):
    """When checkpoints are written (`steps`: None is never, else also after the last step), and loaded."""

    steps: Count | None = None
    autoload_last_checkpoint: bool = True
    disable_strict_checkpoint_loading: bool = False
    save_initial_checkpoint: bool = False
    checkpoint_name: str = "checkpoint_{step}.mdl"

    without_effect: ClassVar[frozenset[str]] = frozenset({"strict_version"})
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {"checkpoint_root": ()}

    @field_validator("checkpoint_name")
    @classmethod
    def _name_holds_the_step(cls, name: str) -> str:
        rest = name.replace("{step}", "", 1)
        if rest == name or any(character in rest for character in "{}/"):
            raise rule_error("must be a file name that holds {step} once", "for example checkpoint_{step}.mdl")
        return name


class LoggingParams(Section):
    """How often and how much is logged."""

    log_steps: Count = 1
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    without_effect: ClassVar[frozenset[str]] = frozenset({"wsc_log_level", "enable_act_frequency"})


class ClusterParams(Section):
    """How many CSX systems."""

    num_csx: Count = 1

    without_effect: ClassVar[frozenset[str]] = frozenset(
        "automount cbcore_image credentials_path disable_mount_check disable_version_check job_labels job_priority "
        "job_time_sec max_act_per_csx max_wgt_servers mgmt_address mgmt_namespace mount_all mount_dirs notifications "
        "num_workers_per_csx python_paths workflow_id".split()
    )


class BackendParams(Section):
    """The machine."""

    cluster_config: ClusterParams = ClusterParams()

    without_effect: ClassVar[frozenset[str]] = frozenset(
        "backend_type compile_dir drop_data max_checkpoints retrace_every_iteration".split()
    )
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {"compile_only": (False,), "validate_only": (False,)}


class InitKeys(Section):
    """The keys of `trainer.init`; their values have sections of their own."""

    model: Any
    optimizer: Any
    backend: Any = None
    schedulers: Any = None
    precision: Any = None
    loop: Any = None
    checkpoint: Any = None
    logging: Any = None
    callbacks: Any = None
    model_dir: Annotated[str, Field(min_length=1)] | None = None
    seed: Whole = 1

    without_effect: ClassVar[frozenset[str]] = frozenset({"device", "loggers", "autorestart"})
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {"sparsity": ()}


class TrainerKeys(Section):
    """The keys of `trainer`."""

    init: Any
    fit: Any = None
    validate_: Any = Field(None, alias="validate")

    without_effect: ClassVar[frozenset[str]] = frozenset({"validate_all"})


class FitKeys(Section):
    """The keys of `trainer.fit`. A ckpt_path of null means: load nothing."""

    train_dataloader: Any = None
    val_dataloader: Any = None
    ckpt_path: str | None = None

    null_counts: ClassVar[frozenset[str]] = frozenset({"ckpt_path"})


class ValidateKeys(Section):
    """The keys of `trainer.validate`."""

    val_dataloader: Any = None

    without_effect: ClassVar[frozenset[str]] = frozenset({"ckpt_path"})


CALLBACKS = frozenset(
    "CheckLoss ComputeNorm CountParams DumpActivations DumpAvailableTensorNames DurationProfiler EmailNotification "
    "FlopUtilization GlobalFlags KeepNCheckpoints LoadCheckpointStates LogOptimizerParamGroup LogSparsity "
    "ModelEvalMetrics ModelZooParamsMetadata NaNChecker OpProfiler RateProfiler SamplesStreamedInfo "
    "SaveCheckpointState SavePerformanceData ScopedTrainFlags ScopedValidateFlags SlackNotification "
    "WeightCompression".split()
)
"""the vendor's callbacks that change no result"""
OTHER_CALLBACKS = frozenset({"Lora", "SelectiveGrad"})
"""the vendor's callbacks that change what is trained"""
