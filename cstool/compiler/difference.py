"""What is different between two artifacts, in words, what matters most first."""

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cstool.ir import (
    Alternative,
    Artifact,
    Layout,
    PipelinedPlan,
    Recompute,
    Route,
    Stage,
    StreamedKernel,
    StreamingPlan,
    plain_data,
)

NONE = "none"
"""what stands for a thing that one of the artifacts does not have"""
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Change:
    """One difference.

    Args:
        what: is different
        old: as the first artifact has it
        new: as the second has it
    """

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: {self.old} -> {self.new}"


def differences(a: Artifact, b: Artifact) -> list[Change]:
    """Differences of `b`: results first, then use of the wafer, then the request.

    Stages, kernels and what memory holds are compared where both have the same mode. Sources of a system's numbers do
    not count, as they are not written. The list is empty if, and only if, the artifacts have the same text.
    """
    old, new = plain_data(a), plain_data(b)
    if old == new:
        return []
    changes = [*_outcome(a, b)]
    if a.pipelined is not None and b.pipelined is not None:
        changes += _pipelined(a.pipelined, b.pipelined)
    if a.streaming is not None and b.streaming is not None:
        changes += _streaming(a.streaming, b.streaming)
    changes += [*_sram(a, b), *_bytes(a, b), *_reasons(a, b), *_inputs(a.inputs, b.inputs)]
    # All that is left: what no compiler would change alone.
    return changes or [next(_leaves("", old, new))]


def _outcome(a: Artifact, b: Artifact) -> Iterator[Change]:
    yield from _change("mode", a.mode, b.mode)
    yield from _change("micro-batch", *(_count(x.micro_batch_size, "sample") for x in (a, b)))
    yield from _change("step, modelled", _step(a), _step(b))
    yield from _change("computed again in the backward pass", _recompute(a.recompute), _recompute(b.recompute))
    yield from _change("PEs with work", f"{a.active_pes:,}", f"{b.active_pes:,}")


def _step(artifact: Artifact) -> str:
    step_s = artifact.step_s
    return f"{artifact.step_cycles:,} cycles, {f'{step_s:,.4g} s' if step_s >= 1 else f'{step_s * 1e3:.4g} ms'}"


def _recompute(recompute: Recompute) -> str:
    if not recompute.levels:
        return "nothing"
    spans = f", spans of {' and '.join(map(str, recompute.spans))} blocks" if recompute.spans else ""
    kept = f", inputs of {recompute.kept_blocks} kept" if recompute.kept_blocks else ""
    return f"activations, forward runs {recompute.levels}x more{spans}{kept}"


def _pipelined(a: PipelinedPlan, b: PipelinedPlan) -> Iterator[Change]:
    yield from _change("replicas", _replicas(a), _replicas(b))
    yield from _change("slowest stage", _slowest(a), _slowest(b))
    old, new = ({stage.name: _stage(stage) for stage in plan.stages} for plan in (a, b))
    pes_a, pes_b = ({stage.name: stage.region.pes for stage in plan.stages} for plan in (a, b))
    # What was resized most first; what was moved stays in the order of the stream.
    names = sorted(_keys(old, new), key=lambda name: -abs(pes_b.get(name, 0) - pes_a.get(name, 0)))
    yield from _things({f"stage {name}": (old.get(name), new.get(name)) for name in names})
    yield from _change("wire between stages", f"{a.wire_pes:,} PEs", f"{b.wire_pes:,} PEs")
    routes_a, routes_b = (
        {
            f"{route.kind} {route.name} from stage {route.source} to {route.target}": _route(route)
            for route in plan.routes
        }
        for plan in (a, b)
    )
    names = _keys(routes_a, routes_b)
    yield from _things({f"route of {name}": (routes_a.get(name), routes_b.get(name)) for name in names})
    yield from _colors(a.kernel_colors, b.kernel_colors)


def _replicas(plan: PipelinedPlan) -> str:
    columns, rows = plan.replicas
    return f"{columns} x {rows} of {plan.replica_width} x {plan.replica_height} PEs"


def _slowest(plan: PipelinedPlan) -> str:
    stage = plan.stages[plan.bottleneck]
    return f"{stage.name}, {stage.cycles.total:,} cycles per sample"


def _stage(stage: Stage) -> Mapping[str, str]:
    region = stage.region
    return {
        "size": f"{region.width} x {region.height} PEs",
        "place": f"at ({region.x}, {region.y})",
        "orientation": stage.orientation,
        "cycles": f"{stage.cycles.total:,} cycles per sample",
        "in_flight": f"{stage.in_flight} in flight",
        "is_recomputed": "computed again" if stage.is_recomputed else "computed once",
        "sram": f"{stage.used_bytes:,} B of a PE",
    }


def _route(route: Route) -> Mapping[str, str]:
    return {
        "color": f"color {route.color}",
        "lanes": _count(route.lanes, "lane"),
        "path": "by " + " ".join(str(corner) for corner in route.path),
    }


def _streaming(a: StreamingPlan, b: StreamingPlan) -> Iterator[Change]:
    yield from _change("layout", _layout(a.layout), _layout(b.layout))
    yield from _change("micro-batches per step and CSX", f"{a.micro_batches:,}", f"{b.micro_batches:,}")
    old, new = ({(n, kernel.name): _kernel(kernel) for n, ks in enumerate(p.kernels) for kernel in ks} for p in (a, b))
    yield from _things(
        {f"kernel {key[1]} of segment {key[0]}": (old.get(key), new.get(key)) for key in _keys(old, new)}
    )
    yield from _change("fullest while it runs", a.fullest_kernel, b.fullest_kernel)
    yield from _colors(a.colors, b.colors)


