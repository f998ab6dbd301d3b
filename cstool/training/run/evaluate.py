"""Evaluation: the held-out data sets forward once, without dropout."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from cstool.foundation.terminal.render import table_lines
from cstool.foundation.words import counted, rate_text
from cstool.model.ir import Loss
from cstool.training.data import Dataset, Sampler, TokenClassesDataset
from cstool.training.kernels.call import LossResult, sum_losses
from cstool.training.machine.data_sets import DataSet
from cstool.training.run.report.time_split import Rates
from cstool.training.run.session import Session
from cstool.training.run.stopping import StopRequest

log = logging.getLogger("cstool")
TASK = "Evaluating"
_OF_NAMES = ("B", "I")
"""first letters of labels that count: tokens at the beginning of an entity, and inside of it"""


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    data_set: str
    """its name"""
    step: int
    """after which it was made"""
    means: tuple["MeanLoss", ...]
    """of the model's losses; its own is their sum"""
    tokens: int
    """unmasked ones"""
    samples: int
    seconds: float
    masks: int = 0
    """number of DropConnect masks over which the loss is a mean; 0 if all weights took part"""
    loss_deviation: float = 0.0
    """standard deviation of the loss over the masks"""

    @property
    def loss(self) -> float:
        """Sum of the means of all losses [nats]; NaN where no label counts."""
        return math.fsum(mean.mean for mean in self.means)

    @property
    def accuracy(self) -> float:
        """The accuracy of the first loss that has one."""
        return next(mean.accuracy for mean in self.means if mean.loss.accuracy is not None)

    def metrics(self, *, several: bool) -> dict[str, float]:
        """Return the metrics by the vendor's tags, which name the data set where there are several.

        Args:
            several: whether other data sets are evaluated, too
        """
        prefix = f"eval/{self.data_set}" if several else "eval"
        found = {f"{prefix}/loss": self.loss}
        for mean in self.means:
            if mean.loss.accuracy is not None:
                found[f"{prefix}/{mean.loss.accuracy}"] = mean.accuracy
            found |= {f"{prefix}/{name}": value for name, value in zip(mean.loss.told, mean.told, strict=True)}
            if mean.loss.perplexity is not None:
                found[f"{prefix}/{mean.loss.perplexity}"] = mean.perplexity
        if self.masks:
            found[f"{prefix}/loss_deviation"] = self.loss_deviation
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON; accuracy and perplexity are of the first loss, masks only where there are any."""
        first, *others = self.means
        found = {
            "data_set": self.data_set,
            "step": self.step,
            "loss": self.loss,
            "accuracy": self.accuracy,
            "tokens": self.tokens,
            "samples": self.samples,
            "seconds": self.seconds,
            "perplexity": first.perplexity,
        }
        if others:
            found["losses"] = {mean.loss.name: mean.mean for mean in self.means}
            found |= {mean.loss.accuracy: mean.accuracy for mean in self.means if mean.loss.accuracy is not None}
        for mean in self.means:
            found |= dict(zip(mean.loss.told, mean.told, strict=True))
        return found | ({"masks": self.masks, "loss_deviation": self.loss_deviation} if self.masks else {})


@dataclass(frozen=True)
class MeanLoss:
    """One loss of a model over a data set."""

    loss: Loss
    mean: float
    """over the terms that count: unmasked tokens, or samples [nats]; NaN where none does"""
    accuracy: float
    """share of them whose label is the likeliest class"""
    told: tuple[float, ...] = ()
    """its further values, in the order of `Loss.told`"""

    @property
    def perplexity(self) -> float:
        """The perplexity of the mean; of a hopeless model, a number all the same."""
        return math.exp(min(self.mean, 700.0))


class _Totals(NamedTuple):
    """Of one pass over the data set."""

    losses: Sequence[LossResult]
    tokens: int
    samples: int

    def means(self) -> list[tuple[float, ...]]:
        """Of each loss the mean, the accuracy, and its further values.

        They are over the tokens of the first, over the samples of others; of nothing they are NaN.
        """
        terms = [self.tokens, *[self.samples] * (len(self.losses) - 1)]
        return [
            tuple(each / count if count else math.nan for each in (found.total, found.correct, *found.extras))
            for found, count in zip(self.losses, terms, strict=True)
        ]

    def told(self, losses: Sequence[Loss], samples: Dataset) -> list[tuple[float, ...]]:
        """Of each loss that evaluations count its means, and its scores.

        Args:
            losses: of the model
            samples: the data set
        """
        return [
            (*means, *scores_of(loss, found.tallies, samples))
            for loss, means, found in zip(losses, self.means(), self.losses, strict=True)
            if loss.evaluates
        ]


def evaluate_sets(
    session: Session, data: Sequence[DataSet], stop: StopRequest, checkpoint: Path | None = None
) -> float:
    """Evaluate on data sets, one after the other, and note the results in the session.

    Args:
        session: the run; all updates of its weights need not have been applied
        stop: gives up between two batches when it is asked for; then nothing counts as evaluated
        checkpoint: source of the weights, where nothing trains them

    Returns:
        the seconds it took
    """
    began = time.perf_counter()
    several, source = len(data) > 1, None if checkpoint is None else str(checkpoint)
    dropped = session.appliance.memoryx.arrays.dropped.values()
    masks = max((weight.group.samples or 0 for weight in dropped), default=0)
    metrics: dict[str, float] = {}
    evaluations: list[dict[str, Any]] = []
    for number, found in enumerate(data, start=1):
        if several:
            log.info(f"Evaluating on {found.name}, data set {number} of {len(data)}")
        result = evaluate(session, found, stop, several=several, masks=masks)
        if result is None:
            return time.perf_counter() - began
        metrics |= result.metrics(several=several)
        evaluations.append({"checkpoint": source, **result.as_dict()})
    session.evaluations += evaluations
    session.metrics, session.evaluated_step = metrics, session.position.step
    return time.perf_counter() - began


def evaluation_table(evaluations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of evaluations of checkpoints, a line each."""
    columns, rows = ("checkpoint", "data set", "loss", "perplexity", "accuracy", "tokens"), []
    for found in evaluations:
        loss, perplexity, accuracy = (f"{found[name]:.5f}" for name in ("loss", "perplexity", "accuracy"))
        name = Path(found["checkpoint"]).name
        rows.append((name, found["data_set"], loss, perplexity, accuracy, f"{found['tokens']:,}"))
    return table_lines(columns, rows, right=columns[2:])


