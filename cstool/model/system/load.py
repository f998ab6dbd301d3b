"""System files: the YAML of the three known systems, and files of one's own, which may start from one of them."""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, create_model

from cstool.foundation.errors import ParamsError
from cstool.foundation.words import did_you_mean
from cstool.foundation.yaml_lines.document import Document, read_document
from cstool.foundation.yaml_lines.problems import Problems
from cstool.foundation.yaml_lines.section import List, Section
from cstool.model.system.system import (
    Fabric,
    HostsUnit,
    Links,
    MemoryXUnit,
    ProcessingElement,
    Release,
    ServersUnit,
    SwarmXUnit,
    System,
)

FOLDER = Path(__file__).parent / "systems"
MOST_PES = 10_000
"""PEs along a side of a wafer: ten times the largest wafer, and tables still fit"""
MOST = 10**6
"""largest count of a PE or a link: its products with sizes of tensors still fit 64 bits"""
MOST_PE_BYTES = 10**9
MOST_BYTES = 10**18
LARGEST = 1e30
"""largest value of a number that is no count"""
STATUSES: Mapping[str, str] = {
    "R1": "read in the primary text or a raw data file",
    "R2": "read second-hand",
    "D": "derived from other numbers",
    "X": "recalled, nothing better is known",
    "C": "chosen by this project, nothing is published",
    "F": "fitted to published results, one or two",
}
"""how sure a number is"""
Status = Literal["R1", "R2", "D", "X", "C", "F"]


T = TypeVar("T")


class Sourced(Section, Generic[T]):
    """A number with its source."""

    value: T
    status: Status
    source: Annotated[str, Field(min_length=1)]


_Count = Sourced[Annotated[int, Field(ge=1, le=MOST)]]
_Sram = Sourced[Annotated[int, Field(ge=1, le=MOST_PE_BYTES)]]
_PeBytes = Sourced[Annotated[int, Field(ge=0, le=MOST_PE_BYTES)]]
_Bytes = Sourced[Annotated[int, Field(ge=1, le=MOST_BYTES)]]
_Side = Sourced[Annotated[int, Field(ge=1, le=MOST_PES)]]
_Whole = Sourced[Annotated[int, Field(ge=0, le=MOST)]]
_Positive = Sourced[Annotated[float, Field(gt=0, le=LARGEST)]]
_Share = Sourced[Annotated[float, Field(ge=0.001, le=1)]]
_Counts = Sourced[Annotated[tuple[Annotated[int, Field(ge=1, le=MOST_BYTES)], ...], List, Field(min_length=1)]]


_KINDS: dict[str, Any] = {
    "width": _Side,
    "height": _Side,
    "sram_bytes": _Sram,
    **dict.fromkeys(("code_bytes", "stack_bytes", "accumulator_cache_bytes"), _PeBytes),
    **dict.fromkeys(("vector_op_cycles", "call_cycles", "ramp_cycles", "io_colors"), _Whole),
    "efficiency": _Share,
    **dict.fromkeys(("capacity_bytes", "memoryx_node_bytes"), _Bytes),
    "units_bytes": _Counts,
    "straggler_share": Sourced[Annotated[float, Field(ge=0, le=1)]],
}
"""number of a part -> its kind; the others are counts if they are whole, and positive if not"""
_PARTS = {
    "fabric": Fabric,
    "pe": ProcessingElement,
    "links": Links,
    "memoryx": MemoryXUnit,
    "swarmx": SwarmXUnit,
    "hosts": HostsUnit,
    "servers": ServersUnit,
}
_RELEASE_NAME = re.compile(r"[0-9]+\.[0-9]+")


def _section(
    name: str, kinds: Mapping[str, Any], base: type[Section] = Section, optional: Collection[str] = ()
) -> type[Section]:
    fields: dict[str, Any] = {
        key: (kind | None, None) if key in optional else (kind, ...) for key, kind in kinds.items()
    }
    return create_model(name, __base__=base, **fields)


def _section_of(part: type) -> type[Section]:
    """The section of a part of a system, each number of which has a source."""
    simd = _section("_Simd", dict.fromkeys(("fmach", "fmachs", "fmacs", "fadds", "faddh"), _Count))
    of_type: dict[Any, Any] = {int: _Count, float: _Positive, float | None: _Positive, Mapping[str, int]: simd}
    # In this order they are shown: what is fitted, and what has parts of its own, last.
    fields = sorted(dataclasses.fields(part), key=lambda field: field.name in ("efficiency", "simd"))
    kinds = {f.name: _KINDS.get(f.name, of_type.get(f.type)) for f in fields}
    if part is HostsUnit:
        kinds["releases"] = Annotated[dict[str, _section_of(Release)], Field(min_length=1)]  # type: ignore[misc]
    optional = {f.name for f in fields if f.default is not dataclasses.MISSING}
    return _section(part.__name__, kinds, optional=optional)


