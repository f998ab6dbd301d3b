"""The training loop: step, report, save, evaluate, until the last step or a signal."""

import logging
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from cstool.foundation.errors import CstoolError, Interrupted
from cstool.foundation.words import clock_text, counted, digits_text, rate_text
from cstool.model.params import LoopParams
from cstool.training.data import Sampler
from cstool.training.host.rates import load_rates
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.machine.appliance import TrainStep
from cstool.training.machine.data_sets import DataSet
from cstool.training.machine.inputs import InputWorker
from cstool.training.machine.recorder import Recorder
from cstool.training.machine.state import Position
from cstool.training.run.checkpoints import catch_up, commit, commits, finish_save, save
from cstool.training.run.rates import unusual_rate
from cstool.training.run.report.host_comparison import compare
from cstool.training.run.report.measured_trace import recorded, recorded_step
from cstool.training.run.report.sparsity_table import sparsity_scalars
from cstool.training.run.report.summary import fit_summary
from cstool.training.run.report.time_split import START_UP, TRAINING, Rates
from cstool.training.run.session import Session, peak_resident_bytes
from cstool.training.run.stopping import StopRequest
from cstool.training.store import list_checkpoints

log = logging.getLogger("cstool")
TASK = "Training"
WORTH_S = 300.0
"""of training, from which on a prediction is worth the measurement [s]"""
STARVED_SHARE = 0.2
"""share of the time spent waiting for input from which the log warns"""


def train(session: Session, data: DataSet, evaluate_now: Callable[[], float] | None, stop: StopRequest) -> None:
    """Train up to the last step that the params ask for.

    Args:
        session: the run; its position moves on
        data: delivers the batches
        evaluate_now: evaluates and returns the seconds it took; None for no evaluation on the way
        stop: ends the training after a step when it is asked for

    Raises:
        Interrupted: a signal came; the step was finished and saved
        NonFiniteError: the loss or a gradient is not finite
        CheckpointError: a checkpoint cannot be written
        TraceError: the trace that was asked for cannot be written
    """
    params, start, loader, count = session.params, session.position.step, data.loader, data.samples.sample_count
    sampler = Sampler(
        count, loader.batch_size, loader.shuffle, loader.shuffle_seed, loader.drop_last, loader.epoch_samples
    )
    last = _last_step(params.loop, start, sampler.batches_per_epoch)
    session.training.first_step, session.last_step = start, last
    if session.resumes and session.saved_step == start:
        catch_up(session)
    if params.checkpoint.save_initial_checkpoint and start == 0 and session.saved_step is None:
        save(session)
    if session.resumes and start and session.saved_step != start and _is_due(params.checkpoint.steps, start, last):
        # The run was killed between the commit of this step and its checkpoint.
        save(session)
    if last <= start:
        finish_save(session)
        log.warning(
            f"Nothing to train: the run is at step {start}, and its last step is {last}. "
            "num_steps counts from where it is."
        )
        return
    if session.weights_of is not None and (warning := unusual_rate(params, session.weights_of, last)) is not None:
        log.warning(warning)
    if session.patience is not None and session.patience.is_over:
        finish_save(session)
        log.info(f"Nothing to train: {session.patience.reason()}. A longer patience, or none, lets the run go on.")
        session.training.stopped_early = _stopped_early(session)
        return
    # A share is of the whole run, wherever this part of it began.
    eval_interval = params.loop.eval_interval(last - (start if params.loop.num_steps else 0)) if evaluate_now else None
    for line in fit_summary(params, start, last, eval_interval):
        log.info(line)
    wire = session.training.wire = session.appliance.others.measure_wire()
    if wire is not None:
        rate, latency = f"{digits_text(wire.bytes_per_s / 1e6)} MB/s", f"{digits_text(1e3 * wire.latency_s)} ms"
        log.info(f"Measured between hosts: {rate} one way, {latency} a message.")
    log.info(f"Starting train loop 1 of 1, from global step {start + 1} to {last} ({counted(last - start, 'step')})")
    session.events.train_from(start + 1)
    session.times.turn_to(TRAINING)
    first = _first_batch(session.position, loader.batch_size)
    with (
        recorded(session, start, last) as recorder,
        session.appliance.reading(
            data.where, data.samples, sampler, first, last - start, trains=True, recorder=recorder
        ) as worker,
    ):
        _Loop(session, worker, last, evaluate_now, eval_interval, recorder).run(stop)
    log.info("Training completed successfully!")
    log.info(f"Processed {session.training.samples} training sample(s) in {session.training.seconds:.9f} seconds.")
    rates = load_rates()
    if session.appliance.precision != FLOAT32:
        if rates is not None:
            log.info("Nothing was predicted for this host, of which the model knows products of float32 alone.")
    elif rates is None:
        if session.training.seconds >= WORTH_S:
            log.info("Nothing was predicted for this host: `cstool estimate --system host` measures what it can do.")
    elif (found := compare(session, rates)) is not None:
        session.training.predicted = {name: asdict(times) for name, times in found.phases.items()}
        log.info(found.line())