def evaluate(
    session: Session, data: DataSet, stop: StopRequest, *, several: bool = False, masks: int = 0
) -> Evaluation | None:
    """Evaluate on a data set, in its order unless it is to be shuffled; the last batch may be a part of one.

    Args:
        stop: gives up between two batches when it is asked for
        several: whether others are evaluated, too: then log lines name it
        masks: of DropConnect, each of which takes a pass of its own; 0 for one pass with all weights

    Returns:
        None if it gave up
    """
    began = time.perf_counter()
    passes: list[_Totals] = []
    shown = f", Dataset={data.name}" if several else ""
    for mask in range(masks) if masks else (None,):
        found = _pass(session, data, mask, shown, stop)
        if found is None:
            return None
        passes.append(found)
    losses_told = [loss for loss in session.graph.losses if loss.evaluates]
    by_pass = [found.told(session.graph.losses, data.samples) for found in passes]
    losses = [math.fsum(mean for mean, *_ in found) for found in by_pass]
    samples = passes[0].samples
    result = Evaluation(
        data.name,
        session.position.step,
        tuple(
            MeanLoss(loss, means[0], means[1], tuple(means[2:]))
            for loss, found in zip(losses_told, zip(*by_pass, strict=True), strict=True)
            for means in [[fmean(each) for each in zip(*found, strict=True)]]
        ),
        passes[0].tokens,
        samples,
        time.perf_counter() - began,
        masks,
        stdev(losses) if len(losses) > 1 else 0.0,
    )
    if result.tokens == 0:
        log.warning(
            f"{data.where}: no label of the {counted(samples, 'sample')} counts (their masks are all 0), so there is "
            "no loss."
        )
    log.info(f"Avg Eval Loss: {result.loss:.5f}")
    log.info("Evaluation metrics:")
    for tag, value in result.metrics(several=several).items():
        if tag.endswith("/loss"):
            continue
        note = f" (over {masks} masks of DropConnect)" if tag.endswith("/loss_deviation") else ""
        log.info(f"  - {tag} = {value:.5f}{note}")
    log.info("Evaluation completed successfully!")
    log.info(f"Processed {samples * len(passes)} sample(s) in {result.seconds:.9f} seconds.")
    return result


