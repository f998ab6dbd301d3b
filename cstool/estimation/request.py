"""What an estimate is asked for: which systems, how many, which batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cstool.batch_split import nearest_divisors
from cstool.errors import EstimateError
from cstool.params import DataloaderParams, Params
from cstool.system import System, load_system, system_names

UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
COUNT_UNITS = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
EXAMPLE_COUNTS = "such as 4, or 1,2,4..192, where .. doubles"


@dataclass(frozen=True)
class Request:
    """What to estimate.

    Args:
        params: checked params
        system: what each CSX is
        batch_per_csx: samples of a system, however many there are; None shares the batch of the file out
        execution_mode: "auto", "pipelined" or "weight_streaming"
        recompute: "needed" or "fastest"
        memoryx_bytes: capacity of MemoryX; None is the largest of the system
        tokens: to train with; None if nobody asks how long that takes
    """

    params: Params
    system: System
    batch_per_csx: int | None = None
    execution_mode: str = "auto"
    recompute: str = "fastest"
    memoryx_bytes: int | None = None
    tokens: int | None = None

    @property
    def batch_size(self) -> int:
        """Global, as the file has it."""
        return loader_of(self.params).batch_size


def make_request(
    params: Params,
    system_name: str,
    *,
    batch_per_csx: int | None = None,
    execution_mode: str = "auto",
    recompute: str = "fastest",
    memoryx: str | None = None,
    tokens: str | None = None,
) -> Request:
    """Return a request, checked.

    Args:
        params: checked params
        system_name: a known name, or the path of a system file
        batch_per_csx: samples of a system, however many there are; None shares the batch of the file out
        execution_mode: "auto", "pipelined" or "weight_streaming"
        recompute: "needed" or "fastest"
        memoryx: capacity of MemoryX, such as "12TB"
        tokens: to train with, such as "300B"

    Raises:
        EstimateError: the file has no batch, or a size is not one
        ParamsError: there is no such system
    """
    loader_of(params)
    system = load_system(system_name)
    capacity = None if memoryx is None else _size("--memoryx", memoryx, UNITS, "12TB")
    if capacity is not None:
        system = _with_capacity(system, capacity)
    wanted = None if tokens is None else parse_tokens(tokens)
    return Request(params, system, batch_per_csx, execution_mode, recompute, capacity, wanted)


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
    """Return a number of tokens, such as `300B`.

    Raises:
        EstimateError: it is none, or zero
    """
    return _size("--tokens", text, COUNT_UNITS, "300B")


def _with_capacity(system: System, capacity: int) -> System:
    if system.memoryx is None:
        raise EstimateError(f"--memoryx: must be left out: {system.name} has no MemoryX", "cs2 and cs3 have it")
    return replace(system, memoryx=replace(system.memoryx, capacity_bytes=capacity, units_bytes=(capacity,)))


def _size(flag: str, text: str, units: dict[str, int], example: str) -> int:
    """Return a number with a unit, such as 300B or 1.5TB, as a whole number."""
    number, factor = text.strip(), 1
    for unit in sorted(units, key=len, reverse=True):
        if number.upper().endswith(unit):
            number, factor = number[: -len(unit)], units[unit]
            break
    try:
        value = round(float(number.replace("_", "").replace(",", "")) * factor)
    except (ValueError, OverflowError):
        raise EstimateError(f"{flag}: must be a number, such as {example}, got {text}") from None
    if value < 1:
        raise EstimateError(f"{flag}: must be more than zero, such as {example}, got {text}")
    return value


def parse_counts(text: str) -> list[int]:
    """Return the numbers of systems of `1,2,4..192`: listed ones, and from `a..b` a, doubled until b, and b.

    >>> parse_counts("1,2,4..192")
    [1, 2, 4, 8, 16, 32, 64, 128, 192]

    Args:
        text: as typed

    Raises:
        EstimateError: it is nothing of the kind
    """
    found: list[int] = []
    for part in text.split(","):
        ends = part.strip().split("..")
        if len(ends) > 2 or not all(end.isdecimal() and int(end) for end in ends):
            raise EstimateError(f"--num_csx: must be numbers of systems, got {text}", EXAMPLE_COUNTS)
        first, last = int(ends[0]), int(ends[-1])
        if first > last:
            raise EstimateError(f"--num_csx: must go up in {part.strip()}, got {text}", EXAMPLE_COUNTS)
        while first < last:
            found.append(first)
            first *= 2
        found.append(last)
    return sorted(set(found))


def parse_sparsities(text: str) -> list[float]:
    """Return the shares of zeros of `0,0.5,0.9`, ascending.

    Raises:
        EstimateError: one of them is not from 0 to below 1
    """
    found = []
    for part in text.split(","):
        try:
            share = float(part)
        except ValueError:
            share = -1.0
        if not 0.0 <= share < 1.0:
            rule = "must be shares of zeros from 0 to below 1"
            raise EstimateError(f"--sparsity: {rule}, got {part.strip()}", "such as 0,0.5,0.9")
        found.append(share)
    return sorted(set(found))


def samples_per_csx(request: Request, num_csx: int, *, is_alone: bool = True) -> int:
    """Return the samples of each of so many systems.

    Args:
        request: with the batch
        num_csx: systems
        is_alone: whether no other number is asked for; else only the cluster must have so many

    Raises:
        EstimateError: the systems do not divide the batch, or are more than a cluster has
    """
    if num_csx > request.system.max_systems:
        raise EstimateError(
            f"--num_csx: must be at most {request.system.max_systems:,}, the systems of a cluster of "
            f"{request.system.name}, got {num_csx:,}",
            _larger_cluster(num_csx),
        )
    if num_csx > 1 and request.system.swarmx is None:
        raise EstimateError(f"--num_csx: must be 1: {request.system.name} has no SwarmX, got {num_csx:,}")
    if request.batch_per_csx is not None:
        return request.batch_per_csx
    if request.batch_size % num_csx and is_alone:
        nearest = nearest_divisors(request.batch_size, num_csx)
        raise EstimateError(
            f"--num_csx: must divide batch_size ({request.batch_size:,}), got {num_csx:,}",
            f"{nearest}; --batch_per_csx gives each system a batch of its own",
        )
    return request.batch_size // num_csx


def _larger_cluster(num_csx: int) -> str | None:
    larger = [name for name in system_names() if load_system(name).max_systems >= num_csx]
    return f"--system {larger[0]} has clusters of that size" if larger else None