def _is_due(every: int | None, step: int, last: int) -> bool:
    """Return whether a checkpoint is saved after a step."""
    return every is not None and (step % every == 0 or step == last)


def _stopped_early(session: Session) -> dict[str, Any]:
    """Return the state of early stopping and its best checkpoint; log the place of the latter."""
    patience, params = session.patience, session.params
    assert patience is not None
    found = list_checkpoints(params.model_dir, params.checkpoint.checkpoint_name)
    best = next((str(entry.path) for entry in reversed(found) if entry.step == patience.best_step), None)
    if patience.best is not None:
        log.info(f"The best was step {patience.best_step}: " + (best or "no checkpoint of it is here") + ".")
    return {**patience.as_dict(), "patience": patience.asked.patience, "best_checkpoint": best}


def _last_step(loop: LoopParams, start: int, batches: int) -> int:
    if loop.num_steps is not None:
        return start + loop.num_steps
    if loop.max_steps is not None:
        return loop.max_steps
    return (loop.num_epochs or 1) * (loop.steps_per_epoch or batches)


def _first_batch(position: Position, batch_size: int) -> int:
    """Return the batch to go on with, where the run may have had batches of another size before."""
    if position.batch_size in (0, batch_size):
        return position.batches
    first = -(-position.batches * position.batch_size // batch_size)
    log.warning(f"batch_size was {position.batch_size} so far and is {batch_size} now: going on with batch {first}.")
    return first


@dataclass
class _Loop:
    """The steps of one train loop, and their reports."""

    session: Session
    worker: InputWorker
    last: int
    evaluate_now: Callable[[], float] | None
    eval_interval: int | None
    recorder: Recorder

    def __post_init__(self) -> None:
        session, self.start = self.session, self.session.position.step
        self.unit, self.per_sample = "tokens" if session.is_text else "samples", session.graph.sequence_length or 1
        self.cluster = session.appliance.training_cluster
        self.rates = Rates()
        self.warned = False

    def run(self, stop: StopRequest) -> None:
        session, params = self.session, self.session.params
        session.progress.start(TASK, self.last - self.start)
        try:
            patience = session.patience
            if patience is not None and 0 < self.start != patience.step and self._is_evaluated(self.start):
                # The run was interrupted before the evaluation that says whether it goes on.
                self._evaluate()
                if stop.signal_name is not None:
                    self._interrupt(stop.signal_name)
            for step in range(self.start + 1, self.last + 1):
                if patience is not None and patience.is_over and stop.signal_name is None:
                    self._stop_early()
                    break
                with recorded_step(session, self.recorder, step):
                    self._step(step)
                self._commit(step, stop)
                if _is_due(params.checkpoint.steps, step, self.last):
                    self.rates.pause(save(session))
                if self._is_evaluated(step):
                    self._evaluate()
                if stop.signal_name is not None and (step < self.last or self.evaluate_now is not None):
                    self._interrupt(stop.signal_name)
            self.rates.pause(finish_save(session))
            session.appliance.memoryx.drain()
        except Exception:
            # The checkpoint on its way is saved, and logged, even if later steps failed.
            with suppress(CstoolError):
                finish_save(session)
            raise
        finally:
            session.progress.finish(TASK)
            self._count()

    def _is_evaluated(self, step: int) -> bool:
        """Return whether there is an evaluation after a step, on the way."""
        every = self.eval_interval
        return self.evaluate_now is not None and every is not None and step % every == 0 and step < self.last

    def _evaluate(self) -> None:
        """Evaluate, and tell the patience the result."""
        assert self.evaluate_now is not None
        session = self.session
        self.rates.pause(self.evaluate_now())
        if session.patience is not None and session.evaluated_step == session.position.step:
            session.patience.look(session.position.step, session.metrics)

    def _stop_early(self) -> None:
        """End the training at the present step as if it were the last."""
        session, step = self.session, self.session.position.step
        assert session.patience is not None
        self.rates.pause(finish_save(session))
        # Files saved beside the last checkpoint are saved beside this one.
        session.last_step = step
        log.info(f"{session.patience.reason()}: stopping after step {step} of {self.last}.")
        if commits(session):
            commit(session)
        if session.params.checkpoint.steps is not None and session.saved_step != step:
            self.rates.pause(save(session))
            self.rates.pause(finish_save(session))
        session.training.stopped_early = _stopped_early(session)

    def _step(self, step: int) -> None:
        session, began = self.session, time.perf_counter()
        memoryx, training = session.appliance.memoryx, session.training
        batch = self.worker.next()
        memoryx.statistics.begin_step(looks=self._reports(step))
        waited = memoryx.lanes_waited_s
        trained = session.appliance.train_step(batch, step, session.params.learning_rate(step - 1))
        training.stream_wait_s += (memoryx.lanes_waited_s - waited) / len(self.cluster.lanes)
        training.tokens += batch.tokens
        session.position = Position(step, batch.number + 1, batch.size)
        training.losses.append(trained.loss)
        training.skipped_steps += trained.is_skipped
        training.phase_seconds.append(self.cluster.phase_seconds)
        self.rates.add(batch.samples)
        if batch.tokens == 0:
            log.warning(f"Step {step}: no label of the batch counts (its masks are all 0), so it teaches nothing.")
        if trained.is_skipped:
            scale = f"{session.appliance.loss_scale.value:.10g}"
            log.info(f"Step {step} is skipped: a gradient is not finite. The loss scale is {scale} from here on.")
        self._report(step, trained)
        training.step_seconds.append(time.perf_counter() - began)

    def _commit(self, step: int, stop: StopRequest) -> None:
        """Let a step be committed, where MemoryX is in a file that can be."""
        session = self.session
        if not commits(session):
            return
        # A commit waits for the checkpoint of the one before it: that is no time of training.
        self.rates.pause(finish_save(session))
        if step % session.params.memoryx.commit_steps == 0 or step == self.last or stop.signal_name is not None:
            commit(session)

    def _interrupt(self, signal_name: str) -> None:
        session = self.session
        step, params = session.position.step, session.params
        finish_save(session)
        session.appliance.memoryx.drain()
        if session.committed_step == step and session.resumes:
            file = session.appliance.memoryx.arrays.file
            assert file is not None, "who commits has a file"
            where = f"committed in {file.path}"
        else:
            where = f"saved in {params.model_dir}"
            if session.saved_step != step:
                save(session)
                finish_save(session)
        changes = []
        if not session.resumes:
            changes.append(f"--checkpoint_path {shlex.quote(session.checkpoints[-1])}")
        if params.loop.num_steps is not None:
            changes.append(f"--num_steps {session.steps_left}")
        way_on = f"the same command{' with ' if changes else ''}{' '.join(changes)} continues from there"
        raise Interrupted(f"stopped by {signal_name} after step {step}; it is {where}", way_on)

    def _report(self, step: int, trained: TrainStep) -> None:
        """Report the progress, and every log_steps write it to the log."""
        session, rates, params = self.session, self.rates, self.session.params
        done = step - self.start
        speed = f"{rates.global_rate * self.per_sample:,.0f} {self.unit}/s"
        session.progress.advance(TASK, done, f"loss {trained.loss:.3f}, {speed}", loss=trained.loss)
        if not self._reports(step):
            return
        rate, global_rate = rates.look()
        session.training.last_rate = rate
        left = clock_text((self.last - step) * rates.seconds / done)
        norm = "" if trained.gradient_norm is None else f", GradientNorm={trained.gradient_norm:.5f}"
        scale = f", LossScale={session.appliance.loss_scale.value:.10g}" if params.precision.logs_loss_scale else ""
        tokens = f"TokenRate={global_rate * self.per_sample:.0f} tokens/sec, " if self.unit == "tokens" else ""
        wait_share = self.worker.waited_s / max(rates.seconds, 1e-9)
        session.events.scalars(step, self._scalars(step, trained, rate, global_rate))
        log.info(
            f"| Train Device=CSX, Step={step}, Loss={trained.loss:.5f}, Rate={rate_text(rate)} samples/sec, "
            f"GlobalRate={rate_text(global_rate)} samples/sec, LoopTimeRemaining={left}, TimeRemaining>{left}, "
            f"{tokens}InputWait={wait_share:.1%}{norm}{scale}"
        )
        if wait_share > STARVED_SHARE and done > 1 and not self.warned:
            self.warned = True
            log.warning(f"Input starvation detected: {wait_share:.0%} of the time is spent waiting for the data set.")

    def _reports(self, step: int) -> bool:
        """Return whether the log has a line about a step, and the events its scalars."""
        every = self.session.params.logging.log_steps
        return step % every == 0 or step in (self.start + 1, self.last)

    def _scalars(self, step: int, trained: TrainStep, rate: float, global_rate: float) -> dict[str, float]:
        """Return the scalars of a step by tag: the vendor's, then ours."""
        session, seconds = self.session, max(self.rates.seconds, 1e-9)
        memoryx = session.appliance.memoryx
        norm = {} if trained.gradient_norm is None else {"model_wise_grad_norm": trained.gradient_norm}
        scale = {"loss_scale": session.appliance.loss_scale.value} if session.params.precision.logs_loss_scale else {}
        return {
            "loss": trained.loss,
            "lr/0": session.params.learning_rate(step - 1),
            "local_samples_per_sec": rate,
            "avg_samples_per_sec": global_rate,
            "avg_steps_per_sec": (step - self.start) / seconds,
            **norm,
            **scale,
            **memoryx.statistics.norms(),
            **(sparsity_scalars(memoryx) if memoryx.arrays.sparse else {}),
            "host/input_wait_share": self.worker.waited_s / seconds,
            "host/stream_wait_share": (session.training.stream_wait_s + memoryx.commits.waited_s) / seconds,
            "host/peak_resident_bytes": float(peak_resident_bytes()),
        }

    def _count(self) -> None:
        """Record the totals of the loop."""
        self.session.times.turn_to(START_UP)
        training, rates = self.session.training, self.rates
        training.samples, training.seconds, training.input_wait_s = rates.samples, rates.seconds, self.worker.waited_s
        training.stream_wait_s += self.session.appliance.memoryx.commits.waited_s
