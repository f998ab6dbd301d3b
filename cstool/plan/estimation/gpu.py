"""The same job on GPUs, beside an estimate for wafers; and published steps on GPUs beside the closed forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import yaml

import cstool.plan.timing.gpu
from cstool.foundation.errors import EstimateError
from cstool.model.params import DecoderParams, Params
from cstool.model.params.sections.fields import GATED_NONLINEARITIES
from cstool.plan.estimation.point import DAY_S, Estimate
from cstool.plan.estimation.sweep import Tried, each_or_why
from cstool.plan.timing.gpu import GpuModel, GpuStep, GpuSystem, Split, best_split, load_gpu, split_step

FILE = Path(cstool.plan.timing.gpu.__file__).parent / "published.yaml"
MOST_GPUS = 2**17


@dataclass(frozen=True)
class GpuEstimate:
    """A step on so many GPUs. All of it is modelled.

    Args:
        gpu: kind of GPU
        step: the fastest that fits
        flops: useful ones of a step [FLOP]
        tokens_per_s: of all GPUs together
        days: for the tokens that were asked for; None if there are none
    """

    gpu: GpuSystem
    step: GpuStep
    flops: float
    tokens_per_s: float
    days: float | None

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.step.split.gpus

    @property
    def share_of_peak(self) -> float:
        """Of the rate of products of 16 bits."""
        return self.flops / self.step.step_s / (self.gpus * self.gpu.flops)

    @property
    def power_w(self) -> float:
        """Of all of them with their hosts, at most [W]."""
        return self.gpus * self.gpu.power_w

    @property
    def joules_per_token(self) -> float:
        """Of all of them with their hosts, at most [J]."""
        return self.power_w / self.tokens_per_s


@dataclass(frozen=True)
class Beside:
    """GPUs beside wafers.

    Args:
        gpu: each GPU
        rows: for each number of GPUs
        match: the fewest that are as fast as the wafers, of powers of two hosts; None if none are
        fewer: half as many, and their tokens a second, or None where no split of theirs holds the model; None if there
            is no match, or it is one GPU
        rate: tokens a second of the wafers
        num_csx: of these
    """

    gpu: GpuSystem
    rows: tuple[Tried[int, GpuEstimate], ...]
    match: GpuEstimate | None
    fewer: tuple[int, float | None] | None
    rate: float
    num_csx: int


def gpu_model(params: Params, found: Estimate) -> GpuModel:
    """The model of an estimate, as a GPU sees it.

    Raises:
        EstimateError: the closed forms do not know it
    """
    model = params.model
    if not isinstance(model, DecoderParams) or not model.makes_text:
        raise EstimateError(
            "--gpus: must be left out: its closed forms are of decoders that make text, got "
            f"{model.name} of {params.path}"
        )
    if model.moe.is_mixture:
        raise EstimateError(f"--gpus: must be left out: its closed forms know no experts, {params.path} has a mixture")
    return GpuModel(
        hidden=model.hidden_size,
        layers=model.num_hidden_layers,
        heads=model.num_heads,
        kv_width=model.hidden_size // model.num_heads * model.kv_heads,
        inside=model.filter_size,
        gated=model.nonlinearity in GATED_NONLINEARITIES,
        vocabulary=model.vocab_size,
        tokens=found.artifact.tokens,
        parameters=found.artifact.graph.parameter_count,
    )


def beside_gpus(params: Params, found: Estimate, gpu_name: str, counts: Sequence[int]) -> Beside:
    """Return the same job on so many GPUs: the same model, batch and tokens, split so that a step is fastest.

    Raises:
        EstimateError: the closed forms do not know the model, or no number of GPUs holds it
        ParamsError: there is no such GPU
    """
    gpu, model = load_gpu(gpu_name), gpu_model(params, found)
    rows = each_or_why(counts, lambda gpus: _estimate(gpu, model, found, gpus))
    return Beside(gpu, tuple(rows), *_match(gpu, model, found), found.tokens_per_s, found.num_csx)


def _estimate(gpu: GpuSystem, model: GpuModel, found: Estimate, gpus: int) -> GpuEstimate:
    step = best_split(gpu, model, found.batch_size, gpus)
    if step is None:
        hold = [n for n in _doubled(gpu) if best_split(gpu, model, found.batch_size, n) is not None]
        hint = "no number of them holds it with this batch"
        if more := [n for n in hold if n > gpus]:
            hint = f"{more[0]:,} hold it"
        elif hold:
            hint = f"{hold[-1]:,} are the most, of powers of two, that have layers and samples to share"
        raise EstimateError(
            f"--gpus: no split of the model and of batches of {found.batch_size:,} fits {gpus:,} x {gpu.name}", hint
        )
    return _of_step(gpu, model, found, step)


def _of_step(gpu: GpuSystem, model: GpuModel, found: Estimate, step: GpuStep) -> GpuEstimate:
    rate = found.batch_size * model.tokens / step.step_s
    days = None if found.tokens is None else found.tokens / rate / DAY_S
    flops = found.batch_size * model.sample_flops()
    return GpuEstimate(gpu, step, flops, rate, days)


def _doubled(gpu: GpuSystem) -> list[int]:
    """Numbers of GPUs: one, doubled until there are more than a cluster has."""
    most = min(MOST_GPUS, gpu.far.gpus)
    return [2**n for n in range(most.bit_length()) if 2**n <= most]


def _match(
    gpu: GpuSystem, model: GpuModel, found: Estimate
) -> tuple[GpuEstimate | None, tuple[int, float | None] | None]:
    """Return the fewest GPUs that are as fast as the wafers, of numbers that are doubled; and `Beside.fewer`."""
    fewer: tuple[int, float | None] | None = None
    for gpus in _doubled(gpu):
        step = best_split(gpu, model, found.batch_size, gpus)
        made = None if step is None else _of_step(gpu, model, found, step)
        if made is not None and made.tokens_per_s >= found.tokens_per_s:
            return made, fewer
        fewer = gpus, None if made is None else made.tokens_per_s
    return None, None


@dataclass(frozen=True)
class GpuResult:
    """A published step, and its value by the closed forms.

    Args:
        name: of the result
        source: where it stands
        unit: "s" or "TFLOP/s"
        published, predicted: the published value, and the model's
    """

    name: str
    source: str
    unit: str
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over published, less one."""
        return self.predicted / self.published - 1


