"""The request of an estimate: systems, their number, the batch."""

from dataclasses import dataclass, replace

from cstool.foundation.errors import EstimateError
from cstool.foundation.words import BYTE_UNITS, parse_quantity
from cstool.model.batch_split import nearest_divisors
from cstool.model.params import DataloaderParams, Params
from cstool.model.params.sections.tuning import parse_tuning
from cstool.model.system import System, load_system, system_names
from cstool.plan.compiler.compile import GraphOptions
from cstool.plan.estimation.software import choose_software, workers_of_file

COUNT_UNITS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True)
class Request:
    """Request of an estimate.

    Args:
        params: checked params
        system: kind of each CSX
        batch_per_csx: samples of a system, however many there are; None shares the batch of the file out
        execution_mode: "auto", "pipelined" or "weight_streaming"
        recompute: "needed" or "fastest"
        tokens: to train with; None where training time is not asked for
        expert_imbalance: tokens of the busiest expert of each layer, as a multiple of the mean
    """

    params: Params
    system: System
    batch_per_csx: int | None = None
    execution_mode: str = "auto"
    recompute: str = "fastest"
    tokens: int | None = None
    expert_imbalance: float = 1.0

    @property
    def of_graph(self) -> GraphOptions:
        """The options of a compilation that decide on the graph."""
        return {"expert_imbalance": self.expert_imbalance}

    @property
    def batch_size(self) -> int:
        """Global batch size of the file."""
        return loader_of(self.params).batch_size


@dataclass(frozen=True)
class EstimateOptions:
    """The options of an estimate, as they are typed.

    Args:
        system: kind of each CSX: a known name, or the path of a system file
        batch_per_csx, execution_mode, recompute, expert_imbalance: see `Request`
        memoryx: capacity of MemoryX, such as "12TB"; None for the largest there is
        tokens: to train with, such as "300B"; None where training time is not asked for
        software: release whose hosts feed the systems, such as "2.0"; None for hosts that take no time
        num_workers_per_csx: input workers of each system; None for the params file's number, or else the default of a
            run
        frozen: weights that stay as they are, such as "first:16"; None leaves them to the file
        adapters: beside frozen layers, such as "rank=16,layers=q,v"; None leaves them to the file
    """

    system: str = "cs2"
    batch_per_csx: int | None = None
    memoryx: str | None = None
    tokens: str | None = None
    execution_mode: str = "auto"
    recompute: str = "fastest"
    expert_imbalance: float = 1.0
    software: str | None = None
    num_workers_per_csx: int | None = None
    frozen: str | None = None
    adapters: str | None = None


def make_request(params: Params, asked: EstimateOptions) -> Request:
    """A request, checked.

    Raises:
        EstimateError: the file has no batch, a size is not one, or experts cannot be so uneven; nothing is known of
            the release on this system
        ParamsError: there is no such system; frozen weights or adapters are not written as they should be
    """
    if tuning := parse_tuning(asked.frozen, asked.adapters):
        params = replace(params, tuning=tuning)
    loader = loader_of(params)
    _check_imbalance(params, asked.expert_imbalance)
    system = load_system(asked.system)
    if asked.memoryx is not None:
        size = _size("--memoryx", asked.memoryx, BYTE_UNITS, "12TB")
        if system.memoryx is None:
            raise EstimateError(f"--memoryx: must be left out: {system.name} has no MemoryX", "cs2 and cs3 have it")
        system = replace(system, memoryx=replace(system.memoryx, capacity_bytes=size, units_bytes=(size,)))
    workers = asked.num_workers_per_csx
    if asked.software is not None and workers is None:
        workers = workers_of_file(params)
    return Request(
        params,
        replace(system, software=choose_software(system, asked.software, workers, loader.data_processor)),
        asked.batch_per_csx,
        asked.execution_mode,
        asked.recompute,
        None if asked.tokens is None else parse_tokens(asked.tokens),
        asked.expert_imbalance,
    )


def _check_imbalance(params: Params, imbalance: float) -> None:
    if imbalance == 1:
        return
    moe = getattr(params.model, "moe", None)
    if moe is None or not moe.is_mixture:
        raise EstimateError(
            f"--expert_imbalance: must be left out: {params.model.name} of {params.path} has no mixture of experts"
        )
    # The busiest has all tokens then.
    most = moe.num_experts / moe.top_k
    if not 1 <= imbalance <= most:
        raise EstimateError(
            f"--expert_imbalance: must be from 1 to {most:g}, where one of {moe.num_experts} experts has all tokens, "
            f"each of which meets {moe.top_k}; got {imbalance:g}"
        )


def loader_of(params: Params) -> DataloaderParams:
    """Return the dataloader whose batches are estimated.

    Raises:
        EstimateError: the file has none
    """
    loader = params.compiled_dataloader
    if loader is None:
        raise EstimateError(
            f"{params.path}: trainer.fit.train_dataloader is missing: its batch_size is what a step is",
            "--set trainer.fit.train_dataloader.batch_size=N gives one, with its data_processor and data_dir",
        )
    return loader


def parse_tokens(text: str) -> int:
    """A number of tokens, such as `300B`.

    Raises:
        EstimateError: it is none, or zero
    """
    return _size("--tokens", text, COUNT_UNITS, "300B")


def _size(flag: str, text: str, units: dict[str, int], example: str) -> int:
    """Return a number with a unit, such as 300B or 1.5TB, as a whole number."""
    value = parse_quantity(text, units)
    if value is None:
        raise EstimateError(f"{flag}: must be a number, such as {example}, got {text}")
    if round(value) < 1:
        raise EstimateError(f"{flag}: must be more than zero, such as {example}, got {text}")
    return round(value)


def samples_per_csx(request: Request, num_csx: int, *, is_alone: bool = True) -> int:
    """Return the samples of each of so many systems.

    Args:
        request: with the batch
        num_csx: systems
        is_alone: whether no other number is asked for; else only the cluster must have so many

    Raises:
        EstimateError: the systems do not divide the batch, or are more than a cluster has
    """
    system = request.system
    if num_csx > system.max_systems:
        larger = [name for name in system_names() if load_system(name).max_systems >= num_csx]
        raise EstimateError(
            f"--num_csx: must be at most {system.max_systems:,}, the systems of a cluster of {system.name}, "
            f"got {num_csx:,}",
            f"--system {larger[0]} has clusters of that size" if larger else None,
        )
    if num_csx > 1 and system.swarmx is None:
        raise EstimateError(f"--num_csx: must be 1: {system.name} has no SwarmX, got {num_csx:,}")
    if request.batch_per_csx is not None:
        return request.batch_per_csx
    if request.batch_size % num_csx and is_alone:
        nearest = nearest_divisors(request.batch_size, num_csx)
        raise EstimateError(
            f"--num_csx: must divide batch_size ({request.batch_size:,}), got {num_csx:,}",
            f"{nearest}; --batch_per_csx gives each system a batch of its own",
        )
    return request.batch_size // num_csx
