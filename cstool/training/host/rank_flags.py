"""The flags of several ranks: their number, and the link between their hosts."""

import re
from math import isfinite

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import counted
from cstool.model.graphs import declared_form, trained_graph
from cstool.model.params import Params
from cstool.plan.estimation.request import loader_of
from cstool.training.host.ranks import Link
from cstool.training.machine.grains import check_systems, grain_count

_LINK = re.compile(
    r"(?P<rate>\d+(\.\d+)?) ?(?P<prefix>[kKmMgGtT]?)(?P<unit>bit|b|B)/s"
    r"(, ?(?P<latency>\d+(\.\d+)?) ?(?P<time>us|ms|s))?",
    re.ASCII,
)
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_link(text: str) -> Link:
    """A link as it is typed: its rate each way, in bits (b, bit) or bytes (B), and perhaps a latency.

    >>> parse_link("10Gb/s")
    Link(bytes_per_s=1250000000.0, latency_s=0.0, both_ways=True)
    >>> parse_link("12.5MB/s,5ms")
    Link(bytes_per_s=12500000.0, latency_s=0.005, both_ways=True)

    Raises:
        EstimateError: it is none
    """
    found = _LINK.fullmatch(text.strip())
    if found is not None:
        bits = 1 if found["unit"] == "B" else 8
        bytes_per_s = float(found["rate"]) * _PREFIXES[found["prefix"].upper()] / bits
        latency_s = 0.0 if found["latency"] is None else float(found["latency"]) * _TIMES[found["time"]]
        if bytes_per_s > 0 and isfinite(bytes_per_s) and isfinite(latency_s):
            return Link(bytes_per_s, latency_s)
    raise EstimateError(
        f"--link: must be a rate of bits (b) or bytes (B), perhaps with a latency, got {text}",
        "such as 10Gb/s, 1.25GB/s, or 1Gb/s,5ms",
    )


def check_ranks(params: Params, ranks: int) -> None:
    """Check that the systems can be shared out among ranks, so that each has something to do.

    Raises:
        EstimateError: there are fewer systems than ranks, or fewer grains in a batch; or the file has no batch
        ClusterError: the systems do not divide the batch
    """
    batch_size = loader_of(params).batch_size
    check_systems(params.num_csx, batch_size, f"{params.path}: trainer.fit.train_dataloader")
    if ranks > params.num_csx:
        raise EstimateError(
            f"--ranks: must be at most {params.num_csx:,}, the num_csx of {params.path}, got {ranks:,}",
            f"--set trainer.init.backend.cluster_config.num_csx=N, where N divides the batch_size, {batch_size:,}",
        )
    graph = trained_graph(params, declared_form(params))
    grains = grain_count(graph, batch_size)
    if ranks > grains:
        raise EstimateError(
            f"--ranks: must be at most {grains:,}, the grains of a batch of {counted(batch_size, 'sample')}, "
            f"got {ranks:,}",
            "a larger batch_size has more of them",
        )
