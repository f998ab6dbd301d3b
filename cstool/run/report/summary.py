"""What a run says at its end: what it did, what came of it, where its time went, and how to go on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from statistics import median
from typing import Any

from cstool.data import tokenizer_of
from cstool.errors import DataError
from cstool.run.report.performance import write_performance
from cstool.run.session import COMPARED_STEPS, Session, peak_resident_bytes
from cstool.words import bytes_text, counted

log = logging.getLogger("cstool")
WORDS = {
    "compute": "computing",
    "stream_wait": "waiting for the stream",
    "input_wait": "waiting for input",
    "checkpoint": "checkpoints",
    "evaluation": "evaluation",
    "start_up": "start-up",
}


def conclude(session: Session) -> None:
    """Say what a run came to, and leave it beside its log."""
    complete(session)
    for line in summary_lines(session):
        log.info(line)
    if session.log_folder is not None:
        write_performance(session, session.log_folder)


def complete(session: Session) -> None:
    """Put into the result of a run what is known at its end, whether it came to it or was interrupted."""
    result, appliance = session.result, session.appliance
    result.last_step = session.position.step
    result.memory_bytes = dict(appliance.memory_account())
    result.peak_resident_bytes = peak_resident_bytes()
    steps = result.step_seconds[1:][-COMPARED_STEPS:] or result.step_seconds
    result.median_step_s = median(steps) if steps else 0.0
    result.model_dir = str(session.params.model_dir)
    result.log = None if session.log_folder is None else str(session.log_folder / "run.log")
    result.events = None if session.events.path is None else str(session.events.path.parent)
    result.commands = dict(_commands(session))
    result.time_s = session.times.seconds(result.input_wait_s, result.stream_wait_s)
    result.wall_s = sum(result.time_s.values())


def summary_lines(session: Session) -> list[str]:
    """Return the summary as lines of a log; `complete` the result first."""
    rows = list(_rows(session))
    width = max(len(name) for name, _ in rows)
    return ["Run summary:", *(f"  {name:<{width}}  {text}" for name, text in rows)]


def _rows(session: Session) -> Iterator[tuple[str, str]]:
    result = session.result
    machine = f"{result.num_csx} CSX, {counted(result.lanes, 'lane')}"
    yield "model", f"{result.model}, {counted(result.parameters, 'parameter')}; {machine}"
    if not result.mode.startswith("eval"):
        yield "trained", _trained(session)
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
    allocated = sum(result.memory_bytes.values())
    yield "memory", f"{bytes_text(result.peak_resident_bytes)} at the peak, {bytes_text(allocated)} of arrays in it"
    yield "files", ", ".join(_files(session))
    yield from result.commands.items()


def _trained(session: Session) -> str:
    result = session.result
    if not result.losses:
        return f"nothing: the run is at step {result.last_step}, and its last step is {session.last_step}"
    steps = f"steps {result.first_step + 1} to {result.last_step}"
    tokens = f", {counted(result.tokens, 'token')}" if result.tokens != result.samples else ""
    losses = f"loss {result.losses[0]:.5f} to {result.losses[-1]:.5f}"
    return f"{steps}: {counted(result.samples, 'sample')}{tokens}; {losses}"


def _held_out(session: Session, found: Mapping[str, Any]) -> str:
    perplexity = f", lm_perplexity {found['perplexity']:.5f}" if session.tokens_per_sample > 1 else ""
    amount = f"{counted(found['samples'], 'sample')}, after step {found['step']}"
    return f"loss {found['loss']:.5f}, accuracy {found['accuracy']:.5f}{perplexity} ({amount})"


def _files(session: Session) -> Iterator[str]:
    result = session.result
    if result.checkpoints:
        yield result.checkpoints[-1]
    if session.log_folder is not None:
        yield str(session.params.model_dir / "latest_run.log")
    if result.events is not None:
        yield result.events


def _commands(session: Session) -> Iterator[tuple[str, str]]:
    """Yield what to type next, as it works: only where something was saved to go on from."""
    params, result = session.params, session.result
    is_saved = session.position.step in (session.saved_step, session.committed_step)
    if session.command is None or result.mode.startswith("eval") or not is_saved:
        return
    if not session.resumes and not result.checkpoints:
        return
    latest = {} if session.resumes else {"checkpoint_path": result.checkpoints[-1]}
    steps: dict[str, str | None] = {}
    if not session.steps_left:
        steps = {"max_steps": None, "num_steps": str(max(1, len(result.losses)))}
    elif params.loop.num_steps is not None:
        steps = {"num_steps": str(session.steps_left)}
    if result.stopped_early is None:
        yield "continue", session.command({"mode": result.mode, **latest, **steps})
    if params.eval_dataloaders:
        yield "evaluate", session.command({"mode": "eval", **latest, "max_steps": None, "num_steps": None})
    if _knows_its_text(session):
        yield "generate", session.command({"mode": "infer", "prompt": "The ", **latest})


def _knows_its_text(session: Session) -> bool:
    """Say whether the model makes text, and its data set says how."""
    loader = session.params.train_dataloader
    if loader is None or session.tokens_per_sample == 1:
        return False
    with suppress(DataError):
        return any(tokenizer_of(folder) is not None for folder in loader.data_dir)
    return False