@dataclass(frozen=True)
class GpuValidation:
    """Published steps beside the closed forms; this project fitted nothing to any."""

    results: tuple[GpuResult, ...]

    def errors(self, source: str | None = None) -> tuple[int, float, float, float]:
        """Number of results, the median, mean and largest error without signs; of one source, or of all."""
        found = [abs(each.error) for each in self.results if source in (None, each.source)]
        return len(found), median(found), mean(found), max(found)


def validate_gpus() -> GpuValidation:
    """Compare the closed forms with published results of A100s."""
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    gpu = load_gpu("a100")
    return GpuValidation(tuple(_result(entry, document, gpu) for entry in document["results"]))


def _result(entry: Mapping[str, Any], document: Mapping[str, Any], gpu: GpuSystem) -> GpuResult:
    hidden, layers, heads = document["models"][entry["model"]]
    words, tokens = 51_200, 2048
    parameters = 12 * layers * hidden * hidden + (words + tokens) * hidden
    model = GpuModel(hidden, layers, heads, hidden, 4 * hidden, False, words, tokens, parameters)
    split, batch_size = Split(*entry["split"]), entry["batch_size"]
    step_s = split_step(gpu, model, batch_size, split).step_s
    source = document["sources"][entry["source"]]
    if "seconds" in entry:
        return GpuResult(entry["name"], source, "s", entry["seconds"], step_s)
    # As its section 3.4 counts: forward, backward and forward again.
    of_layer = 1 + tokens / (6 * hidden) + words / (16 * layers * hidden)
    flops = 96 * batch_size * tokens * layers * hidden**2 * of_layer
    return GpuResult(entry["name"], source, "TFLOP/s", entry["tflops"], flops / step_s / split.gpus / 1e12)
