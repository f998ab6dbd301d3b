"""The verb behind `cstool run`: open the data, build the model, restore, train, evaluate, save."""

from __future__ import annotations

import errno
import logging
import math
import os
import resource
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cstool.data import Dataset, Sampler, batches_per_epoch, open_dataset
from cstool.errors import CheckpointError, Interrupted
from cstool.kernels.compile import compile_kernels, kernels_cached
from cstool.models import build_graph
from cstool.params import DataloaderParams, Params
from cstool.runtime.appliance import Appliance
from cstool.runtime.evaluate import evaluate
from cstool.runtime.inputs import Batch, InputWorker
from cstool.runtime.optimizer import make_optimizer
from cstool.runtime.progress import Progress
from cstool.runtime.rates import Rates, format_rate, format_seconds
from cstool.runtime.state import Position, load_state, save_state
from cstool.runtime.stopping import StopRequest
from cstool.store import CheckpointReader, checkpoint_path, latest_checkpoint, register_checkpoint, sweep_temporary

log = logging.getLogger("cstool")

STARVED_SHARE = 0.2
"""share of the time spent waiting for input from which the log warns"""


@dataclass
class RunResult:
    """What a run came to. Times and memory were measured on this host."""

    mode: str
    model: str
    parameters: int
    first_step: int = 0
    last_step: int = 0
    losses: list[float] = field(default_factory=list)
    """of every step that was run"""
    samples: int = 0
    seconds: float = 0.0
    """of training, without checkpoints and evaluation"""
    samples_per_s: float = 0.0
    tokens_per_s: float = 0.0
    input_wait_s: float = 0.0
    stream_wait_s: float = 0.0
    checkpoint_s: float = 0.0
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    """what the appliance allocated, by purpose"""
    peak_resident_bytes: int = 0
    num_csx: int = 1
    lanes: int = 1
    grain_samples: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)


def run(
    params: Params,
    *,
    mode: str,
    checkpoint_path: Path | None = None,
    load_checkpoint_states: str = "all",
    strict: bool = True,
    lanes: int | None = None,
    progress: Progress,
) -> RunResult:
    """Do what a params file asks for.

    Args:
        params: checked params
        mode: "train", "eval" or "train_and_eval"
        checkpoint_path: start from this one; None for the latest in model_dir, if there is one
        load_checkpoint_states: "all", or which parts to load
        strict: whether a checkpoint must hold exactly the weights of the model
        lanes: host threads; None to choose
        progress: is told what is going on

    Raises:
        CstoolError: whatever the user can act on
    """
    with ExitStack() as stack:
        return _Run(params, mode, lanes, progress, stack).go(checkpoint_path, load_checkpoint_states, strict)