class _Cluster(Section):
    null_counts = frozenset({"memoryx", "swarmx", "hosts", "servers"})


_SystemSection = _section(
    "_SystemSection",
    {
        "wafer": Annotated[str, Field(min_length=1)],
        **dict.fromkeys(("clock_hz", "io_bytes_per_s", "power_w", "idle_power_w"), _Positive),
        "max_systems": _Count,
        **{
            name: _section_of(part) | None if name in _Cluster.null_counts else _section_of(part)
            for name, part in _PARTS.items()
        },
    },
    _Cluster,
    optional=("hosts", "servers"),
)


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
    problems.raise_found()
    assert section is not None
    values = _values(section)
    parts = {key: _part(part, values[key]) for key, part in _PARTS.items() if values[key] is not None}
    system = System(name=path.stem, **{**values, **parts}, sources=MappingProxyType(dict(_sources(section, ""))))
    _check_rooms(system, problems)
    problems.raise_found()
    return system


def _part(kind: type, values: Mapping[str, Any]) -> Any:
    """Return a part of a system; keys that its section leaves out have their usual values."""
    given = {key: value for key, value in values.items() if value is not None}
    if kind is HostsUnit:
        given["releases"] = MappingProxyType({key: _part(Release, each) for key, each in given["releases"].items()})
    return kind(**given)


def _extended(document: Document, problems: Problems) -> Any:
    """Return the data of a file over the data of the system that it starts from."""
    own = {key: value for key, value in document.data.items() if key != "extends"}
    base = document.data["extends"]
    name = str(base).lower()
    if name not in system_names():
        problems.add(("extends",), f"must be one of {', '.join(system_names())}", base)
        return own
    return over(read_document(FOLDER / f"{name}.yaml").data, own)


def over(base: Any, own: Any) -> Any:
    """Return `own`, with missing keys from `base`; a number is taken whole, with its source."""
    if not isinstance(base, dict) or not isinstance(own, dict) or "value" in base:
        return own
    return {**base, **{key: over(base.get(key), value) for key, value in own.items()}}


def _check_rooms(system: System, problems: Problems) -> None:
    pe, links, memoryx, swarmx = system.pe, system.links, system.memoryx, system.swarmx
    taken = pe.code_bytes + pe.stack_bytes
    if taken >= pe.sram_bytes:
        rule = f"must be more than code_bytes and stack_bytes together ({taken})"
        problems.add(("pe", "sram_bytes", "value"), rule, pe.sram_bytes)
    if links.io_colors >= links.colors:
        problems.add(("links", "io_colors", "value"), f"must be less than colors ({links.colors})", links.io_colors)
    if system.idle_power_w > system.power_w:
        problems.add(("idle_power_w", "value"), f"must be at most power_w ({system.power_w:g})", system.idle_power_w)
    if memoryx is not None:
        units, capacity = list(memoryx.units_bytes), memoryx.capacity_bytes
        if units != sorted(set(units)) or units[-1] != capacity:
            rule = f"must ascend and end with capacity_bytes ({capacity})"
            problems.add(("memoryx", "units_bytes", "value"), rule, units)
    if swarmx is not None and swarmx.fan_out < 2:
        problems.add(("swarmx", "fan_out", "value"), "must be at least 2", swarmx.fan_out)
    for name in () if system.hosts is None else system.hosts.releases:
        if not _RELEASE_NAME.fullmatch(name):
            problems.add(("hosts", "releases"), "must have names such as 2.0", name)


def _values(section: Section) -> dict[str, Any]:
    """The values of a section, without their sources."""
    found: dict[str, Any] = {}
    for name in type(section).model_fields:
        part = getattr(section, name)
        if isinstance(part, Sourced):
            part = part.value
        elif isinstance(part, dict):
            part = {key: _values(each) for key, each in part.items()}
        found[name] = MappingProxyType(_values(part)) if isinstance(part, Section) else part
    return found


def _sources(section: Section, prefix: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in type(section).model_fields:
        part = getattr(section, name)
        if isinstance(part, Sourced):
            yield f"{prefix}{name}", (part.status, part.source)
        elif isinstance(part, Section):
            yield from _sources(part, f"{prefix}{name}.")
        elif isinstance(part, dict):
            for key, each in part.items():
                yield from _sources(each, f"{prefix}{name}.{key}.")
