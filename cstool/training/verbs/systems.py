"""The machines that models are compiled for, number by number: the verbs behind `cstool system`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from cstool.model.system import System


_INSTRUCTIONS = ("avx2", "fma", "avx512f", "avx512bf16", "amx-bf16")
"""as LLVM names them"""


class DescribedSystem(NamedTuple):
    """A system and the source of each of its numbers.

    Args:
        system: all of it
        numbers: dotted key, value, status and source of each
        statuses: the statuses that occur, the surest first, and their meanings
        derived: numbers that follow from these: meaning, value, unit
    """

    system: System
    numbers: tuple[tuple[str, Any, str, str], ...]
    statuses: dict[str, str]
    derived: tuple[tuple[str, float, str], ...]


class HostProvider(NamedTuple):
    """A provider of matrix products, on this host or missing.

    Args:
        precision: of the operands
        speed: of one thread, over NumPy's in float32, measured just now; None where it is not here, or NumPy's own
        reason: its instructions, or the reason that it is not here
    """

    name: str
    precision: str
    is_here: bool
    speed: float | None
    reason: str


class DescribedHost(NamedTuple):
    """The abilities of this host for products of matrices.

    Args:
        cpu: as LLVM names it
        cores: that this process may use
        instructions: of the CPU that matter for products
        providers: by precision, the one that a run takes first
        timed: products of models that began here: train or eval and shapes (tokens x outputs x inputs, each with its
            share in the work); speeds of providers over NumPy's, by name
    """

    cpu: str
    cores: int
    instructions: tuple[str, ...]
    providers: tuple[HostProvider, ...]
    timed: tuple[tuple[str, dict[str, float]], ...] = ()


def known_systems() -> list[System]:
    """Load the systems that need no file of one's own."""
    from cstool.model.system import load_system, system_names

    return [load_system(name) for name in system_names()]


def describe_system(name: str) -> DescribedSystem:
    """Describe a system: every number, how sure it is, its source, and the numbers derived from it.

    Args:
        name: cs1, cs2, cs3, or a system file

    Raises:
        ParamsError: there is no such system, or the file breaks rules
    """
    from cstool.model.system import STATUSES, load_system

    system = load_system(name)
    numbers = tuple((key, _value(system, key), status, source) for key, (status, source) in system.sources.items())
    used = {status for _, _, status, _ in numbers}
    return DescribedSystem(
        system, numbers, {key: said for key, said in STATUSES.items() if key in used}, _derived(system)
    )


def describe_host() -> DescribedHost:
    """Describe this host: its CPU, and the providers of matrix products by precision."""
    from llvmlite import binding

    from cstool.training.kernels.fastest import measurements
    from cstool.training.kernels.gemm import NUMPY
    from cstool.training.kernels.gemm_providers import PRECISIONS, found_providers, speed_against_numpy
    from cstool.training.machine.grains import available_cores

    features = binding.get_host_cpu_features()
    return DescribedHost(
        binding.get_host_cpu_name(),
        available_cores(),
        tuple(name for name in _INSTRUCTIONS if features.get(name)),
        tuple(
            HostProvider(
                found.name,
                precision,
                found.gemm is not None,
                speed_against_numpy(found.name) if found.gemm not in (None, NUMPY) else None,
                found.reason,
            )
            for precision in PRECISIONS
            for found in found_providers(precision)
        ),
        tuple(measurements()),
    )


def _value(system: System, key: str) -> Any:
    """Read the number at a dotted key of a system."""
    found: Any = system
    parts = key.split(".")
    while parts:
        names = list(getattr(found, "keys", tuple)())
        # The name of a release has a dot of its own.
        taken = next((n for n in (2, 1) if ".".join(parts[:n]) in names), 0)
        found = found[".".join(parts[:taken])] if taken else getattr(found, parts[0])
        parts = parts[taken or 1 :]
    return found


def _derived(system: System) -> tuple[tuple[str, float, str], ...]:
    pes, pe, clock = system.fabric.pes, system.pe, system.clock_hz
    return (
        ("PEs that programs can use", pes, "PEs"),
        ("SRAM of all of them", pes * pe.sram_bytes, "B"),
        ("of it left by code and stack", pes * pe.free_bytes, "B"),
        ("16-bit multiply-adds, two operations each", system.peak_flops(16), "FLOP/s"),
        ("32-bit multiply-adds, two operations each", system.peak_flops(32), "FLOP/s"),
        ("reads and writes of SRAM", pes * (pe.read_bytes_per_cycle + pe.write_bytes_per_cycle) * clock, "B/s"),
        ("one link, each direction", system.links.wavelet_bytes * clock, "B/s"),
    )
