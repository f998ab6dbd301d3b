"""The verb behind `cstool run`: open the data, build the model, restore, train, evaluate, save."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cstool.foundation.errors import CheckpointError, Interrupted, ParamsError
from cstool.foundation.progress import Progress
from cstool.foundation.words import bytes_text
from cstool.model.graphs import trained_graph
from cstool.model.ir import Artifact, require_model
from cstool.model.params import Params, parse_states
from cstool.training.machine.data_sets import DataSets, open_data_sets
from cstool.training.machine.prepare import prepare_model_dir
from cstool.training.machine.ranks.link import Link
from cstool.training.machine.start import Start, choose_checkpoints, choose_start
from cstool.training.run.evaluate import evaluate_sets, evaluation_table
from cstool.training.run.follow import check_alike
from cstool.training.run.report.events import Events
from cstool.training.run.report.sparsity_table import table_lines
from cstool.training.run.report.summary import conclude, result_of
from cstool.training.run.report.time_split import EVALUATION, TimeSplit
from cstool.training.run.result import RunResult
from cstool.training.run.session import RunOrder, Session
from cstool.training.run.setup import open_session, settle_kernels, take_up
from cstool.training.run.stopping import StopRequest
from cstool.training.run.train import train
from cstool.training.store import StoreLock, sweep_temporary

log = logging.getLogger("cstool")


def run(params: Params, artifact: Artifact, order: RunOrder, progress: Progress) -> RunResult:
    """Run a params file.

    Args:
        artifact: the compiled model; the run runs its graph, op by op in the order of its stream

    Raises:
        CstoolError: an error that the user can act on
    """
    times = TimeSplit()
    mode, states = order.mode, _typed_states(order.load_checkpoint_states)
    with ExitStack() as stack:
        data = open_data_sets(params, mode, stack)
        for found in data.all:
            log.info(found.samples.describe())
        require_model(artifact, trained_graph(params, data.form))
        check_alike(params, data, order.trainer, order.link)
        trains = data.train is not None
        if trains and params.early_stopping is not None and not data.held_out:
            rule = "EarlyStopping needs evaluations on the way, and there are none in mode train"
            raise ParamsError([(f"{params.path}: {rule}", "--mode train_and_eval makes them")])
        prepare_model_dir(params.model_dir)
        # Old checkpoints, evaluated anew, are no part of the curves of training.
        events = stack.enter_context(Events(None if mode == "eval_all" else params.events_dir))
        for warning in params.warnings:
            log.warning(warning)
        for note in params.notes:
            log.info(note)
        if mode == "eval_all":
            starts = choose_checkpoints(params, order.checkpoint_path, states)
        else:
            starts = [choose_start(params, order.checkpoint_path, states, trains=trains, link=order.link)]

        def open_machine(start: Start, machine: ExitStack) -> Session:
            return open_session(
                params, artifact, data, start, order, events=events, times=times, progress=progress, stack=machine
            )

        if mode == "eval_all":
            return _evaluate_all(starts, data, open_machine, order.link)
        stop = stack.enter_context(_stop_request(order.link))
        return _run_once(open_machine(starts[0], stack), starts[0], data, stop)


@contextmanager
def _stop_request(link: Link) -> Iterator[StopRequest]:
    """Stop for a signal that comes here, or at another rank."""
    with StopRequest() as stop:
        link.listen("signal", lambda _, name, __: stop.ask(name))
        yield stop


def _typed_states(written: str | None) -> frozenset[str] | None:
    try:
        return None if written is None else parse_states(written)
    except ValueError as error:
        raise CheckpointError(f"--load_checkpoint_states: {error}") from error


def _begin(session: Session, start: Start) -> None:
    """Put the weights in place, and log the kernels that compute with them."""
    take_up(session, start)
    session.appliance.memoryx.reserve()
    settle_kernels(session)


def _run_once(session: Session, start: Start, data: DataSets, stop: StopRequest) -> RunResult:
    """Train, evaluate, or both."""
    _begin(session, start)
    checkpoint = None if data.train is not None else start.path

    def evaluate_now() -> float:
        return _evaluate(session, data, stop, checkpoint)

    try:
        if data.train is not None:
            train(session, data.train, evaluate_now if data.held_out else None, stop)
        if data.held_out and session.evaluated_step != session.position.step:
            evaluate_now()
        _check_not_stopped(session, data, stop)
    except Interrupted:
        conclude(session, result_of(session))
        raise
    return _finished(session)


def _evaluate(session: Session, data: DataSets, stop: StopRequest, checkpoint: Path | None) -> float:
    """Evaluate on all data sets; return the seconds that it took."""
    seconds = evaluate_sets(session, data.held_out, stop, checkpoint)
    if stop.signal_name is None or session.evaluated_step == session.position.step:
        session.events.scalars(session.position.step, session.metrics)
    return session.times.move(seconds, EVALUATION)


def _evaluate_all(
    starts: Sequence[Start], data: DataSets, open_machine: Callable[[Start, ExitStack], Session], link: Link
) -> RunResult:
    """Evaluate every checkpoint on every data set.

    One machine does for all, whose weights are loaded anew. A sparse model, and one that streams from its checkpoint,
    needs a machine for each.
    """
    result: RunResult | None = None
    pending = list(starts)
    with _stop_request(link) as stop:
        while pending:
            with ExitStack() as machine:
                session = open_machine(pending[0], machine)
                if result is not None:
                    session.evaluations = result.evaluations
                while pending:
                    start = pending.pop(0)
                    _begin(session, start)
                    _evaluate(session, data, stop, start.path)
                    _check_not_stopped(session, data, stop)
                    if session.appliance.memoryx.arrays.is_for_one_state:
                        break
                result = _finished(session)
    assert result is not None, "there is a checkpoint"
    for line in evaluation_table(result.evaluations):
        log.info(line)
    return result


def _check_not_stopped(session: Session, data: DataSets, stop: StopRequest) -> None:
    if stop.signal_name is not None and data.held_out:
        mode = "eval_all" if session.order.mode == "eval_all" else "eval"
        raise Interrupted(
            f"stopped by {stop.signal_name} during the evaluation after step {session.position.step}",
            f"--mode {mode} repeats it",
        )


def _finished(session: Session) -> RunResult:
    """Sum up, and log the lines for the end of a run."""
    result = result_of(session)
    for line in table_lines(result.sparsity):
        log.info(line)
    if result.sparsity and result.losses:
        log.info(
            f"Streamed {bytes_text(result.streamed_bytes_per_step)} of weights a step; with the zeros it would "
            f"have been {bytes_text(result.dense_streamed_bytes_per_step)}."
        )
    if result.memoryx is not None:
        log.info(result.memoryx.line())
    conclude(session, result)
    return result


LOCK_NAME = "run.lock"
"""name of the lock in a model_dir, which goes when the run ends"""


@contextmanager
def run_lock(params: Params) -> Iterator[None]:
    """Keep model_dir for a run that trains, and clear it of files half written by a killed run.

    The lock of a process that is gone does not count. Where a folder cannot be locked, a run does without.

    Raises:
        StoreError: another run trains there
    """
    # Errors of the folder are reported by its writers.
    with suppress(OSError):
        params.model_dir.mkdir(parents=True, exist_ok=True)
    rule = "model_dir must be used by one run that trains at a time"
    lock = StoreLock(params.model_dir / LOCK_NAME, rule=rule, optional=True)
    try:
        # No other run writes such files here now, however young they are.
        for name in (f"*{os.path.splitext(params.checkpoint.checkpoint_name)[1]}", "memoryx*.h5"):
            sweep_temporary(params.model_dir, f"{name}.*.tmp", age_s=0)
        yield
    finally:
        lock.remove()
