"""System files: the YAML of the three known systems, and files of one's own, which may start from one of them."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import Field

from cstool.errors import ParamsError
from cstool.system.system import Fabric, Links, MemoryXUnit, ProcessingElement, SwarmXUnit, System
from cstool.words import did_you_mean
from cstool.yaml_lines.document import Document, read_document
from cstool.yaml_lines.problems import Problems
from cstool.yaml_lines.section import List, Section

FOLDER = Path(__file__).parent / "systems"
MOST_PES = 10_000
"""along a side of a wafer: ten times those there are, and tables still fit"""
MOST = 10**6
"""of anything that a PE or a link counts: products of it with sizes of tensors still fit 64 bits"""
MOST_PE_BYTES = 10**9
MOST_BYTES = 10**18
LARGEST = 1e30
"""of what is no count"""
STATUSES: Mapping[str, str] = {
    "R1": "read in the primary text or a raw data file",
    "R2": "read second-hand",
    "D": "derived from other numbers",
    "X": "recalled, nothing better is known",
    "C": "chosen by this project, nothing is published",
    "F": "fitted to one published result",
}
"""how sure a number is"""
Status = Literal["R1", "R2", "D", "X", "C", "F"]


T = TypeVar("T")


class _Sourced(Section, Generic[T]):
    value: T
    status: Status
    source: Annotated[str, Field(min_length=1)]


_Count = _Sourced[Annotated[int, Field(ge=1, le=MOST)]]
_Sram = _Sourced[Annotated[int, Field(ge=1, le=MOST_PE_BYTES)]]
_PeBytes = _Sourced[Annotated[int, Field(ge=0, le=MOST_PE_BYTES)]]
_Bytes = _Sourced[Annotated[int, Field(ge=1, le=MOST_BYTES)]]
_Side = _Sourced[Annotated[int, Field(ge=1, le=MOST_PES)]]
_Whole = _Sourced[Annotated[int, Field(ge=0, le=MOST)]]
_Positive = _Sourced[Annotated[float, Field(gt=0, le=LARGEST)]]
_Share = _Sourced[Annotated[float, Field(ge=0.001, le=1)]]
_Counts = _Sourced[Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_BYTES)], ...], List, Field(min_length=1)]]


class _FabricSection(Section):
    width: _Side
    height: _Side


class _SimdSection(Section):
    fmach: _Count
    fmachs: _Count
    fmacs: _Count
    fadds: _Count
    faddh: _Count


class _PeSection(Section):
    sram_bytes: _Sram
    code_bytes: _PeBytes
    stack_bytes: _PeBytes
    accumulator_cache_bytes: _PeBytes
    banks: _Count
    bank_word_bytes: _Count
    bank_conflict_factor: _Count
    read_bytes_per_cycle: _Count
    write_bytes_per_cycle: _Count
    vector_op_cycles: _Whole
    fabric_elements_per_cycle: _Count
    division_cycles: _Count
    efficiency: _Share
    simd: _SimdSection


class _LinksSection(Section):
    wavelet_bytes: _Count
    hop_cycles: _Count
    ramp_cycles: _Whole
    colors: _Count
    io_colors: _Whole


class _MemoryXSection(Section):
    capacity_bytes: _Bytes
    units_bytes: _Counts
    bytes_per_s: _Positive
    flops: _Positive
    index_bytes: _Count
    gradient_bytes: _Count


class _SwarmXSection(Section):
    fan_out: _Count
    hop_s: _Positive


class _SystemSection(Section):
    null_counts: ClassVar[frozenset[str]] = frozenset({"memoryx", "swarmx"})

    wafer: Annotated[str, Field(min_length=1)]
    clock_hz: _Positive
    io_bytes_per_s: _Positive
    power_w: _Positive
    idle_power_w: _Positive
    max_systems: _Count
    fabric: _FabricSection
    pe: _PeSection
    links: _LinksSection
    memoryx: _MemoryXSection | None
    swarmx: _SwarmXSection | None


def system_names() -> list[str]:
    """Return the names of the systems that need no file."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_system(name_or_path: str | Path) -> System:
    """Read a system.

    Args:
        name_or_path: a known name, in any case, or the path of a YAML file

    Raises:
        ParamsError: there is no such system, or its file breaks rules; all of them are told
    """
    text = str(name_or_path)
    if text.lower() in system_names():
        return _known_system(text.lower())
    if not text.endswith((".yaml", ".yml")) and not Path(text).is_file():
        near = did_you_mean(text, system_names())
        known = f"known are {', '.join(system_names())}, and paths of YAML files"
        raise ParamsError([(f"{text}: is not a known system", known if near is None else f"{near} {known}")])
    return _read_system(Path(text))


