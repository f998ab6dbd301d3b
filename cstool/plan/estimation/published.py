"""Published results beside the predictions of the model.

Each result of `plan/timing/published.yaml` names its conditions. A function here predicts each kind of quantity.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import yaml

import cstool.plan.timing
from cstool.foundation.errors import CompileError, EstimateError
from cstool.model.params import parse_params
from cstool.model.system import System, load_system
from cstool.plan.estimation.bands import Band, Case, Known, band_from, case_of, without
from cstool.plan.estimation.point import Estimate, Estimator
from cstool.plan.estimation.published_inference import product_cycles, user_tokens_per_s
from cstool.plan.estimation.published_reduce import REDUCE_QUANTITIES
from cstool.plan.estimation.request import EstimateOptions, make_request
from cstool.plan.estimation.software import choose_software
from cstool.plan.timing.cluster import step_of
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.wafer import schedule_of

FILE = Path(cstool.plan.timing.__file__).parent / "published.yaml"
USES = ("fitted", "chosen", "held out", "host-bound", "headline")
PRODUCTS = "products over PEs"
"""kind of kernels that answer"""
HIDDEN_STEP = 12_800
"""widths that are tried for a layer that fits: whole heads, over all of them"""


@dataclass(frozen=True)
class Published:
    """One result, and the conditions under which it is predicted.

    Args:
        name: of the result
        says: the claim or the measurement
        source: where it stands
        status: "R1" read in the primary text or a raw log, "R2" second-hand
        use: "fitted", "chosen", "held out", "host-bound" or "headline"
        quantity: the quantity that is compared
        published: its value
        system: name
        num_csx: systems
        model: its section in a params file, and `sequence_length`; None where a quantity needs none
        batch_per_csx: samples of a system; None where `batch_size` is given
        batch_size: global; None where `batch_per_csx` is given
        execution_mode: "auto" or one of the two
        sparsity: share of zeros
        tokens: to train with
        size: of a matrix on one PE; of a square of PEs [PEs]
        product: tokens, inputs and outputs of a product on that square
        groups: parts of each line of PEs in a sum
        prompt_tokens, new_tokens: of a user's request and its answer
        micro_batch_size: of a system, where the source states it; None for the fastest
        software: release whose hosts feed the systems, of the releases in the system file; None for hosts that take no
            time
        workers: input workers of each system; None for the default number of a run
        fits: dotted key of the number of its system file that comes from it; "" for none
        numbers: dotted key of its system file -> a number in place of the file's
        flops_per_token: of training, as the source counts them, where it counts others than products that are useful
        relative_to: model, batch_per_csx, micro_batch_size and flops_per_token of the base of a utilization
        assumed: conditions that the source does not state
        reason: why the model is far off, where that is known
        first_error: of the model as it was when the result was added, before anything was changed for it; None for
            results that were known while the model was built
    """

    name: str
    says: str
    source: str
    status: str
    use: str
    quantity: str
    published: float
    system: str
    num_csx: int = 1
    model: Mapping[str, Any] | None = None
    batch_per_csx: int | None = None
    batch_size: int | None = None
    execution_mode: str = "auto"
    sparsity: float = 0.0
    tokens: int | None = None
    size: int | None = None
    product: Sequence[int] = ()
    groups: int | None = None
    prompt_tokens: int = 0
    new_tokens: int = 0
    micro_batch_size: int | None = None
    software: str | None = None
    workers: int | None = None
    fits: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    flops_per_token: float | None = None
    relative_to: Mapping[str, Any] | None = None
    assumed: Sequence[str] = ()
    reason: str = ""
    first_error: float | None = None

    @property
    def is_time(self) -> bool:
        """Whether the quantity grows with the time that something takes; else it is a rate, or as good as one."""
        return self.quantity.endswith(("cycles", "days", "_s")) and not self.quantity.endswith("_per_s")


@dataclass(frozen=True)
class Prediction:
    """A result, and its prediction by the model.

    Args:
        result: as published
        predicted: by the model; None if the model does not fit
        note: further results of the model, in words
        case: its features; None for claims
        band: four fifths of results like it, by the held-out ones but for itself; None for claims
    """

    result: Published
    predicted: float | None
    note: str = ""
    case: Case | None = None
    band: Band | None = None

    @property
    def error(self) -> float | None:
        """Predicted over published, less one."""
        return None if self.predicted is None else self.predicted / self.result.published - 1

    @property
    def log_time(self) -> float | None:
        """Logarithm of published over predicted time; None if nothing is predicted."""
        if self.predicted is None:
            return None
        log = math.log(self.predicted / self.result.published)
        return -log if self.result.is_time else log

    @property
    def range(self) -> tuple[float, float] | None:
        """The lowest and the highest value of four fifths of results like it; None without a band."""
        if self.predicted is None or self.band is None:
            return None
        of = self.band.of_time if self.result.is_time else self.band.of_rate
        return of(self.predicted)

    @property
    def is_within(self) -> bool:
        """Whether the published value is in the range that the other held-out results give."""
        return self.band is not None and self.log_time is not None and self.band.holds(self.log_time)


@dataclass(frozen=True)
class Errors:
    """Errors of the predictions.

    Args:
        count: of results
        median: of the errors without their signs
        average: of these
        largest: of these
        name: of the result with the largest
    """

    count: int
    median: float
    average: float
    largest: float
    name: str


def load_published() -> list[Published]:
    """The published results, models filled in."""
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    models = document["models"]

    def filled(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**entry, "model": models[entry["model"]]} if "model" in entry else entry

    results = []
    for entry in document["results"]:
        relative = entry.get("relative_to")
        results.append(Published(**{**filled(entry), "relative_to": None if relative is None else filled(relative)}))
    return results


def predict(result: Published) -> Prediction:
    """The modelled counterpart of a result."""
    try:
        predicted, note = QUANTITIES[result.quantity](result)
        case = _case(result)
    except (CompileError, EstimateError) as error:
        return Prediction(result, None, error.message)
    return Prediction(result, predicted, note, case)


def _case(result: Published) -> Case | None:
    """Features of a result, by which the range of an estimate is chosen; None for claims."""
    if result.use == "headline":
        return None
    if result.quantity == "user_tokens_per_s":
        return Case("inference", system=result.system)
    if result.quantity == "product_cycles":
        return Case(PRODUCTS, system=result.system)
    if result.model is None:
        return Case("sums over PEs" if result.quantity in REDUCE_QUANTITIES else "one PE", system=result.system)
    return case_of(_estimate(result))


@dataclass(frozen=True)
class Comparison:
    """Compare the model with all published results.

    Args:
        predictions: in the order of the file
        errors: of the results of each use that stands for how good the model is; None where none is predicted
        kinds: of the held-out results of each kind
        within: held-out results that are in the range that the others give
        first: errors of the model before it was changed for results that were added; None where there are none
    """

    predictions: tuple[Prediction, ...]
    errors: dict[str, Errors | None]
    kinds: dict[str, Errors]
    within: int
    first: Errors | None


@cache
def compare() -> Comparison:
    """Predict all published results, each with the range that the held-out ones give, but for itself."""
    found = tuple(map(predict, load_published()))
    known = known_of(found)
    predictions = tuple(
        each if each.case is None else replace(each, band=band_from(each.case, without(known, each.result.name)))
        for each in found
    )
    within = sum(each.is_within for each in predictions if each.result.use == "held out")
    errors = {use: errors_of(predictions, use) for use in USES if use != "headline"}
    kinds = {
        kind: off
        for kind in dict.fromkeys(each.case.kind for each in predictions if each.case is not None)
        if (off := errors_of([each for each in predictions if each.case and each.case.kind == kind], "held out"))
    }
    return Comparison(predictions, errors, kinds, within, first_errors([each.result for each in predictions]))


def first_errors(results: Iterable[Published]) -> Errors | None:
    """Return the errors that the model had when measured results were added, headlines left out; None without any."""
    return _errors((abs(r.first_error), r.name) for r in results if r.first_error is not None and r.use != "headline")


def known_of(predictions: Iterable[Prediction]) -> list[Known]:
    """Return features and errors of the held-out results, from which the errors of others are estimated.

    Kernels of answering are left out: their errors of a few percent would make all other ranges narrower.
    """
    return [
        Known(each.result.name, each.case, each.log_time)
        for each in predictions
        if each.result.use == "held out" and each.case is not None and each.log_time is not None
        if each.case.kind != PRODUCTS
    ]


def errors_of(predictions: Sequence[Prediction], use: str) -> Errors | None:
    """Return the errors of the results of one use; None if there are none."""
    return _errors((abs(p.error), p.result.name) for p in predictions if p.result.use == use and p.error is not None)


def _errors(sizes: Iterable[tuple[float, str]]) -> Errors | None:
    found = list(sizes)
    if not found:
        return None
    largest, name = max(found)
    return Errors(len(found), median(error for error, _ in found), mean(error for error, _ in found), largest, name)


def _estimator(result: Published) -> Estimator:
    shape = dict(result.model or {})
    shape["max_position_embeddings"] = shape.pop("sequence_length")
    init: dict[str, Any] = {
        "model": shape,
        "optimizer": {"AdamW": {"learning_rate": 1e-4}},
        "precision": {"max_gradient_norm": 1.0},
        "loop": {"max_steps": 1},
    }
    if result.sparsity:
        init["sparsity"] = result.sparsity
    batch = result.batch_per_csx or result.batch_size
    loader: dict[str, Any] = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": ".", "batch_size": batch}
    if (predictions := shape.pop("max_predictions_per_seq", None)) is not None:
        length = shape["max_position_embeddings"]
        loader |= {"data_processor": "BertCSVDataProcessor", "max_predictions_per_seq": predictions}
        loader["max_sequence_length"] = length
    if result.micro_batch_size is not None:
        loader["micro_batch_size"] = result.micro_batch_size
    trainer = {"init": init, "fit": {"train_dataloader": loader}}
    params = parse_params(yaml.safe_dump({"trainer": trainer}), result.name)
    options = EstimateOptions(result.system, result.batch_per_csx, execution_mode=result.execution_mode)
    request = make_request(params, options)
    system = _system(result)
    software = choose_software(system, result.software, result.workers, loader["data_processor"])
    return Estimator(replace(request, system=replace(system, software=software), tokens=result.tokens))


def _system(result: Published) -> System:
    """The system of a result, with the numbers that it says are others."""
    system = load_system(result.system)
    for key, number in result.numbers.items():
        system = _with_number(system, _names(key), number)
    return system


def number_of(system: System, key: str) -> float:
    """Return the number of a system file that has this dotted key."""
    value: Any = system
    for name in _names(key):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return float(value)


def _names(key: str) -> list[str]:
    """Names of a dotted key; the name of a release has a dot of its own."""
    return re.sub(r"releases\.(\d+)\.(\d+)", r"releases.\1:\2", key).replace(".", "/").replace(":", ".").split("/")


def _with_number(part: Any, names: Sequence[str], number: float) -> Any:
    """Return a part of a system of which one number is another."""
    if not names:
        return number
    name, *rest = names
    if isinstance(part, Mapping):
        return {**part, name: _with_number(part[name], rest, number)}
    return replace(part, **{name: _with_number(getattr(part, name), rest, number)})


def _estimate(result: Published) -> Estimate:
    """The estimate of a result; several of its quantities, and several results, ask for the same."""
    words = {"says": "", "source": "", "status": "", "use": "", "quantity": "", "fits": "", "reason": ""}
    plain = replace(result, **words, published=1.0, assumed=(), first_error=None)  # type: ignore[arg-type]
    return _estimate_once(_Conditions(replace(plain, relative_to=None)))


@dataclass(frozen=True)
class _Conditions:
    """A result of which conditions alone count; equal ones have equal words."""

    result: Published

    def __hash__(self) -> int:
        return hash(repr(self.result))


@lru_cache(maxsize=256)
def _estimate_once(conditions: _Conditions) -> Estimate:
    return _estimator(conditions.result).at(conditions.result.num_csx)


def _samples_per_s(result: Published) -> tuple[float, str]:
    found = _estimate(result)
    return found.samples_per_s, f"{found.share_of_peak:.0%} of the peak, bound by {found.bound}"


def _forward_samples_per_s(result: Published) -> tuple[float, str]:
    found = _estimator(replace(result, execution_mode="weight_streaming")).at(result.num_csx)
    schedule = schedule_of(found.artifact, found.update_ops)
    forward: dict[str, Any] = {
        "delta_s": 0.0,
        "gradient_s": 0.0,
        "gradient_bytes": 0,
        "weights": 0,
        "streams_for_delta": False,
    }
    sections = tuple(
        replace(section, ops=tuple(replace(op, **forward) for op in section.ops), recomputes=0)
        for section in schedule.sections
    )
    step = step_of(replace(schedule, sections=sections, cluster=replace(schedule.cluster, waits_for_norm=False)))
    return found.artifact.batch_size / step.seconds, ""


def _relative_utilization(result: Published) -> tuple[float, str]:
    assert result.relative_to is not None
    base = replace(result, num_csx=1, relative_to=None, **result.relative_to)
    assert result.flops_per_token is not None
    assert base.flops_per_token is not None
    ours, theirs = _estimate(result), _estimate(base)
    counted = [
        found.tokens_per_s / found.num_csx * per_token
        for found, per_token in ((ours, result.flops_per_token), (theirs, base.flops_per_token))
    ]
    return (
        counted[0] / counted[1],
        f"{ours.share_of_peak:.0%} over {theirs.share_of_peak:.0%} of the peak by useful products",
    )


def _speedup(result: Published) -> tuple[float, str]:
    estimator = _estimator(result)
    one, many = estimator.at(1), estimator.at(result.num_csx)
    speedup = many.samples_per_s / one.samples_per_s
    return speedup, f"{speedup / result.num_csx:.1%} of linear, steps of {many.step_s:,.3g} s"


def _sparse_speedup(result: Published) -> tuple[float, str]:
    dense, sparse = _estimate(replace(result, sparsity=0.0)), _estimate(result)
    left = dense.flops / sparse.flops
    return sparse.samples_per_s / dense.samples_per_s, f"products alone would allow {left:.1f}x"


def _days(result: Published) -> tuple[float, str]:
    found = _estimate(result)
    assert found.days is not None
    return found.days, f"{found.flops_per_s / 1e18:.3g} EFLOP/s, {found.share_of_peak:.0%} of the peak"


def _parameters(result: Published) -> tuple[float, str]:
    found = _estimate(result)
    need, memoryx = found.artifact.memoryx, found.artifact.system.memoryx
    assert memoryx is not None
    per_weight = need.total_bytes / found.artifact.graph.parameter_count
    return (
        memoryx.capacity_bytes / per_weight,
        f"MemoryX takes {per_weight:.3g} bytes per weight; a step of one sample takes {found.step_s:,.3g} s",
    )


def _hidden_size(result: Published) -> tuple[float, str]:
    rest = dict(result.model or {})
    head_width = rest.pop("head_width")

    def fits(width: int) -> bool:
        shape = rest | {"hidden_size": width, "filter_size": 4 * width, "num_heads": width // head_width}
        try:
            _estimate(replace(result, model=shape))
        except CompileError:
            return False
        return True

    width = 0
    while fits(width + HIDDEN_STEP):
        width += HIDDEN_STEP
    return float(width), f"in steps of {HIDDEN_STEP:,}"


def _peak_flops(result: Published) -> tuple[float, str]:
    system = load_system(result.system)
    each = system.peak_flops(16)
    return result.num_csx * each, f"{each / 1e15:.1f} PFLOP/s each"


def _matvec_cycles(result: Published) -> tuple[float, str]:
    assert result.size is not None
    cycles = Pe(load_system(result.system), 32).matvec_cycles(result.size, result.size)
    return float(cycles), "columns one after the other, efficiency left out"


def _user_tokens_per_s(result: Published) -> tuple[float, str]:
    assert result.model is not None
    return user_tokens_per_s(result.model, _system(result), result.prompt_tokens, result.new_tokens)


def _product_cycles(result: Published) -> tuple[float, str]:
    assert result.size is not None
    return product_cycles(_system(result), result.size, result.product, result.groups), ""


QUANTITIES: Mapping[str, Callable[[Published], tuple[float, str]]] = {
    "samples_per_s": _samples_per_s,
    "forward_samples_per_s": _forward_samples_per_s,
    "relative_utilization": _relative_utilization,
    "speedup": _speedup,
    "sparse_speedup": _sparse_speedup,
    "days": _days,
    "parameters": _parameters,
    "hidden_size": _hidden_size,
    "peak_flops": _peak_flops,
    "matvec_cycles": _matvec_cycles,
    "user_tokens_per_s": _user_tokens_per_s,
    "product_cycles": _product_cycles,
    **REDUCE_QUANTITIES,
}
