"""The sections of `trainer.init` that are neither model, optimizer nor schedule."""

import math
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, field_validator, model_validator

from cstool.foundation.words import BYTE_UNITS, parse_quantity
from cstool.foundation.yaml_lines.section import (
    MAX_STEPS,
    Count,
    Positive,
    Section,
    Whole,
    beside,
    not_beside,
    rule_error,
)
from cstool.model.params.paths import PathText
from cstool.model.params.sections.tuning import TARGETS, by_rule, parse_adapters, parse_frozen

FOR_THE_COMPILER = "by the compiler: operands on the modelled wafer; false keeps those on this host float32"
"""the part that acts on the width of operands"""
FOR_THE_HOST = "products on this host take bfloat16 operands, sums are float32"
"""the effect of a type of 16 bits"""


class LossScaling(NamedTuple):
    """Factor on the loss, so that its gradients are neither too small nor too large for their type."""

    initial: float = 1.0
    least: float | None = None
    """where a dynamic scale ends on its way down; None for a scale that stays as it is"""
    most: float = math.inf
    """where it ends on its way up"""
    steps_per_increase: int = 2000
    """steps in a row with finite gradients after which it doubles"""

    @property
    def is_dynamic(self) -> bool:
        """Whether it is halved, and the step skipped, when a gradient is not finite."""
        return self.least is not None


UNSCALED = LossScaling()
DYNAMIC = "dynamic"
_LARGEST = {"cbfloat16": 2.0**31}
"""where dynamic scales end if nothing is said, by type. Source: the vendor's GradScaler, cerebras_pytorch 2.10"""
_LARGEST_OF_OTHERS, _SMALLEST = 2.0**15, 2.0**-14
"""likewise: the upper end for other types, and the lower end for all"""
TOO_LARGE = 2.0**128
"""for float32"""
_Scale = Annotated[float, Field(gt=0, lt=TOO_LARGE)]


def _factor(value: Any) -> Any:
    if value == DYNAMIC:
        return value
    # Gradients are multiplied by its reciprocal.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 / TOO_LARGE < value < TOO_LARGE:
        raise rule_error(f"must be {DYNAMIC}, or a number greater than 0 that float32 has")
    return float(value)


def _at_least(other: str) -> Any:
    return beside(other, lambda value, there: there is None or value >= there, f"must be at least {other} ({{:g}})")


def _at_most(other: str) -> Any:
    return beside(other, lambda value, there: there is None or value <= there, f"must be at most {other} ({{:g}})")


class PrecisionParams(Section):
    """Clipping of gradients, scaling of the loss, and width of the operands of products.

    `enabled` is mixed precision on the modelled wafer: operands of 16 bits, else 32. It is true by default, as in the
    vendor's `MixedPrecision`, which on CSX warns of false and takes it for true. On this host products take bfloat16
    where `fp16_type` names any type of 16 bits, and `enabled` is not false; `host` overrides that. `products` names a
    provider of products, one of those that this host has.

    The loss is scaled where `loss_scaling_factor` asks for it, unless `enabled` is false or, as with the vendor,
    `fp16_type` is bfloat16, whose range needs no scale. Of the other keys for that
    all but `log_loss_scale` are about a dynamic scale; missing ones follow from `fp16_type`, as the vendor has
    it, and from the other ones. `log_loss_scale` is true where the scale is dynamic if nothing is said.
    """

    enabled: bool = True
    fp16_type: Literal["float16", "bfloat16", "cbfloat16"] | None = None
    host: Literal["float32", "bfloat16"] | None = None
    products: str | None = None
    max_gradient_norm: Positive | None = None
    max_gradient_value: Annotated[Positive | None, not_beside("max_gradient_norm")] = None
    loss_scaling_factor: Annotated[float | Literal["dynamic"], PlainValidator(_factor)] | None = None
    steps_per_increase: Count | None = None
    min_loss_scale: _Scale | None = None
    max_loss_scale: Annotated[_Scale | None, _at_least("min_loss_scale")] = None
    initial_loss_scale: Annotated[_Scale | None, _at_least("min_loss_scale"), _at_most("max_loss_scale")] = None
    log_loss_scale: bool | None = None

    without_effect = frozenset({"precision_opt_level"})

    @property
    def loss_scaling(self) -> LossScaling:
        """Factor on the loss."""
        factor, initial = self.loss_scaling_factor, self.initial_loss_scale
        if not self.enabled or self.fp16_type == "bfloat16" or factor is None:
            return UNSCALED
        if factor != DYNAMIC:
            return LossScaling(float(factor))
        # What is said makes room for itself.
        largest = _LARGEST.get(self.fp16_type or "", _LARGEST_OF_OTHERS)
        most = self.max_loss_scale or max(largest, initial or 0.0, self.min_loss_scale or 0.0)
        least = self.min_loss_scale or min(_SMALLEST, initial or most, most)
        steps = self.steps_per_increase or UNSCALED.steps_per_increase
        return LossScaling(initial or most, least, most, steps)

    @property
    def gradients_wait(self) -> bool:
        """Whether no gradient is applied before all are known."""
        return self.max_gradient_norm is not None or self.loss_scaling.is_dynamic

    @property
    def logs_loss_scale(self) -> bool:
        """Whether the log has the scale of the loss."""
        scaling = self.loss_scaling
        return scaling != UNSCALED and (scaling.is_dynamic if self.log_loss_scale is None else self.log_loss_scale)