class _Run:
    """One run: what its parts share while it lasts."""

    def __init__(self, params: Params, mode: str, lanes: int | None, progress: Progress, stack: ExitStack) -> None:
        self.params = params
        self.trains, self.evaluates = mode != "eval", mode != "train"
        self.progress = progress
        self.stack = stack
        self.train_loader = params.dataloader("train") if self.trains else None
        self.val_loader = params.dataloader("val" if self.trains else "eval") if self.evaluates else None
        self.train_data = self._open(self.train_loader)
        self.val_data = self._open(self.val_loader)
        data = self.train_data or self.val_data
        assert data is not None
        sample_shape = data.fields["labels"].shape
        self.graph = build_graph(params.model, sample_shape[0] if sample_shape else None)
        optimizer = make_optimizer(params.optimizer, params.precision.max_gradient_value) if self.trains else None
        self.appliance = stack.enter_context(
            Appliance(
                self.graph,
                optimizer=optimizer,
                max_gradient_norm=params.precision.max_gradient_norm,
                loss_scaling=getattr(params.model, "loss_scaling", "num_tokens"),
                loss_weight=getattr(params.model, "loss_weight", 1.0),
                seed=params.seed,
                num_csx=params.num_csx,
                lanes=lanes,
            )
        )
        self.result = RunResult(mode, params.model.name, self.graph.parameter_count, num_csx=params.num_csx)
        self.position = Position()
        self.saved_step: int | None = None
        self.warned = False

    def go(self, checkpoint: Path | None, states: str, strict: bool) -> RunResult:
        """Run all parts in order."""
        for note in self.params.notes:
            log.info(note)
        self._prepare_systems()
        self._prepare_model_dir()
        self._compile()
        self._restore(checkpoint, states, strict)
        if self.trains:
            self._train()
        else:
            self._evaluate()
        self.result.last_step = self.position.step
        self.result.memory_bytes = dict(self.appliance.memory_account())
        self.result.peak_resident_bytes = peak_resident_bytes()
        return self.result

    def _open(self, loader: DataloaderParams | None) -> Dataset | None:
        if loader is None:
            return None
        dataset = open_dataset(
            loader.data_processor,
            loader.data_dir,
            split=loader.split,
            max_sequence_length=loader.max_sequence_length,
            vocab_size=getattr(self.params.model, "vocab_size", None),
            tried=loader.tried,
        )
        self.stack.callback(dataset.close)
        log.info(dataset.describe())
        return dataset

    def _prepare_systems(self) -> None:
        for loader, section, trains in (
            (self.train_loader, "train_dataloader", True),
            (self.val_loader, "val_dataloader", False),
        ):
            if loader is None:
                continue
            where = f"{self.params.path}: trainer.fit.{section}.batch_size"
            systems = self.appliance.prepare(loader.batch_size, trains=trains, where=where)
            if trains or not self.trains:
                self.result.grain_samples, self.result.lanes = systems.plan.samples, len(systems.lanes)
                log.info(f"Effective batch size is {loader.batch_size}.")
                log.info(
                    f"Preparing to execute using {self.params.num_csx} CSX: {systems.grains} grains of "
                    f"{systems.plan.samples} samples, {len(systems.lanes)} lanes, {systems.waves} waves"
                )

    def _prepare_model_dir(self) -> None:
        folder = self.params.model_dir
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self.trains and not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise CheckpointError(
                f"{folder}: model_dir must be a folder that can be written, got: {error.strerror}"
            ) from error
        sweep_temporary(folder)

    def _compile(self) -> None:
        if kernels_cached():
            compile_kernels(lambda name, done, total: None)
            return
        began = time.perf_counter()
        log.info("Compiling the kernels for this machine. This happens once and may take a minute.")
        self.progress.start("Compiling kernels", None)
        compile_kernels(
            lambda name, done, total: self.progress.advance("Compiling kernels", done, f"{done}/{total} {name}")
        )
        self.progress.finish("Compiling kernels")
        log.info(f"Compile was successful! {time.perf_counter() - began:.1f} seconds.")

    def _restore(self, checkpoint: Path | None, states: str, strict: bool) -> None:
        """Load a checkpoint, the given one or the latest, or begin with random weights."""
        folder = self.params.model_dir
        if checkpoint is None and self.params.checkpoint_path is not None:
            checkpoint = self.params.checkpoint_path.path
        found = checkpoint is None and self.params.checkpoint.autoload_last_checkpoint
        if found:
            log.info(
                f'Checkpoint autoloading is enabled. Looking for latest checkpoint in "{folder}" directory with the '
                f"following naming convention: `checkpoint_(step)(_timestamp)?.mdl`."
            )
            latest = latest_checkpoint(folder, self.params.checkpoint.checkpoint_name)
            checkpoint = None if latest is None else latest.path
            log.info(
                f'No checkpoints were found in "{folder}".'
                if latest is None
                else f'Found latest checkpoint at "{checkpoint}".'
            )
        self.appliance.memoryx.initialize(self.params.seed)
        if checkpoint is None:
            log.info("No checkpoint was provided. Using randomly initialized model parameters.")
            return
        log.info(f"Loading weights from checkpoint {checkpoint}")
        with CheckpointReader(checkpoint) as reader:
            strict = strict and not self.params.checkpoint.disable_strict_checkpoint_loading
            self.position, changed = load_state(
                reader, self.appliance.memoryx, self.graph, states=states, strict=strict
            )
        log.info("Model state found in checkpoint and loaded successfully.")
        if changed:
            log.warning(
                f"The checkpoint was written elsewhere ({'; '.join(changed)}): bits may differ from a straight run."
            )
        if self.trains and found:
            self.saved_step = self.position.step
            log.info(
                f"Resuming from step {self.position.step}. To start fresh, choose another --model_dir, or set "
                "trainer.init.checkpoint.autoload_last_checkpoint to false."
            )

    def _last_step(self) -> int:
        """Return the step to train up to."""
        loop, loader, data = self.params.loop, self.train_loader, self.train_data
        assert loader is not None and data is not None
        per_epoch = batches_per_epoch(data.sample_count, loader.batch_size, drop_last=loader.drop_last)
        if loop.num_steps is not None:
            return self.position.step + loop.num_steps
        if loop.max_steps is not None:
            return loop.max_steps
        return (loop.num_epochs or 1) * (loop.steps_per_epoch or per_epoch)

    def _train(self) -> None:
        """Train up to the last step, evaluating and saving on the way."""
        assert self.train_loader is not None and self.train_data is not None
        loader, start, last = self.train_loader, self.position.step, self._last_step()
        self.result.first_step = start
        if self.params.checkpoint.save_initial_checkpoint and start == 0 and self.saved_step is None:
            self._save()
        if last <= start:
            log.info(f"Nothing to train: the run is at step {start}, and max_steps is {last}.")
        else:
            sampler = Sampler(
                self.train_data.sample_count, loader.batch_size, loader.shuffle, loader.shuffle_seed, loader.drop_last
            )
            log.info(f"Starting train loop 1 of 1, from global step {start + 1} to {last} ({last - start} steps)")
            first = self.position.batches
            with StopRequest() as stop, InputWorker(self.train_data, sampler, first, last - start) as worker:
                self._loop(worker, last, stop)
            log.info("Training completed successfully!")
            log.info(f"Processed {self.result.samples} training sample(s) in {self.result.seconds:.9f} seconds.")
        if self.evaluates and (
            not self.result.evaluations or self.result.evaluations[-1]["step"] != self.position.step
        ):
            self._evaluate()

    def _loop(self, worker: InputWorker, last: int, stop: StopRequest) -> None:
        rates = Rates()
        start = self.position.step
        every = self.params.checkpoint.steps
        eval_every = self.params.loop.eval_interval(last - start) if self.evaluates else None
        self.progress.start("Training", last - start)
        try:
            for step in range(start + 1, last + 1):
                batch = worker.next()
                trained = self.appliance.train_step(batch, step, self.params.learning_rate(step - 1))
                self.position = Position(step, batch.number + 1)
                self.result.losses.append(trained.loss)
                rates.add(batch.samples)
                self._report(step, last, trained.loss, batch, rates, worker)
                if every is not None and (step % every == 0 or step == last):
                    rates.pause(self._save())
                if eval_every is not None and step % eval_every == 0 and step < last:
                    rates.pause(self._evaluate())
                if stop.signal_name is not None and step < last:
                    if self.saved_step != step:
                        self._save()
                    raise Interrupted(
                        f"stopped by {stop.signal_name} after step {step}; it is saved in {self.params.model_dir}",
                        "the same command continues from there",
                    )
        finally:
            self.progress.finish("Training")
            self._count(rates, worker)

    def _report(self, step: int, last: int, loss: float, batch: Batch, rates: Rates, worker: InputWorker) -> None:
        """Tell the progress, and every log_steps the log."""
        tokens_per_sample = len(batch.arrays["mask"].reshape(-1)) // len(batch.arrays["mask"])
        done = len(self.result.losses)
        self.progress.advance(
            "Training", done, f"loss {loss:.3f}, {rates.global_rate * tokens_per_sample:,.0f} tokens/s"
        )
        if step % self.params.logging.log_steps and step != last and done != 1:
            return
        rate, global_rate = rates.look()
        left_s = (last - step) * rates.seconds / done
        wait_share = worker.waited_s / max(rates.seconds, 1e-9)
        log.info(
            f"| Train Device=CSX, Step={step}, Loss={loss:.5f}, Rate={format_rate(rate)} samples/sec, "
            f"GlobalRate={format_rate(global_rate)} samples/sec, LoopTimeRemaining={format_seconds(left_s)}, "
            f"TimeRemaining>{format_seconds(left_s)}, TokenRate={global_rate * tokens_per_sample:.0f} tokens/sec, "
            f"InputWait={wait_share:.1%}"
        )
        if wait_share > STARVED_SHARE and done > 1 and not self.warned:
            self.warned = True
            log.warning(f"Input starvation detected: {wait_share:.0%} of the time is spent waiting for the data set.")

    def _count(self, rates: Rates, worker: InputWorker) -> None:
        """Put the totals of the loop into the result."""
        result = self.result
        result.samples, result.seconds, result.samples_per_s = rates.samples, rates.seconds, rates.global_rate
        result.tokens_per_s = rates.global_rate * math.prod(self.graph.tensors[self.graph.loss].shape)
        result.input_wait_s = worker.waited_s
        result.stream_wait_s = self.appliance.memoryx.waited_s

    def _evaluate(self) -> float:
        """Evaluate, and return the seconds it took."""
        assert self.val_loader is not None and self.val_data is not None
        found = evaluate(
            self.appliance,
            self.val_data,
            self.val_loader,
            step=self.position.step,
            steps=self.params.loop.eval_steps,
            log_steps=self.params.logging.log_steps,
            progress=self.progress,
        )
        self.result.evaluations.append(found.as_dict())
        return found.seconds

    def _save(self) -> float:
        """Write a checkpoint, and return the seconds it took."""
        began = time.perf_counter()
        step, folder = self.position.step, self.params.model_dir
        path = checkpoint_path(folder, step, self.params.checkpoint.checkpoint_name)
        log.info(f"Saving checkpoint at step {step}")
        size_bytes = save_state(
            path,
            self.appliance.memoryx,
            self.position,
            model_name=self.params.model.name,
            seed=self.params.seed,
            grain=self.result.grain_samples,
            params=self.params.resolved(),
        )
        register_checkpoint(folder, step, path)
        seconds = time.perf_counter() - began
        log.info(
            f"Saved checkpoint {path} ({size_bytes / 1e6:.1f} MB in {seconds:.2f} s, {size_bytes / seconds / 1e9:.2f} GB/s)"
        )
        self.saved_step = step
        self.result.checkpoints.append(str(path))
        self.result.checkpoint_s += seconds
        return seconds


def peak_resident_bytes() -> int:
    """Return the largest resident memory of this process so far [bytes]."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