@cache
def _known_system(name: str) -> System:
    return _read_system(FOLDER / f"{name}.yaml")


def _read_system(path: Path) -> System:
    document = read_document(path)
    problems = Problems(document, path.parent)
    data = document.data
    if isinstance(data, dict) and "extends" in data:
        data = _extended(document, problems)
        problems.raise_found()
    section = problems.check(_SystemSection, data, ())
    if section is not None:
        _check_rooms(section, problems)
    problems.raise_found()
    assert section is not None
    return _system(path.stem, section)


def _extended(document: Document, problems: Problems) -> Any:
    """Return the data of a file over those of the system that it starts from."""
    own = {key: value for key, value in document.data.items() if key != "extends"}
    base = document.data["extends"]
    name = str(base).lower()
    if name not in system_names():
        problems.add(("extends",), f"must be one of {', '.join(system_names())}", base)
        return own
    return _over(read_document(FOLDER / f"{name}.yaml").data, own)


def _over(base: Any, own: Any) -> Any:
    """Return `own` with what it leaves out from `base`; a number is taken whole, with its source."""
    if not isinstance(base, dict) or not isinstance(own, dict) or "value" in base:
        return own
    return {**base, **{key: _over(base.get(key), value) for key, value in own.items()}}


def _check_rooms(section: _SystemSection, problems: Problems) -> None:
    pe, links = section.pe, section.links
    taken = pe.code_bytes.value + pe.stack_bytes.value
    if taken >= pe.sram_bytes.value:
        rule = f"must be more than code_bytes and stack_bytes together ({taken})"
        problems.add(("pe", "sram_bytes", "value"), rule, pe.sram_bytes.value)
    if links.io_colors.value >= links.colors.value:
        rule = f"must be less than colors ({links.colors.value})"
        problems.add(("links", "io_colors", "value"), rule, links.io_colors.value)
    if section.idle_power_w.value > section.power_w.value:
        rule = f"must be at most power_w ({section.power_w.value:g})"
        problems.add(("idle_power_w", "value"), rule, section.idle_power_w.value)
    if section.memoryx is not None:
        units, capacity = section.memoryx.units_bytes.value, section.memoryx.capacity_bytes.value
        if list(units) != sorted(set(units)) or units[-1] != capacity:
            rule = f"must ascend and end with capacity_bytes ({capacity})"
            problems.add(("memoryx", "units_bytes", "value"), rule, list(units))
    if section.swarmx is not None and section.swarmx.fan_out.value < 2:
        problems.add(("swarmx", "fan_out", "value"), "must be at least 2", section.swarmx.fan_out.value)


def _system(name: str, section: _SystemSection) -> System:
    return System(
        name=name,
        wafer=section.wafer,
        fabric=Fabric(**_values(section.fabric)),
        pe=ProcessingElement(**_values(section.pe)),
        links=Links(**_values(section.links)),
        clock_hz=section.clock_hz.value,
        io_bytes_per_s=section.io_bytes_per_s.value,
        power_w=section.power_w.value,
        idle_power_w=section.idle_power_w.value,
        max_systems=section.max_systems.value,
        memoryx=None if section.memoryx is None else MemoryXUnit(**_values(section.memoryx)),
        swarmx=None if section.swarmx is None else SwarmXUnit(**_values(section.swarmx)),
        sources=MappingProxyType(dict(_sources(section, ""))),
    )


def _values(section: Section) -> dict[str, Any]:
    """Return the numbers of a section, without their sources."""
    found: dict[str, Any] = {}
    for name in type(section).model_fields:
        part = getattr(section, name)
        found[name] = part.value if isinstance(part, _Sourced) else MappingProxyType(_values(part))
    return found


def _sources(section: Section, prefix: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in type(section).model_fields:
        part = getattr(section, name)
        if isinstance(part, _Sourced):
            yield f"{prefix}{name}", (part.status, part.source)
        elif isinstance(part, Section):
            yield from _sources(part, f"{prefix}{name}.")
