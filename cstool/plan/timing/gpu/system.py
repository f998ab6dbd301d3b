"""A GPU, its memory and its links, as data: read from a GPU file, each number with its source."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cstool.foundation.errors import ParamsError
from cstool.foundation.words import did_you_mean
from cstool.foundation.yaml_lines.document import read_document
from cstool.foundation.yaml_lines.problems import Problems
from cstool.foundation.yaml_lines.section import List, Section
from cstool.model.system.load import Sourced, over

FOLDER = Path(__file__).parent / "systems"
Steps = tuple[tuple[float, float], ...]
"""(from this size on, share of the rate), the largest size first"""


@dataclass(frozen=True)
class GpuLink:
    """Links between GPUs.

    Args:
        gpus: that they reach
        bytes_per_s: of a GPU, each way
        efficiency: sustained share of that rate
        latency_s: of a message [s]
        collective_factor: bytes that cross a link in a reduce-scatter or an all-gather, relative to a ring
    """

    gpus: int
    bytes_per_s: float
    efficiency: float
    latency_s: float
    collective_factor: float

    def message_s(self, count_bytes: float) -> float:
        """Time of a message from one GPU to another [s].

        >>> f"{1e6 * GpuLink(8, 25e9, 0.9, 2e-6, 1.0).message_s(2_250_000):.0f} us"
        '102 us'
        """
        return count_bytes / (self.bytes_per_s * self.efficiency) + self.latency_s

    def gather_s(self, count_bytes: float, gpus: int) -> float:
        """Time of a reduce-scatter or an all-gather: so many bytes in all, of which each GPU has a share [s].

        In a ring each GPU sends all shares but one. 8 GPUs with 180 MB, 1.5 times 7 / 8 of it at 180 GB/s:

        >>> f"{1e3 * GpuLink(8, 300e9, 0.6, 1e-6, 1.5).gather_s(180e6, 8):.2f} ms"
        '1.31 ms'
        """
        return self._collective_s(self.collective_factor * count_bytes, gpus)

    def _collective_s(self, count_bytes: float, gpus: int) -> float:
        if gpus == 1:
            return 0.0
        return count_bytes * (gpus - 1) / gpus / (self.bytes_per_s * self.efficiency) + self.latency_s


@dataclass(frozen=True)
class NearLink(GpuLink):
    """Links within a host.

    Args:
        allreduce_factor: as `collective_factor`, of an all-reduce, over the bytes of one of the two in a ring
    """

    allreduce_factor: float

    def allreduce_s(self, count_bytes: float, gpus: int) -> float:
        """Time of an all-reduce of so many bytes on each GPU [s].

        >>> f"{1e3 * NearLink(8, 300e9, 0.6, 1e-6, 1.5, 2.0).allreduce_s(180e6, 8):.2f} ms"
        '1.75 ms'
        """
        return self._collective_s(self.allreduce_factor * count_bytes, gpus)


@dataclass(frozen=True)
class GpuSystem:
    """A GPU and its cluster.

    Args:
        name: of the file
        flops: of products of 16 bits [FLOP/s]
        vector_flops: of everything else [FLOP/s]
        memory_bytes: of its memory
        memory_bytes_per_s: of its memory
        power_w: of a GPU with its share of the host, at work [W]
        product_efficiency, vector_efficiency, memory_efficiency: shares of the rates, by size
        near: links of a host
        far: links between hosts
    """

    name: str
    flops: float
    vector_flops: float
    memory_bytes: int
    memory_bytes_per_s: float
    power_w: float
    product_efficiency: Steps
    vector_efficiency: Steps
    memory_efficiency: Steps
    near: NearLink
    far: GpuLink

    def product_s(self, flops: float, moved_bytes: float) -> float:
        """Time of a product: its operations, and the bytes that it moves beside them [s]."""
        return flops / (self.flops * share_of(self.product_efficiency, flops)) + self.moved_s(moved_bytes)

    def vector_s(self, flops: float, moved_bytes: float) -> float:
        """Time of anything else [s]."""
        return flops / (self.vector_flops * share_of(self.vector_efficiency, flops)) + self.moved_s(moved_bytes)

    def moved_s(self, count_bytes: float) -> float:
        """Time to move so many bytes to or from its memory [s]."""
        return count_bytes / (self.memory_bytes_per_s * share_of(self.memory_efficiency, count_bytes))


def share_of(steps: Sequence[tuple[float, float]], size: float) -> float:
    """Return the share of a rate for a size.

    >>> [share_of(((100.0, 0.9), (10.0, 0.5), (0.0, 0.1)), size) for size in (500, 50, 5)]
    [0.9, 0.5, 0.1]
    """
    return next(share for least, share in steps if size >= least)


_Positive = Sourced[Annotated[float, Field(gt=0, le=1e30)]]
_Share = Sourced[Annotated[float, Field(gt=0, le=1)]]
_Count = Sourced[Annotated[int, Field(ge=1, le=10**18)]]
_Pair = Annotated[tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(gt=0, le=1)]], List]
_Steps = Sourced[Annotated[tuple[_Pair, ...], List, Field(min_length=1)]]


class _Link(Section):
    gpus: _Count
    bytes_per_s: _Positive
    efficiency: _Share
    latency_s: _Positive
    collective_factor: _Positive


class _NearLink(_Link):
    allreduce_factor: _Positive


class _Links(Section):
    near: _NearLink
    far: _Link


class _Gpu(Section):
    flops: _Positive
    vector_flops: _Positive
    memory_bytes: _Count
    memory_bytes_per_s: _Positive
    power_w: _Positive
    product_efficiency: _Steps
    vector_efficiency: _Steps
    memory_efficiency: _Steps
    links: _Links


def gpu_names() -> list[str]:
    """Return the names of the GPUs that need no file."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def load_gpu(name_or_path: str) -> GpuSystem:
    """Read a GPU.

    Args:
        name_or_path: a known name, in any case, or the path of a YAML file, which may begin with `extends: a100`

    Raises:
        ParamsError: there is no such GPU, or its file breaks rules; all of them are told
    """
    known = gpu_names()
    if name_or_path.lower() in known:
        return _read(FOLDER / f"{name_or_path.lower()}.yaml")
    if not name_or_path.endswith((".yaml", ".yml")) and not Path(name_or_path).is_file():
        near = did_you_mean(name_or_path, known)
        hint = f"known are {', '.join(known)}, and paths of YAML files"
        raise ParamsError([(f"{name_or_path}: is not a known GPU", hint if near is None else f"{near} {hint}")])
    return _read(Path(name_or_path))


