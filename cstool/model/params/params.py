"""All settings of a params file, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cstool.foundation.errors import ParamsError
from cstool.model.params.micro_batch import MICRO_BATCH_FLAG
from cstool.model.params.paths import ResolvedPath, resolve_path
from cstool.model.params.sections import hooks, trainer
from cstool.model.params.sections.dataloader import DataloaderParams
from cstool.model.params.sections.hooks import ALL_STATES, written_states
from cstool.model.params.sections.model import ModelParams
from cstool.model.params.sections.optimizers import Optimizer, learning_rate_scale
from cstool.model.params.sections.preference import DpoParams
from cstool.model.params.sections.schedules import Schedule
from cstool.model.params.sections.sparsity import SparsityParams
from cstool.model.params.sections.tuning import Tuning


@dataclass(frozen=True)
class Params:
    """The settings of one trainer. Two are equal if their settings are the same, even from different files.

    Args:
        optimizer: None where the file has none, which only training needs
        val_dataloaders: for evaluation between training steps
        eval_dataloaders: for mode eval: the loaders of `validate`, else `val_dataloaders`
        eval_all_dataloaders: for mode eval_all: the loaders of `validate_all`, else `eval_dataloaders`
        tuning: the part of the model that is trained; all of it without any
        checkpoint_path: to start from; None leaves it to `checkpoint.autoload_last_checkpoint`
        eval_checkpoint_path: to evaluate alone: the path of `validate`, else `checkpoint_path`
        eval_all_checkpoint_paths: for mode eval_all; none for all checkpoints in `model_dir`
        activation_checkpointing: whether training recomputes the activations of layers on this host: `always`, `never`,
            or `auto`, where they do not fit the memory otherwise
        load_checkpoint_states: which parts of them to load
        keep_checkpoints: number of checkpoints of a run that stay; None for all
        saved_states: state saved beside checkpoints
        early_stopping: when to stop before the last step; None for never
        path, text: of the file, as given, and as read
        notes: accepted settings without an effect
        warnings: to print before anything runs
        micro_batch_size: samples that are on the modelled wafer at once; None leaves it to the compiler, which takes
            the largest that fits
        compile_dir: of the compiler's artifacts, absolute; None is `cached_compile` in `model_dir`
        compile_only: compile, and train nothing
        validate_only: check that every op has a kernel, and compile nothing
        sparsity_place, optimizer_place: place and key of the section
        events_dir: where event files for TensorBoard go, absolute; None for none
        computes_norms: whether they have the norms of weights and gradients
        job_keys: settings of the job that it is submitted as, by key of `cluster_config`, not checked; a run
            that is no job does without it
    """

    model: ModelParams
    optimizer: Optimizer | None
    schedulers: tuple[Schedule, ...]
    precision: trainer.PrecisionParams
    sparsity: tuple[SparsityParams, ...]
    tuning: Tuning
    loop: trainer.LoopParams
    checkpoint: trainer.CheckpointParams
    memoryx: trainer.MemoryxParams
    logging: trainer.LoggingParams
    seed: int
    activation_checkpointing: str
    model_dir: Path
    events_dir: Path | None
    computes_norms: bool
    num_csx: int
    micro_batch_size: int | None
    compile_dir: Path | None
    compile_only: bool
    validate_only: bool
    train_dataloader: DataloaderParams | None
    val_dataloaders: tuple[DataloaderParams, ...]
    eval_dataloaders: tuple[DataloaderParams, ...]
    eval_all_dataloaders: tuple[DataloaderParams, ...]
    checkpoint_path: ResolvedPath | None
    eval_checkpoint_path: ResolvedPath | None
    eval_all_checkpoint_paths: tuple[ResolvedPath, ...]
    load_checkpoint_states: frozenset[str]
    keep_checkpoints: int | None
    saved_states: tuple[hooks.SaveCheckpointState, ...]
    early_stopping: hooks.EarlyStopping | None
    path: Path = field(compare=False)
    text: str = field(compare=False, repr=False)
    notes: tuple[str, ...] = field(compare=False, repr=False)
    warnings: tuple[str, ...] = field(compare=False, repr=False)
    sparsity_place: tuple[str, str] = field(compare=False, repr=False)
    optimizer_place: tuple[str, str] = field(compare=False, repr=False)
    job_keys: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def answering(self) -> Params:
        """The same, with the model that answers once this one is trained: of DPO its policy, else the same model."""
        return replace(self, model=self.model.policy_model) if isinstance(self.model, DpoParams) else self

    @property
    def artifacts_dir(self) -> Path:
        """Folder of the compiler's artifacts."""
        return self.compile_dir or self.model_dir / "cached_compile"

    @property
    def operand_bits(self) -> int:
        """Width of the operands on the modelled wafer: 16 with mixed precision, which is the default, else 32.

        The default is the vendor's default of `enabled` in `MixedPrecision`.
        """
        return 16 if self.precision.enabled else 32

    @property
    def host_precision(self) -> str:
        """Precision of the operands of products on this host: "float32" or "bfloat16"."""
        precision = self.precision
        if precision.host is not None:
            return precision.host
        return "bfloat16" if precision.enabled and precision.fp16_type is not None else "float32"

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        if self.schedulers:
            return self.schedulers[0].rate(step)
        assert self.trained_by.learning_rate is not None, "load_params sees to it"
        return self.trained_by.learning_rate

    def learning_rate_scale(self, weight: str) -> float:
        """Factor of the learning rate of a weight."""
        return learning_rate_scale(self.model, self.trained_by.adjust_learning_rate, weight)

    @property
    def trained_by(self) -> Optimizer:
        """The optimizer, for a run that trains, or raise ParamsError."""
        if self.optimizer is None:
            place, key = self.optimizer_place
            raise ParamsError([(f"{place}: {key} is missing", "without it a model can be evaluated, and generate")])
        return self.optimizer

    def dataloaders(self, purpose: str) -> tuple[DataloaderParams, ...]:
        """Return the dataloader for `train`, or the ones for `val` (between training steps), `eval` or `eval_all`.

        Raises:
            ParamsError: the file has none; or it has no optimizer, and is to train.
        """
        if purpose == "train":
            _ = self.trained_by
        found = {
            "train": () if self.train_dataloader is None else (self.train_dataloader,),
            "val": self.val_dataloaders,
            "eval": self.eval_dataloaders,
            "eval_all": self.eval_all_dataloaders,
        }[purpose]
        if not found:
            name = "train_dataloader" if purpose == "train" else "val_dataloader"
            raise ParamsError([(f"{self.path}: trainer.fit.{name} is missing", None)])
        return found

    def place_of(self, loaders: tuple[DataloaderParams, ...], index: int) -> str:
        """Return the file and the key at which one of some dataloaders that are evaluated stands."""
        key = "trainer.validate_all.val_dataloaders"
        for name, others in (("validate", self.eval_dataloaders), ("fit", self.val_dataloaders)):
            key = f"trainer.{name}.val_dataloader" if loaders == others else key
        return f"{self.path}: {key}" + (f".{index}" if len(loaders) > 1 else "")

    @property
    def data_folders(self) -> tuple[Path, ...]:
        """The folders of all data sets, folders of training first."""
        loaders = (self.train_dataloader, *self.val_dataloaders, *self.eval_dataloaders)
        return tuple(dict.fromkeys(folder for loader in loaders if loader for folder in loader.data_dir))

    @property
    def compiled_dataloader(self) -> DataloaderParams | None:
        """The loader of training, else the first of evaluation: the model is compiled for its batches."""
        held_out = (*self.eval_dataloaders, *self.eval_all_dataloaders)
        return self.train_dataloader or next(iter(held_out), None)

    def resolve(self, written: str | Path) -> ResolvedPath:
        """Resolve a path against the folder of the params file, then the working directory."""
        return resolve_path(written, self.path.parent)

    def resolved(self) -> dict[str, Any]:
        """Return the whole as a trainer-layout file: defaults filled in, paths absolute, plain YAML types."""
        states = {"load_checkpoint_states": written_states(self.load_checkpoint_states)}
        callbacks: list[tuple[str, dict[str, Any] | None]] = [
            ("LoadCheckpointStates", None if self.load_checkpoint_states == ALL_STATES else states),
            ("ScopedTrainFlags", _given(**{MICRO_BATCH_FLAG: self.micro_batch_size}) or None),
            (hooks.COMPUTE_NORM, {} if self.computes_norms else None),
            ("KeepNCheckpoints", _given(n=self.keep_checkpoints) or None),
            *(("SaveCheckpointState", callback.dump()) for callback in self.saved_states),
            ("EarlyStopping", None if self.early_stopping is None else self.early_stopping.dump()),
            (hooks.Lora.__name__, hooks.Lora.of(self.tuning.adapters).dump() if self.tuning.adapters else None),
        ]
        # Events are in model_dir unless they are wanted elsewhere, or nowhere.
        events = {hooks.TensorBoardLogger.__name__: _given(summary_dir=_text(self.events_dir)) or None}
        optimizer = None if self.optimizer is None else {type(self.optimizer).__name__: self.optimizer.dump()}
        init = _given(
            model=self.model.dump(),
            backend=_given(
                cluster_config={"num_csx": self.num_csx},
                compile_dir=_text(self.compile_dir),
                compile_only=self.compile_only,
                validate_only=self.validate_only,
            ),
            model_dir=str(self.model_dir),
            seed=self.seed,
            activation_checkpointing=self.activation_checkpointing,
            optimizer=optimizer,
            schedulers=[schedule.entry() for schedule in self.schedulers],
            precision=self.precision.dump(),
            sparsity=[group.dump() for group in self.sparsity] or None,
            frozen=",".join(self.tuning.frozen) or None,
            loop=self.loop.dump(),
            checkpoint=self.checkpoint.dump(),
            memoryx=self.memoryx.dump(),
            logging=self.logging.dump(),
            callbacks=[{name: found} for name, found in callbacks if found is not None] or None,
            loggers=None if self.events_dir == self.model_dir / "events" else [events],
        )
        fit = _given(
            train_dataloader=None if self.train_dataloader is None else self.train_dataloader.dump(),
            val_dataloader=_dumped(self.val_dataloaders),
            ckpt_path=_text(self.checkpoint_path.path if self.checkpoint_path else None),
        )
        validate = _given(
            val_dataloader=_dumped(self.eval_dataloaders),
            ckpt_path=_text(self.eval_checkpoint_path.path if self.eval_checkpoint_path else None),
        )
        validate_all = _given(
            val_dataloaders=None
            if self.eval_all_dataloaders == self.eval_dataloaders
            else _dumped(self.eval_all_dataloaders),
            ckpt_paths=[str(found.path) for found in self.eval_all_checkpoint_paths] or None,
        )
        return {"trainer": _given(init=init, fit=fit, validate=validate or None, validate_all=validate_all or None)}


def _given(**entries: Any) -> dict[str, Any]:
    """Entries that are not None."""
    return {name: value for name, value in entries.items() if value is not None}


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _dumped(loaders: tuple[DataloaderParams, ...]) -> Any:
    """Dataloaders as they stand in a file: one alone as a mapping, none as None."""
    dumped = [loader.dump() for loader in loaders]
    return dumped[0] if len(dumped) == 1 else dumped or None
