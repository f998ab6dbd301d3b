"""The training loop: step, report, save, evaluate, until the last step or a signal."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from cstool.data import Dataset, Sampler
from cstool.errors import Interrupted
from cstool.params import DataloaderParams, LoopParams
from cstool.runtime.checkpoints import save
from cstool.runtime.inputs import InputWorker
from cstool.runtime.rates import Rates, format_rate, format_seconds
from cstool.runtime.session import Session
from cstool.runtime.state import Position
from cstool.runtime.stopping import StopRequest

log = logging.getLogger("cstool")
TASK = "Training"
STARVED_SHARE = 0.2
"""share of the time spent waiting for input from which the log warns"""


def train(
    session: Session, dataset: Dataset, loader: DataloaderParams, evaluate_now: Callable[[], float] | None
) -> None:
    """Train up to the last step that the params ask for.

    Args:
        session: the run; its position moves on
        dataset: where batches come from
        loader: their size and order
        evaluate_now: evaluates and returns the seconds it took; None for no evaluation on the way

    Raises:
        Interrupted: a signal came; the step was finished and saved
        NonFiniteError: the loss or a gradient is not finite
        CheckpointError: a checkpoint cannot be written
    """
    params, start = session.params, session.position.step
    sampler = Sampler(dataset.sample_count, loader.batch_size, loader.shuffle, loader.shuffle_seed, loader.drop_last)
    last = _last_step(params.loop, start, sampler.batches_per_epoch)
    session.result.first_step = start
    if params.checkpoint.save_initial_checkpoint and start == 0 and session.saved_step is None:
        save(session)
    if last <= start:
        log.info(f"Nothing to train: the run is at step {start}, and its last step is {last}.")
        return
    log.info(f"Starting train loop 1 of 1, from global step {start + 1} to {last} ({last - start} steps)")
    with StopRequest() as stop, InputWorker(dataset, sampler, session.position.batches, last - start) as worker:
        _Loop(session, worker, last, evaluate_now).run(stop)
    log.info("Training completed successfully!")
    log.info(f"Processed {session.result.samples} training sample(s) in {session.result.seconds:.9f} seconds.")


def _last_step(loop: LoopParams, start: int, batches: int) -> int:
    if loop.num_steps is not None:
        return start + loop.num_steps
    if loop.max_steps is not None:
        return loop.max_steps
    return (loop.num_epochs or 1) * (loop.steps_per_epoch or batches)


class _Loop:
    """The steps of one train loop, and what is reported of them."""

    def __init__(
        self, session: Session, worker: InputWorker, last: int, evaluate_now: Callable[[], float] | None
    ) -> None:
        self.session = session
        self.worker = worker
        self.start, self.last = session.position.step, last
        self.evaluate_now = evaluate_now
        self.tokens_per_sample = math.prod(session.graph.tensors[session.graph.loss].shape)
        self.rates = Rates()
        self.warned = False

    def run(self, stop: StopRequest) -> None:
        session, params = self.session, self.session.params
        checkpoint_steps = params.checkpoint.steps
        eval_steps = params.loop.eval_interval(self.last - self.start)
        session.progress.start(TASK, self.last - self.start)
        try:
            for step in range(self.start + 1, self.last + 1):
                self._step(step)
                if checkpoint_steps is not None and (step % checkpoint_steps == 0 or step == self.last):
                    self.rates.pause(save(session))
                if self.evaluate_now is not None and step % eval_steps == 0 and step < self.last:
                    self.rates.pause(self.evaluate_now())
                if stop.signal_name is not None and step < self.last:
                    self._interrupt(stop.signal_name)
        finally:
            session.progress.finish(TASK)
            self._count()

    def _step(self, step: int) -> None:
        session = self.session
        batch = self.worker.next()
        trained = session.appliance.train_step(batch, step, session.params.learning_rate(step - 1))
        session.position = Position(step, batch.number + 1)
        session.result.losses.append(trained.loss)
        self.rates.add(batch.samples)
        if batch.tokens == 0:
            log.warning(f"Step {step}: no label of the batch counts (its masks are all 0), so it teaches nothing.")
        self._report(step, trained.loss)

    def _interrupt(self, signal_name: str) -> None:
        session = self.session
        if session.saved_step != session.position.step:
            save(session)
        raise Interrupted(
            f"stopped by {signal_name} after step {session.position.step}; it is saved in {session.params.model_dir}",
            "the same command continues from there",
        )

    def _report(self, step: int, loss: float) -> None:
        """Tell the progress, and every log_steps the log."""
        session, rates = self.session, self.rates
        done = step - self.start
        tokens_rate = rates.global_rate * self.tokens_per_sample
        session.progress.advance(TASK, done, f"loss {loss:.3f}, {tokens_rate:,.0f} tokens/s")
        if step % session.params.logging.log_steps and step != self.last and done != 1:
            return
        rate, global_rate = rates.look()
        left = format_seconds((self.last - step) * rates.seconds / done)
        wait_share = self.worker.waited_s / max(rates.seconds, 1e-9)
        log.info(
            f"| Train Device=CSX, Step={step}, Loss={loss:.5f}, Rate={format_rate(rate)} samples/sec, "
            f"GlobalRate={format_rate(global_rate)} samples/sec, LoopTimeRemaining={left}, TimeRemaining>{left}, "
            f"TokenRate={tokens_rate:.0f} tokens/sec, InputWait={wait_share:.1%}"
        )
        if wait_share > STARVED_SHARE and done > 1 and not self.warned:
            self.warned = True
            log.warning(f"Input starvation detected: {wait_share:.0%} of the time is spent waiting for the data set.")

    def _count(self) -> None:
        """Put the totals of the loop into the result."""
        result, rates = self.session.result, self.rates
        result.samples, result.seconds = rates.samples, rates.seconds
        result.samples_per_s = result.samples / max(result.seconds, 1e-9)
        result.tokens_per_s = result.samples_per_s * self.tokens_per_sample
        result.input_wait_s = self.worker.waited_s
        result.stream_wait_s = self.session.appliance.memoryx.waited_s