def _read(path: Path) -> GpuSystem:
    document = read_document(path)
    problems = Problems(document, path.parent)
    data: Any = document.data
    if isinstance(data, dict) and "extends" in data:
        base = str(data["extends"]).lower()
        if base not in gpu_names():
            problems.add(("extends",), f"must be one of {', '.join(gpu_names())}", data["extends"])
            problems.raise_found()
        own = {key: value for key, value in data.items() if key != "extends"}
        data = over(read_document(FOLDER / f"{base}.yaml").data, own)
    found = problems.check(_Gpu, data, ())
    problems.raise_found()
    assert found is not None
    for name in ("product_efficiency", "vector_efficiency", "memory_efficiency"):
        sizes = [size for size, _ in getattr(found, name).value]
        if sizes != sorted(set(sizes), reverse=True) or sizes[-1] != 0:
            problems.add((name, "value"), "must have sizes that descend to 0", sizes)
    problems.raise_found()
    links = found.links
    near = NearLink(**{key: getattr(links.near, key).value for key in _NearLink.model_fields})
    far = GpuLink(**{key: getattr(links.far, key).value for key in _Link.model_fields})
    values = {key: getattr(found, key).value for key in _Gpu.model_fields if key != "links"}
    return GpuSystem(name=path.stem, near=near, far=far, **values)