def _layout(layout: Layout) -> str:
    groups = f"{_count(layout.groups, 'group')} of {layout.columns} columns"
    return f"{groups}, {layout.rows} rows, at most {layout.tokens_per_pe} tokens per PE"


def _kernel(kernel: StreamedKernel) -> Mapping[str, str]:
    return {
        "cycles": f"{kernel.cycles.total:,} cycles",
        "inputs_per_pe": f"{kernel.inputs_per_pe:,} inputs per PE",
        "outputs": f"{kernel.outputs:,} outputs",
        "weight_count": f"{kernel.weight_count:,} weights",
        "stream_bytes": f"{kernel.stream_bytes:,} B streamed",
        "sram_bytes": f"{kernel.sram_bytes:,} B of a PE",
    }


def _sram(a: Artifact, b: Artifact) -> Iterator[Change]:
    yield from _change("SRAM of the fullest PE", f"{a.sram_used_bytes:,} B", f"{b.sram_used_bytes:,} B")
    if a.mode is not b.mode:
        return  # other things lie there
    old, new = ({entry.name: f"{entry.bytes:,} B" for entry in artifact.fullest[1]} for artifact in (a, b))
    for name in _keys(old, new):
        yield from _change(f"SRAM, {name}", old.get(name, NONE), new.get(name, NONE))


def _bytes(a: Artifact, b: Artifact) -> Iterator[Change]:
    if a.streaming is not None and b.streaming is not None:
        for what, name in (
            ("weights streamed into each CSX per step", "streamed_bytes"),
            ("gradients out of each CSX per step", "gradient_bytes"),
            ("weights under way ahead of their kernel", "prefetch_bytes"),
        ):
            yield from _change(what, f"{getattr(a.streaming, name):,} B", f"{getattr(b.streaming, name):,} B")
    for what, name in (
        ("weights in MemoryX", "weights_bytes"),
        ("optimizer state in MemoryX", "optimizer_bytes"),
        ("gradients in MemoryX", "gradient_bytes"),
        ("capacity of MemoryX", "capacity_bytes"),
    ):
        old, new = (getattr(artifact.memoryx, name) for artifact in (a, b))
        yield from _change(what, *(NONE if value is None else f"{value:,} B" for value in (old, new)))


def _reasons(a: Artifact, b: Artifact) -> Iterator[Change]:
    yield from _change("why this mode", *("; ".join(artifact.reasons) or NONE for artifact in (a, b)))
    old, new = (_considered(artifact.alternatives) for artifact in (a, b))
    for mode in _keys(old, new):
        yield from _change(f"considered, {mode}", old.get(mode, NONE), new.get(mode, NONE))


def _considered(alternatives: Iterable[Alternative]) -> dict[str, str]:
    """Return mode -> what was said of it; there may be several plans of a mode."""
    found: dict[str, str] = {}
    for other in alternatives:
        steps = "does not fit" if other.step_cycles is None else f"{other.step_cycles:,} cycles per step, modelled"
        before = f"{found[other.mode]}; or " if other.mode in found else ""
        found[other.mode] = f"{before}{steps}: {other.why}"
    return found


def _inputs(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Change]:
    for key in _keys(a, b):
        # Digests are told apart by their beginning.
        old, new = (values.get(key, NONE) for values in (a, b))
        yield from _change(f"input {key}", *((old[:8], new[:8]) if key == "graph" else (old, new)))


def _colors(a: Mapping[str, int], b: Mapping[str, int]) -> Iterator[Change]:
    for name in _keys(a, b):
        yield from _change(f"color of {name}", str(a.get(name, NONE)), str(b.get(name, NONE)))


def _things(pairs: Mapping[str, tuple[Mapping[str, str] | None, Mapping[str, str] | None]]) -> Iterator[Change]:
    """Compare things by their aspects: those that differ stand in the change; of what is new or gone, the first two."""
    for what, (old, new) in pairs.items():
        if old is not None and new is not None:
            aspects = [aspect for aspect in old if old[aspect] != new[aspect]]
            texts = (", ".join(thing[aspect] for aspect in aspects) for thing in (old, new))
        else:
            texts = (NONE if thing is None else ", ".join([*thing.values()][:2]) for thing in (old, new))
        yield from _change(what, *texts)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _keys(a: Mapping[_Key, Any], b: Mapping[_Key, Any]) -> list[_Key]:
    return [*b, *(key for key in a if key not in b)]


def _change(what: str, old: str, new: str) -> Iterator[Change]:
    if old != new:
        yield Change(what, old, new)


def _leaves(path: str, old: Any, new: Any) -> Iterator[Change]:
    """Yield all that differs in plain data, by its dotted path."""
    if isinstance(old, list) and isinstance(new, list):
        old, new = (dict(enumerate(value)) for value in (old, new))
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield from _change(path, json.dumps(old), json.dumps(new))
        return
    for key in _keys(old, new):
        inner = f"{path}.{key}" if path else str(key)
        if key in old and key in new:
            yield from _leaves(inner, old[key], new[key])
        else:
            yield Change(inner, *(json.dumps(values[key]) if key in values else NONE for values in (old, new)))
