"""Evaluation: the held-out data set forward once, without dropout."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

from cstool.data import Dataset, Sampler, batches_per_epoch
from cstool.params import DataloaderParams
from cstool.runtime.appliance import Appliance
from cstool.runtime.inputs import InputWorker
from cstool.runtime.progress import Progress
from cstool.runtime.rates import Rates
from cstool.runtime.stopping import StopRequest
from cstool.runtime.wording import format_rate

log = logging.getLogger("cstool")
TASK = "Evaluating"


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation comes to."""

    step: int
    """after which it was made"""
    loss: float
    """mean over the unmasked tokens [nats]"""
    accuracy: float
    """share of the unmasked tokens whose label is the likeliest class"""
    tokens: int
    samples: int
    seconds: float
    masks: int = 0
    """of DropConnect that the loss is a mean over; 0 where all weights took part"""
    loss_deviation: float = 0.0
    """standard deviation of the loss over the masks"""

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON, with the perplexity; without what belongs to masks where there are none."""
        found = {**asdict(self), "perplexity": math.exp(min(self.loss, 700.0))}
        if not self.masks:
            del found["masks"], found["loss_deviation"]
        return found


class _Totals(NamedTuple):
    """Of one pass over the data set."""

    loss: float
    correct: int
    tokens: int
    samples: int


def evaluate(
    appliance: Appliance,
    dataset: Dataset,
    dataloader: DataloaderParams,
    *,
    step: int,
    steps: int | None,
    log_steps: int,
    masks: int = 0,
    progress: Progress,
    stop: StopRequest,
) -> Evaluation | None:
    """Evaluate on a data set, in its order unless it is to be shuffled; the last batch may be a part of one.

    Args:
        step: of the run so far
        steps: batches at most; None for the whole data set
        log_steps: a log line every so many batches
        masks: of DropConnect, each of which takes a pass of its own; 0 for one pass with all weights
        stop: gives up between two batches when it is asked for

    Returns:
        None if it gave up
    """
    began = time.perf_counter()
    passes: list[_Totals] = []
    for mask in range(masks) if masks else (None,):
        found = _pass(appliance, dataset, dataloader, step, steps, log_steps, mask, progress, stop)
        if found is None:
            return None
        passes.append(found)
    losses = [found.loss / max(1, found.tokens) for found in passes]
    tokens, samples = passes[0].tokens, passes[0].samples
    result = Evaluation(
        step,
        fmean(losses),
        sum(found.correct for found in passes) / max(1, tokens * len(passes)),
        tokens,
        samples,
        time.perf_counter() - began,
        masks,
        stdev(losses) if len(losses) > 1 else 0.0,
    )
    log.info(f"Avg Eval Loss: {result.loss:.5f}")
    log.info("Evaluation metrics:")
    log.info(f"  - eval/accuracy = {result.accuracy:.5f}")
    if appliance.graph.tensors[appliance.graph.loss].shape:
        log.info(f"  - eval/lm_perplexity = {result.as_dict()['perplexity']:.5f}")
    if masks:
        log.info(f"  - eval/loss_deviation = {result.loss_deviation:.5f} (over {masks} masks of DropConnect)")
    log.info("Evaluation completed successfully!")
    log.info(f"Processed {samples * len(passes)} sample(s) in {result.seconds:.9f} seconds.")
    return result


def _pass(
    appliance: Appliance,
    dataset: Dataset,
    dataloader: DataloaderParams,
    step: int,
    steps: int | None,
    log_steps: int,
    mask: int | None,
    progress: Progress,
    stop: StopRequest,
) -> _Totals | None:
    """Go over the data set once; return None if it gave up."""
    size = dataloader.batch_size
    sampler = Sampler(dataset.sample_count, size, dataloader.shuffle, dataloader.shuffle_seed, drop_last=False)
    whole = batches_per_epoch(dataset.sample_count, size, drop_last=False)
    batches = whole if steps is None else min(steps, whole)
    losses: list[float] = []
    correct = tokens = samples = 0
    rates = Rates()
    progress.start(TASK, batches)
    with InputWorker(dataset, sampler, 0, batches) as worker:
        for number in range(1, batches + 1):
            if stop.signal_name is not None:
                progress.finish(TASK)
                return None
            batch = worker.next()
            loss = appliance.evaluate(batch, step, mask)
            losses.append(loss.total)
            correct, tokens, samples = correct + loss.correct, tokens + batch.tokens, samples + batch.samples
            rates.add(batch.samples)
            progress.advance(TASK, number)
            if number % log_steps == 0 or number == batches:
                rate, global_rate = rates.look()
                mean = loss.total / max(1, batch.tokens)
                log.info(
                    f"| Eval Device=CSX, GlobalStep={step}, Batch={number}, Loss={mean:.5f}, "
                    f"Rate={format_rate(rate)} samples/sec, GlobalRate={format_rate(global_rate)} samples/sec"
                )
    progress.finish(TASK)
    return _Totals(math.fsum(losses), correct, tokens, samples)
