"""Faster alternatives to an estimate: a smaller batch, or fewer systems.

All micro-batches of a step have one layout: whole samples in each group of columns, whole tokens on each PE, and the
cycles of the fullest PE. So one more sample may add a token to all PEs, or a micro-batch to the step.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from cstool.foundation.errors import CompileError, EstimateError
from cstool.model.batch_split import divisors
from cstool.model.ir import OpKind
from cstool.plan.estimation.point import Estimate, Estimator, estimate_of
from cstool.plan.timing.micro_batches import all_shares
from cstool.plan.timing.pe import Pe, ceil_div

WORTH = 1.01
"""smallest ratio of rates at which an alternative is reported as faster"""
TRIED = 3
"""number of smaller batches to try (chosen)"""


def smaller_batch(estimator: Estimator, found: Estimate) -> Estimate | None:
    """Return the estimate of a smaller batch on the same systems, at a rate over 1 % higher; None if none is found.

    Only batches that fill the layout of the estimate are tried; the fastest is returned. None, too, where the file sets
    the size of micro-batches, which must divide the batch.

    Args:
        estimator: maker of the estimate
        found: the estimate
    """
    request, num_csx = estimator.request, found.num_csx

    def at(samples: int) -> Estimate:
        return estimate_of(request, estimator.compiled(samples, request.execution_mode, num_csx=num_csx))

    if request.params.micro_batch_size is not None:
        return None
    asked = f"smaller batch {found.samples_per_csx} {request.execution_mode} {num_csx}"
    return _kept_best(estimator, asked, at, found, lambda: _filling(found))


def fewer_systems(estimator: Estimator, found: Estimate) -> Estimate | None:
    """Return the estimate of fewer systems with the same batch, at a rate over 1 % higher; None if none is found.

    None, too, where the batch is given per system.

    Args:
        estimator: maker of the estimate
        found: the estimate
    """
    request, batch_size = estimator.request, found.batch_size
    if request.batch_per_csx is not None:
        return None
    asked = f"fewer systems {batch_size} {request.execution_mode} {found.num_csx}"
    # No system beats its peak.
    least = WORTH * found.num_csx * found.share_of_peak
    counts = [count for count in _halvings(batch_size, found.num_csx) if count >= least]
    return _kept_best(estimator, asked, estimator.at, found, lambda: counts)


def _halvings(batch_size: int, num_csx: int) -> list[int]:
    """Return the next smaller divisor of the batch, then the largest up to a half of the systems, a quarter, and so on.

    >>> _halvings(12, 12), _halvings(200, 50)
    ([6, 3, 1], [40, 25, 10, 5, 2, 1])
    """
    fewer = [count for count in divisors(batch_size) if count < num_csx]
    ends = (num_csx - 1, *(num_csx >> shift for shift in range(1, num_csx.bit_length())))
    return list(dict.fromkeys(max(count for count in fewer if count <= end) for end in ends if end))


def _kept_best(
    estimator: Estimator,
    asked: str,
    at: Callable[[int], Estimate],
    found: Estimate,
    labels: Callable[[], Iterable[int]],
) -> Estimate | None:
    """Return the fastest estimate over the labels if it is faster than `found`, else None; its label is kept."""
    tried: dict[int, Estimate] = {}

    def search() -> int:
        best, rate = 0, WORTH * found.samples_per_s
        for label in labels():
            try:
                tried[label] = at(label)
            except (CompileError, EstimateError):
                continue
            if (new := tried[label].samples_per_s) > rate:
                best, rate = label, new
        return best

    label = int(estimator.kept_number(asked, search))
    return (tried.get(label) or at(label)) if label else None


def _filling(found: Estimate) -> list[int]:
    """Return smaller numbers of samples per system that fill a step: the most promising ones, and the largest.

    In pipelined mode each replica has whole samples.
    """
    artifact, samples = found.artifact, found.samples_per_csx
    if (placed := artifact.pipelined) is not None:
        replicas = placed.replicas[0] * placed.replicas[1]
        return [samples - samples % replicas] if samples > replicas and samples % replicas else []
    plan = artifact.streaming
    assert plan is not None
    micro_batches, products = plan.micro_batches, _Products(found)
    sizes: set[int] = set()
    for count in range(max(1, micro_batches - 1), micro_batches + 1):
        sizes.update(products.filling(most=(samples - 1) // count))
    rates = {size: rate for size in sizes if (rate := products.rate(size)) > WORTH * products.now}
    tried = sorted(rates, key=lambda size: (size <= artifact.micro_batch_size, rates[size], size), reverse=True)[:TRIED]
    # Products are not all of the time. The largest is closest to the request; others as large hardly fit.
    if rates and max(rates) not in tried:
        tried[-1] = max(rates)
    return [size * min(micro_batches, (samples - 1) // size) for size in tried]


class _Products:
    """Cycles of products with weights: most of a step, and the only criterion for batches that are worth a try.

    Args:
        found: estimate with weights streamed
    """

    def __init__(self, found: Estimate) -> None:
        artifact = found.artifact
        assert artifact.streaming is not None
        layout = artifact.streaming.layout
        self._pe, self._fabric = Pe(artifact.system, artifact.operand_bits), artifact.system.fabric
        self._tokens = artifact.tokens
        self._outputs: Counter[int] = Counter()
        """inputs of a matrix -> sum of outputs over all matrices with that number of inputs"""
        for segment in artifact.graph.segments:
            linear = {op.weights[0] for op in segment.ops if op.kind is OpKind.LINEAR}
            for weight in segment.weights:
                if weight.name in linear:
                    outputs, inputs = weight.shape
                    self._outputs[inputs] += segment.count * outputs
        self.now = artifact.micro_batch_size / self._cycles(layout.columns, layout.tokens_per_pe)
        """samples per cycle in the layout of the estimate, up to a factor"""

    def rate(self, size: int) -> float:
        """Return samples per cycle with micro-batches of a size, for the best number of groups, up to a factor."""
        return size / min(
            self._cycles(self._fabric.width // groups, self._per_pe(size, groups)) for groups in self._groups(size)
        )

    def filling(self, most: int) -> Iterator[int]:
        """Yield sizes of micro-batches, up to `most`, that fill groups of columns, or PEs with tokens."""
        for groups in self._groups(most):
            yield most - most % groups
            # The samples of the number of tokens per PE that has the best rate.
            tokens = range(1, self._per_pe(most, groups) + 1)
            best = max(tokens, key=lambda each: (each / self._pe.axpy_cycles(each, is_apart=True), each))
            if 0 < (size := groups * (best * self._fabric.height // self._tokens)) <= most:
                yield size

    def _groups(self, size: int) -> list[int]:
        return [count for count in all_shares(size, size) if count <= self._fabric.width] if size else []

    def _cycles(self, columns: int, tokens_per_pe: int) -> int:
        """Cycles of a micro-batch: each weight of a PE takes an AXPY over its tokens."""
        weights = sum(outputs * ceil_div(inputs, columns) for inputs, outputs in self._outputs.items())
        return int(max(1, weights) * self._pe.axpy_cycles(tokens_per_pe, is_apart=True))

    def _per_pe(self, size: int, groups: int) -> int:
        """Number of tokens per PE."""
        return int(ceil_div(int(ceil_div(size, groups)) * self._tokens, self._fabric.height))