def _frequency(value: Any) -> int | float:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise rule_error("must be a number of steps, or a share of the run up to 1.0")
    if isinstance(value, int) and not 0 <= value <= MAX_STEPS or isinstance(value, float) and not 0 <= value <= 1:
        raise rule_error("must be at least 1 step, or a share of the run between 0.0 and 1.0, or 0 for never")
    return value


class LoopParams(Section):
    """Length of training, and times of evaluations.

    `num_steps` counts from where the run starts and wins over `max_steps`, which counts from step 0 of the
    checkpoint. Without any length it is one epoch. `eval_frequency`: steps (an int) or a share of the run (a float); 0
    or null is never, but for the evaluation after the last step.
    """

    num_steps: Count | None = None
    max_steps: Count | None = None
    num_epochs: Count | None = None
    steps_per_epoch: Count | None = None
    eval_frequency: Annotated[int | float, PlainValidator(_frequency)] = 1.0
    eval_steps: Count | None = None

    null_counts = frozenset({"eval_frequency"})
    # As on the vendor's systems: a batch is cut into what fits, and the result is that of the whole.
    without_effect = frozenset({"grad_accum_steps"})

    @model_validator(mode="before")
    @classmethod
    def _fill_length(cls, data: Any) -> Any:
        if isinstance(data, dict) and not {"num_steps", "max_steps", "num_epochs"} & data.keys():
            return {**data, "num_epochs": 1}
        return data

    def checkpoints(self, every: int) -> int | None:
        """Number of checkpoints of a run from step 0; None where its length depends on the data."""
        steps = self.num_steps or self.max_steps
        return None if steps is None else -(-steps // every)

    def eval_interval(self, steps: int) -> int | None:
        """Return the number of steps between evaluations in a run of `steps`; None for no evaluation on the way."""
        if not self.eval_frequency:
            return None
        if isinstance(self.eval_frequency, int):
            return self.eval_frequency
        return max(1, math.ceil(self.eval_frequency * steps))


_ZERO_IS_NONE = BeforeValidator(lambda value: None if type(value) is int and value == 0 else value)


class CheckpointParams(Section):
    """When checkpoints are written (`steps`: None or 0 is never, else also after the last step), and loaded."""

    steps: Annotated[Count | None, _ZERO_IS_NONE] = None
    autoload_last_checkpoint: bool = True
    disable_strict_checkpoint_loading: bool = False
    save_initial_checkpoint: bool = False
    checkpoint_name: str = "checkpoint_{step}.mdl"

    without_effect = frozenset({"strict_version"})
    supported = {"checkpoint_root": ()}

    @field_validator("checkpoint_name")
    @classmethod
    def _name_holds_the_step(cls, name: str) -> str:
        rest = name.replace("{step}", "", 1)
        if rest == name or any(character in rest for character in "{}/"):
            raise rule_error("must be a file name that holds {step} once", "for example checkpoint_{step}.mdl")
        return name


def _bytes(value: Any) -> Any:
    """A size as a number of bytes: 512MiB, 2GiB, 1.5GB, or a whole number."""
    if isinstance(value, str):
        found = parse_quantity(value, BYTE_UNITS)
        if found is None or found < 0:
            raise rule_error("must be a size, such as 512MiB or 2GiB")
        value = int(found)
    if type(value) is int and value < 2**20:
        raise rule_error("must be at least 1MiB")
    return value


class MemoryxParams(Section):
    """Where MemoryX keeps weights, gradients and optimizer state on this host.

    Args:
        store: in memory, in a file in model_dir, or a file where they would take half of the memory that is free
        memory: largest size of the buffers of a file [bytes]
        commit_steps: a file is committed after every so many steps; 0 is never, and takes half of the disk
        nodes: number of the ranks of a run that keep a part of it, each on its own host; None for all of them
    """

    store: Literal["auto", "ram", "file"] = "auto"
    memory: Annotated[int, BeforeValidator(_bytes)] = 2 * 2**30
    commit_steps: Whole = 1
    nodes: Count | None = None


class LoggingParams(Section):
    """Frequency and level of logging."""

    log_steps: Count = 1
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    without_effect = frozenset({"wsc_log_level", "enable_act_frequency"})


JOB_KEYS = ("job_labels", "job_priority", "job_time_sec", "num_workers_per_csx")
"""keys of `cluster_config` that count for a job or an estimate alone: in a run they are noted"""


class ClusterParams(Section):
    """Number of CSX systems."""

    num_csx: Count = 1

    without_effect = frozenset(
        "automount cbcore_image credentials_path disable_mount_check disable_version_check job_labels job_priority "
        "job_time_sec max_act_per_csx max_wgt_servers mgmt_address mgmt_namespace mount_all mount_dirs notifications "
        "num_workers_per_csx python_paths workflow_id".split()
    )


class BackendParams(Section):
    """The machine, and the stage at which the compiler stops."""

    cluster_config: ClusterParams = ClusterParams()
    compile_dir: Annotated[PathText, Field(min_length=1)] | None = None
    compile_only: bool = False
    validate_only: Annotated[bool, not_beside("compile_only")] = False

    without_effect = frozenset(
        "backend_type csx.debug.implicit_cast_cb16_to_fp32 dist_addr dist_backend drop_data enable_distributed "
        "init_method main_process_id max_checkpoints retrace_every_iteration sync_batchnorm".split()
    )


class AutorestartParams(Section):
    """Restarts of the vendor's trainer after failures. Here a run goes on from its last checkpoint."""

    without_effect = frozenset({"max_num_restarts", "min_num_csx"})


class InitKeys(Section):
    """The keys of `trainer.init`; their values have sections of their own.

    Ours are `memoryx`, and `activation_checkpointing`: whether training recomputes the activations of layers. So are
    two texts: `frozen` names weights that are not trained, such as "first:2,*norm*"; `lora` asks for low-rank adapters
    beside frozen layers, such as "rank=16,alpha=32,targets=q,v".
    """

    model: Any
    optimizer: Any = None
    backend: Any = None
    schedulers: Any = None
    precision: Any = None
    sparsity: Any = None
    frozen: Annotated[str, AfterValidator(by_rule(parse_frozen))] | None = None
    lora: Annotated[str, AfterValidator(by_rule(partial(parse_adapters, where="--lora", layers=TARGETS)))] | None = None
    loop: Any = None
    checkpoint: Any = None
    memoryx: Any = None
    logging: Any = None
    callbacks: Any = None
    loggers: Any = None
    autorestart: Any = None
    model_dir: Annotated[PathText, Field(min_length=1)] | None = None
    seed: Whole = 1
    activation_checkpointing: Literal["auto", "always", "never"] = "auto"

    without_effect = frozenset({"device"})


class TrainerKeys(Section):
    """The keys of `trainer`."""

    init: Any
    fit: Any = None
    validate_: Any = Field(None, alias="validate")
    validate_all: Any = None


class FitKeys(Section):
    """The keys of `trainer.fit`. A ckpt_path of null means: load nothing."""

    train_dataloader: Any = None
    val_dataloader: Any = None
    ckpt_path: PathText | None = None

    null_counts = frozenset({"ckpt_path"})


class ValidateKeys(Section):
    """The keys of `trainer.validate`."""

    val_dataloader: Any = None
    ckpt_path: PathText | None = None


class ValidateAllKeys(Section):
    """The keys of `trainer.validate_all`, which evaluates many checkpoints on many data sets."""

    val_dataloaders: Any = None
    ckpt_paths: Any = None