def _pass(session: Session, data: DataSet, mask: int | None, shown: str, stop: StopRequest) -> _Totals | None:
    """Go over the data set once; None if it gave up."""
    loader, count, step = data.loader, data.samples.sample_count, session.position.step
    steps, log_steps = session.params.loop.eval_steps, session.params.logging.log_steps
    sampler = Sampler(count, loader.batch_size, loader.shuffle, loader.shuffle_seed, False, loader.epoch_samples)
    batches = sampler.batches_per_epoch
    if steps is not None and steps > batches and not mask:  # of several passes the first says it
        have = "is 1 batch" if batches == 1 else f"are {batches:,} batches"
        log.info(f"{data.where}: eval_steps is {steps:,}, and there {have}: the evaluation ends with the last.")
    batches = batches if steps is None else min(steps, batches)
    totals: list[tuple[LossResult, ...]] = []
    tokens = samples = 0
    rates = Rates()
    session.progress.start(TASK, batches)
    with session.appliance.reading(data.where, data.samples, sampler, 0, batches, trains=False) as worker:
        for number in range(1, batches + 1):
            if stop.signal_name is not None:
                session.progress.finish(TASK)
                return None
            batch = worker.next()
            found = session.appliance.evaluate(batch, step, mask)
            totals.append(found)
            tokens, samples = tokens + batch.tokens, samples + batch.samples
            rates.add(batch.samples)
            session.progress.advance(TASK, number)
            if number % log_steps == 0 or number == batches:
                rate, global_rate = rates.look()
                loss = math.fsum(mean for mean, *_ in _Totals(found, batch.tokens, batch.samples).means())
                log.info(
                    f"| Eval Device=CSX, GlobalStep={step}, Batch={number}, Loss={loss:.5f}, "
                    f"Rate={rate_text(rate)} samples/sec, GlobalRate={rate_text(global_rate)} samples/sec{shown}"
                )
    session.progress.finish(TASK)
    return _Totals(sum_losses(totals), tokens, samples)


def scores_of(loss: Loss, tallies: Sequence[int], samples: Dataset) -> tuple[float, ...]:
    """Return the scores of a loss, in the order of `Loss.score_names`: no means over batches, but from all counts.

    For a class, TP is the number of its right predictions, P the number of its predictions, L the number of its labels;
    its F1 score is 2 TP / (P + L), the harmonic mean of precision, TP / P, and recall, TP / L, and 0 where it is
    neither. ROUGE-N is the score of n-grams: TP the n-grams that the chosen sentences and the labelled sentences have
    in common, P and L all n-grams of either. If each sample is predicted once, P is L over all classes, and the score
    the accuracy. Scores of no labels at all, and of a half without a sample, are NaN.

    Source: van Rijsbergen, "Information retrieval", 1979, chapter 7; Lin, "ROUGE: a package for automatic evaluation of
    summaries", 2004. Over which classes the vendor takes it: Cerebras Model Zoo 2.10.0,
    models/nlp/bert/classifier/model.py (`micro`) and models/nlp/bert/token_classifier/model.py (`macro`).

    Args:
        tallies: counts over all of the data; see `LossResult`
        samples: the data set, which may know the names of classes
    """
    if loss.scores is None:
        return ()
    things = len(tallies) // 3
    counts = [tallies[start : start + things] for start in range(0, 3 * things, things)]
    if not any(counts[-1]):
        return (math.nan,) * len(loss.score_names)
    if loss.scores == "micro_f1":
        return (_f1(*map(sum, counts)),)
    each = [_f1(*of_thing) for of_thing in zip(*counts, strict=True)]
    if loss.scores == "halves":
        return tuple(score if labels else math.nan for score, labels in zip(each, counts[-1], strict=True))
    if loss.scores == "rouge":
        return tuple(each)
    others = _nameless(samples)
    named = [score for number, score in enumerate(each) if number not in others]
    return (math.fsum(named) / len(named) if named else math.nan,)


def _f1(rightly: int, predicted: int, labelled: int) -> float:
    return 2 * rightly / max(1, predicted + labelled)


def _nameless(samples: Dataset) -> set[int]:
    """Numbers of the classes that are no part of a name: `O`, [PAD] and the like."""
    if not isinstance(samples, TokenClassesDataset):
        return set()
    return {number for name, number in samples.label_numbers.items() if not name.startswith(_OF_NAMES)}
