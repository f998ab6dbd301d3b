"""Published results beside the predictions of the model.

Each result of `plan/timing/published.yaml` names its conditions. A function here predicts each kind of quantity.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

import cstool.plan.timing
from cstool.foundation.errors import CompileError, EstimateError
from cstool.foundation.words import counted
from cstool.model.ir import MatMul
from cstool.model.params import Params, parse_params
from cstool.model.system import Fabric, System, load_system
from cstool.plan.estimation.bands import Band, Case, case_of
from cstool.plan.estimation.inference import infer_rows, make_infer_request
from cstool.plan.estimation.point import Estimate, Estimator
from cstool.plan.estimation.request import EstimateOptions, loader_of, make_request
from cstool.plan.estimation.software import choose_software
from cstool.plan.timing.cluster import step_of
from cstool.plan.timing.collectives import software_allreduce_cycles, wafer_allreduce_cycles
from cstool.plan.timing.mesh import matvec_cycles, mesh_allreduce_cycles, rounds_cycles
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.resident import tile
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
        return Case(
            "sums over PEs" if result.quantity == "allreduce_diameters_cycles" else "one PE", system=result.system
        )
    return case_of(_estimate(result))


def _params(result: Published) -> Params:
    """The params of a result's model; its batch is one sample where none is given."""
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
    batch = result.batch_per_csx or result.batch_size or 1
    loader: dict[str, Any] = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": ".", "batch_size": batch}
    if (predictions := shape.pop("max_predictions_per_seq", None)) is not None:
        length = shape["max_position_embeddings"]
        loader |= {"data_processor": "BertCSVDataProcessor", "max_predictions_per_seq": predictions}
        loader["max_sequence_length"] = length
    if result.micro_batch_size is not None:
        loader["micro_batch_size"] = result.micro_batch_size
    trainer = {"init": init, "fit": {"train_dataloader": loader}}
    return parse_params(yaml.safe_dump({"trainer": trainer}), result.name)


def _estimator(result: Published) -> Estimator:
    params = _params(result)
    options = EstimateOptions(result.system, result.batch_per_csx, execution_mode=result.execution_mode)
    system = _system(result)
    processor = loader_of(params).data_processor
    software = choose_software(system, result.software, result.workers, processor)
    request = replace(make_request(params, options), system=replace(system, software=software), tokens=result.tokens)
    return Estimator(request)


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


_KNOWN: dict[str, Estimate] = {}
"""estimates by the conditions of results: several quantities, and several results, ask for the same"""


def _estimate(result: Published) -> Estimate:
    """The estimate of a result, by its conditions alone."""
    words = {"says": "", "source": "", "status": "", "use": "", "quantity": "", "fits": "", "reason": ""}
    plain = replace(result, **words, published=1.0, assumed=(), first_error=None, relative_to=None)  # type: ignore[arg-type]
    key = repr(plain)
    if key not in _KNOWN:
        _KNOWN[key] = _estimator(plain).at(plain.num_csx)
    return _KNOWN[key]


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
    """Tokens a second of a single user on the fewest wafers that hold a model, and the largest part of the time."""
    lengths = {"prompt_tokens": result.prompt_tokens, "new_tokens": result.new_tokens}
    request = make_infer_request(_params(result), result.system, batches=(1,), **lengths)
    found = infer_rows(replace(request, system=_system(result)))[0].estimate
    assert found is not None
    return found.user_tokens_per_s, f"on {counted(found.wafers, 'wafer')}, most of the time for {found.bound}"


def _product_cycles(result: Published) -> tuple[float, str]:
    """A product of 16-bit operands on a square of PEs: two matrices, or a matrix and a vector, which is one token.

    All PEs of a line get the sums of a vector.
    """
    assert result.size is not None
    tokens, inputs, outputs = result.product
    pe = Pe(replace(_system(result), fabric=Fabric(result.size, result.size)), 16)
    if tokens > 1:
        return float(rounds_cycles(pe, tokens, inputs, outputs)), ""
    i, o, across = tile(pe, MatMul(1, inputs, outputs))
    return float(matvec_cycles(pe, i, o, users=1) + mesh_allreduce_cycles(pe, across, o, result.groups)), ""


def _allreduce_diameters(result: Published) -> tuple[float, str]:
    """An all-reduce of one element over all PEs, over the hops from one corner of the wafer to the other."""
    system = load_system(result.system)
    width, height = system.fabric.width, system.fabric.height
    diameter = (width + height - 2) * system.links.hop_cycles
    cycles = wafer_allreduce_cycles(system.links, width, height, 1)
    library = software_allreduce_cycles(system.links, width, height, 1)
    return cycles / diameter, f"{cycles:,} cycles for {diameter:,} hops; by chains to a corner {library:,}"


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
    "allreduce_diameters_cycles": _allreduce_diameters,
}
