"""Log lines of a run before its first step, in the vendor's words, and at its end: results, times, next commands."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from cstool.foundation.errors import DataError
from cstool.foundation.words import bytes_text, counted
from cstool.model.params import DecoderParams, Params
from cstool.training.data import tokenizer_of
from cstool.training.machine.cluster import Cluster
from cstool.training.machine.memoryx import MemoryX
from cstool.training.run.report.performance import write_performance
from cstool.training.run.report.sparsity_table import sparsity_table
from cstool.training.run.result import FileTraffic, Recomputed, RunResult
from cstool.training.run.session import Session, Trained, peak_resident_bytes

log = logging.getLogger("cstool")
WORDS = {
    "compute": "computing",
    "stream_wait": "waiting for the stream",
    "input_wait": "waiting for input",
    "checkpoint": "checkpoints",
    "evaluation": "evaluation",
    "start_up": "start-up",
}


def conclude(session: Session, result: RunResult) -> None:
    """Log the result of a run, and leave it beside its log."""
    for line in summary_lines(session, result):
        log.info(line)
    if session.order.log_folder is not None:
        write_performance(session, result, session.order.log_folder)


def result_of(session: Session) -> RunResult:
    """Put together the result of a run, whether it came to its end or was interrupted."""
    params, training, cluster = session.params, session.training, session.cluster
    appliance, timeline = session.appliance, cluster.plan.timeline
    steps, layers = len(training.losses), len(timeline.recomputed)
    if appliance.memoryx.optimizer is None:
        streamed_bytes = sum(map(appliance.streamed_bytes, appliance.clusters))
    else:
        streamed_bytes = appliance.streamed_bytes(cluster) if steps else 0
    samples_per_s = training.samples / max(training.seconds, 1e-9)
    sparsity = sparsity_table(appliance.memoryx)
    time_s = session.times.seconds(training.input_wait_s, training.stream_wait_s)
    return RunResult(
        mode=session.order.mode,
        model=params.model.name,
        parameters=session.graph.parameter_count,
        trained_parameters=session.graph.trained_count,
        last_step=session.position.step,
        step_s=training.seconds / max(1, steps),
        median_step_s=training.median_step_s,
        samples_per_s=samples_per_s,
        tokens_per_s=samples_per_s * (session.graph.sequence_length or 1),
        streamed_bytes_per_step=streamed_bytes,
        dense_streamed_bytes_per_step=session.appliance.dense_streamed_bytes(cluster) if steps else 0,
        checkpoint_s=session.checkpoint_s,
        wall_s=sum(time_s.values()),
        time_s=time_s,
        evaluations=session.evaluations,
        checkpoints=session.checkpoints,
        model_dir=str(params.model_dir),
        log=None if session.order.log_folder is None else str(session.order.log_folder / "run.log"),
        events=None if session.events.path is None else str(session.events.path.parent),
        commands=dict(_commands(session)),
        memory_bytes=dict(appliance.memory_account()),
        peak_resident_bytes=peak_resident_bytes(),
        num_csx=params.num_csx,
        lanes=len(cluster.lanes),
        ranks=[replace(use) for use in appliance.others.used] if appliance.link.ranks > 1 else [],
        grain_samples=cluster.plan.samples,
        waves=cluster.waves,
        recomputed=Recomputed(layers, cluster.plan.slot_bytes, cluster.layout.whole_slot_bytes) if layers else None,
        memoryx=traffic_of(appliance.memoryx),
        sparsity=sparsity,
        op_seconds=_op_seconds(cluster, steps),
        modelled=session.modelled,
        **{each.name: getattr(training, each.name) for each in fields(Trained)},
    )


def traffic_of(memoryx: MemoryX) -> FileTraffic | None:
    """Reads and writes of the file of MemoryX so far, and the time waited for it; None without a file."""
    file = memoryx.arrays.file
    if file is None:
        return None
    traffic, use = file.traffic, memoryx.expert_use
    return FileTraffic(
        str(file.path),
        traffic.read_bytes,
        traffic.written_bytes,
        traffic.busy_s,
        memoryx.lanes_waited_s + memoryx.commits.waited_s,
        file.cache.ahead_bytes,
        None if file.record is None else file.record.step,
        *(() if use is None else (use.idle, use.visits)),
    )


def _op_seconds(cluster: Cluster, steps: int) -> dict[str, dict[str, float]]:
    """Seconds of each op in a training step."""
    if not steps:
        return {}
    return {op: {name: total / steps for name, total in each.items()} for op, each in cluster.op_seconds.items()}


def summary_lines(session: Session, result: RunResult) -> list[str]:
    """The summary as lines of a log."""
    rows = list(_rows(session, result))
    width = max(len(name) for name, _ in rows)
    return ["Run summary:", *(f"  {name:<{width}}  {text}" for name, text in rows)]


def _rows(session: Session, result: RunResult) -> Iterator[tuple[str, str]]:
    machine = f"{result.num_csx} CSX, {counted(result.lanes, 'lane')}"
    part = f", {result.trained_parameters:,} of them trained" * (result.trained_parameters < result.parameters)
    yield "model", f"{result.model}, {counted(result.parameters, 'parameter')}{part}; {machine}"
    if not result.mode.startswith("eval"):
        yield "trained", _trained(session, result)
    # Of checkpoint after checkpoint there is a table.
    last = result.evaluations[-1]["step"] if result.evaluations and result.mode != "eval_all" else None
    found = [evaluation for evaluation in result.evaluations if evaluation["step"] == last]
    for evaluation in found:
        name = f" ({evaluation['data_set']})" if len(found) > 1 else ""
        yield f"held out{name}", _held_out(session, evaluation)
    parts = [f"{WORDS[name]} {seconds:.1f}" for name, seconds in result.time_s.items() if seconds >= 0.05]
    yield "time", f"{result.wall_s:.1f} s{': ' if parts else ''}{', '.join(parts)}"
    if result.losses:
        step = f"{result.median_step_s:.3g} s measured on this host (median)"
        if (modelled := result.modelled) is not None:
            step += f"; {modelled.step_s:.3g} s modelled for {result.num_csx} x {modelled.system}"
            step += f", {modelled.execution_mode}"
        yield "step", step
    if result.ranks:
        yield "ranks", _ranks(result)
    allocated = sum(result.memory_bytes.values())
    yield "memory", f"{bytes_text(result.peak_resident_bytes)} at the peak, {bytes_text(allocated)} of arrays in it"
    yield "files", ", ".join(_files(session, result))
    yield from result.commands.items()


def _ranks(result: RunResult) -> str:
    hosts = counted(len({use.host for use in result.ranks}), "host")
    parts = []
    for use in result.ranks if result.losses else ():
        sent = bytes_text(use.sent_bytes // len(result.losses))
        parts.append(f"rank {use.rank} sent {sent} a step and waited {use.waited_s / max(result.seconds, 1e-9):.1%}")
    return f"{counted(len(result.ranks), 'rank')} on {hosts}{': ' if parts else ''}{'; '.join(parts)}"


def _trained(session: Session, result: RunResult) -> str:
    if not result.losses:
        return f"nothing: the run is at step {result.last_step}, and its last step is {session.last_step}"
    steps = f"steps {result.first_step + 1} to {result.last_step}"
    tokens = f", {counted(result.tokens, 'token')}" if result.tokens != result.samples else ""
    losses = f"loss {result.losses[0]:.5f} to {result.losses[-1]:.5f}"
    skipped = f"; {counted(result.skipped_steps, 'step')} skipped, for want of finite gradients"
    return f"{steps}: {counted(result.samples, 'sample')}{tokens}; {losses}{skipped if result.skipped_steps else ''}"


def _held_out(session: Session, found: Mapping[str, Any]) -> str:
    first = session.graph.losses[0]
    perplexity = "" if first.perplexity is None else f", {first.perplexity} {found['perplexity']:.5f}"
    amount = f"{counted(found['samples'], 'sample')}, after step {found['step']}"
    scores = "".join(f", {name} {found[name]:.5f}" for name in first.score_names)
    return f"loss {found['loss']:.5f}, accuracy {found['accuracy']:.5f}{scores}{perplexity} ({amount})"


def _files(session: Session, result: RunResult) -> Iterator[str]:
    if result.checkpoints:
        yield result.checkpoints[-1]
    if session.order.log_folder is not None:
        yield str(session.params.model_dir / "latest_run.log")
    if result.events is not None:
        yield result.events


def _commands(session: Session) -> Iterator[tuple[str, str]]:
    """Yield the commands to type next, as they work: only where something was saved to go on from."""
    params, mode, checkpoints = session.params, session.order.mode, session.checkpoints
    is_saved = session.position.step in (session.saved_step, session.committed_step)
    if session.order.command is None or mode.startswith("eval") or not is_saved:
        return
    if not session.resumes and not checkpoints:
        return
    latest = {} if session.resumes else {"checkpoint_path": checkpoints[-1]}
    steps: dict[str, str | None] = {}
    if not session.steps_left:
        steps = {"max_steps": None, "num_steps": str(max(1, len(session.training.losses)))}
    elif params.loop.num_steps is not None:
        steps = {"num_steps": str(session.steps_left)}
    if session.training.stopped_early is None:
        yield "continue", session.order.command({"mode": mode, **latest, **steps})
    if params.eval_dataloaders:
        yield "evaluate", session.order.command({"mode": "eval", **latest, "max_steps": None, "num_steps": None})
    if _knows_its_text(session):
        yield "generate", session.order.command({"mode": "infer", "prompt": "The ", **latest})


def _knows_its_text(session: Session) -> bool:
    """Return whether the model makes text, and its data set says how."""
    loader, model = session.params.train_dataloader, session.params.model
    if loader is None or not isinstance(model, DecoderParams) or not model.makes_text:
        return False
    with suppress(DataError):
        return any(tokenizer_of(folder) is not None for folder in loader.data_dir)
    return False


WIDTH = 75


def fit_summary(params: Params, start: int, last: int, eval_interval: int | None) -> list[str]:
    """Return the lines.

    Args:
        eval_interval: steps between evaluations; None for none on the way

    Source: the lines of the vendor's trainer (trainer/callbacks/run_schedule.py); ours are the line about
    validation, which is no loop of its own here, and the line about no checkpoints.
    """
    steps, every = last - start, params.checkpoint.steps
    lines = [
        "=" * WIDTH,
        "Trainer Fit Summary",
        "-" * WIDTH,
        "Trainer will run 1 train loop.",
        "Train steps per train loop:",
        f"* 1 loop of {_plural(steps, 'step')}",
        f"for a total of {_plural(steps, 'train step')}.",
    ]
    if eval_interval is not None and eval_interval < last:
        lines.append(f"Validation will run every {_each(eval_interval)}, and after the last step.")
    if every is None:
        lines.append("No checkpoints will be taken: trainer.init.checkpoint.steps says how often.")
    else:
        count = last // every - start // every + (last % every > 0)
        also = " and on the last step," if last % every else ""
        lines.append(
            f"Checkpoints will be taken every {_each(every)},{also} for a total of {_plural(count, 'checkpoint')}."
        )
    lines.append(f"Progress will be logged every {_each(params.logging.log_steps)}.")
    return [*lines, "=" * WIDTH]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _each(count: int) -> str:
    return "step" if count == 1 else f"{count} steps"
