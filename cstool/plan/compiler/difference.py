"""Differences between two artifacts, in words, the most important first."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cstool.foundation.words import counted
from cstool.model.ir import Alternative, Artifact, PipelinedPlan, Recompute, StreamingPlan, plain_data

NONE = "none"
"""stands for a thing that one of the artifacts does not have"""
Facts = Mapping[str, str | Mapping[str, str]]
"""property of an artifact -> a text, or the aspects of a thing"""


@dataclass(frozen=True)
class Change:
    """One difference.

    Args:
        what: property that differs
        old: value in the first artifact
        new: value in the second
    """

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: {self.old} -> {self.new}"


def differences(a: Artifact, b: Artifact) -> list[Change]:
    """Differences of `b`: results first, then use of the wafer, then the request.

    Stages, kernels and contents of memory are compared where both have the same mode. Sources of a system's numbers do
    not count, as they are not written. The list is empty if, and only if, the artifacts have the same text.
    """
    old, new = plain_data(a), plain_data(b)
    if old == new:
        return []
    changes = [*_compared(_outcome(a), _outcome(b))]
    if a.pipelined is not None and b.pipelined is not None:
        sizes = [{f"stage {s.name}": s.region.pes for s in plan.stages} for plan in (a.pipelined, b.pipelined)]
        for one, other in zip(_pipelined(a.pipelined), _pipelined(b.pipelined), strict=True):
            # Regions whose size changed most come first; moved ones stay in the order of the stream.
            found = sorted(_names(one, other), key=lambda name: -abs(sizes[1].get(name, 0) - sizes[0].get(name, 0)))
            changes += _compared(one, other, found)
    if a.streaming is not None and b.streaming is not None:
        for one, other in zip(_streaming(a.streaming), _streaming(b.streaming), strict=True):
            changes += _compared(one, other)
    changes += _compared(*({"SRAM of the fullest PE": _bytes(artifact.sram_used_bytes)} for artifact in (a, b)))
    if a.mode is b.mode:
        # In other modes, other things lie there.
        accounts = ({f"SRAM, {entry.name}": _bytes(entry.bytes) for entry in x.fullest[1]} for x in (a, b))
        changes += _compared(*accounts)
    if a.streaming is not None and b.streaming is not None:
        changes += _compared(_streamed(a.streaming), _streamed(b.streaming))
    changes += _compared(_request(a), _request(b))
    changes += _compared(_considered(a.alternatives), _considered(b.alternatives))
    changes += _compared(_inputs(a.inputs), _inputs(b.inputs))
    # All else is equal: the remaining difference is one that no compiler would make alone.
    return changes or [next(_leaves("", old, new))]


def _outcome(artifact: Artifact) -> Facts:
    step_s = artifact.step_s
    seconds = f"{step_s:,.4g} s" if step_s >= 1 else f"{step_s * 1e3:.4g} ms"
    return {
        "mode": artifact.mode,
        "micro-batch": counted(artifact.micro_batch_size, "sample"),
        "step, modelled": f"{artifact.step_cycles:,} cycles, {seconds}",
        "computed again in the backward pass": _recompute(artifact.recompute),
        "PEs with work": f"{artifact.active_pes:,}",
    }


def _recompute(recompute: Recompute) -> str:
    if not recompute.levels:
        return "nothing"
    kept = f", inputs of {recompute.kept_blocks} kept" if recompute.kept_blocks else ""
    return f"activations, forward runs {recompute.levels}x more{kept}"


def _pipelined(plan: PipelinedPlan) -> Iterator[Facts]:
    (columns, rows), slowest = plan.replicas, plan.stages[plan.bottleneck]
    yield {
        "replicas": f"{columns} x {rows} of {plan.replica_width} x {plan.replica_height} PEs",
        "slowest stage": f"{slowest.name}, {slowest.cycles.total:,} cycles per sample",
    }
    yield {
        f"stage {stage.name}": {
            "size": f"{stage.region.width} x {stage.region.height} PEs",
            "place": f"at ({stage.region.x}, {stage.region.y})",
            "orientation": stage.orientation,
            "cycles": f"{stage.cycles.total:,} cycles per sample",
            "in_flight": f"{stage.in_flight} in flight",
            "is_recomputed": "computed again" if stage.is_recomputed else "computed once",
            "sram": f"{stage.used_bytes:,} B of a PE",
        }
        for stage in plan.stages
    }
    yield {"wire between stages": f"{plan.wire_pes:,} PEs"}
    yield {
        f"route of {route.kind} {route.name} from stage {route.source} to {route.target}": {
            "color": f"color {route.color}",
            "lanes": counted(route.lanes, "lane"),
            "path": "by " + " ".join(str(corner) for corner in route.path),
        }
        for route in plan.routes
    }
    yield {f"color of {name}": str(color) for name, color in plan.kernel_colors.items()}


def _streaming(plan: StreamingPlan) -> Iterator[Facts]:
    layout = plan.layout
    groups = f"{counted(layout.groups, 'group')} of {layout.columns} columns"
    yield {
        "layout": f"{groups}, {layout.rows} rows, at most {layout.tokens_per_pe} tokens per PE",
        "tokens go through a layer in": counted(layout.parts, "part"),
        "micro-batches per step and CSX": f"{plan.micro_batches:,}",
    }
    yield {
        f"kernel {kernel.name} of segment {number}": {
            "cycles": f"{kernel.cycles.total:,} cycles",
            "inputs_per_pe": f"{kernel.inputs_per_pe:,} inputs per PE",
            "outputs": f"{kernel.outputs:,} outputs",
            "weight_count": f"{kernel.weight_count:,} weights",
            "stream_bytes": f"{kernel.stream_bytes:,} B streamed",
            "sram_bytes": f"{kernel.sram_bytes:,} B of a PE",
        }
        for number, kernels in enumerate(plan.kernels)
        for kernel in kernels
    }
    yield {"fullest while it runs": plan.fullest_kernel}
    yield {f"color of {name}": str(color) for name, color in plan.colors.items()}


def _streamed(plan: StreamingPlan) -> Facts:
    return {
        "weights streamed into each CSX per step": _bytes(plan.streamed_bytes),
        "gradients out of each CSX per step": _bytes(plan.gradient_bytes),
        "weights under way ahead of their kernel": _bytes(plan.prefetch_bytes),
    }


def _request(artifact: Artifact) -> Facts:
    need = artifact.memoryx
    return {
        "weights in MemoryX": _bytes(need.weights_bytes),
        "optimizer state in MemoryX": _bytes(need.optimizer_bytes),
        "gradients in MemoryX": _bytes(need.gradient_bytes),
        "capacity of MemoryX": NONE if need.capacity_bytes is None else _bytes(need.capacity_bytes),
        "why this mode": "; ".join(artifact.reasons) or NONE,
    }


def _considered(alternatives: Iterable[Alternative]) -> Facts:
    """The verdict on each mode; there may be several plans of one."""
    found: dict[str, str] = {}
    for other in alternatives:
        steps = "does not fit" if other.step_cycles is None else f"{other.step_cycles:,} cycles per step, modelled"
        name = f"considered, {other.mode}"
        before = f"{found[name]}; or " if name in found else ""
        found[name] = f"{before}{steps}: {other.why}"
    return found


def _inputs(inputs: Mapping[str, str]) -> Facts:
    # Digests are told apart by their beginning.
    return {f"input {key}": value[:8] if key == "graph" else value for key, value in inputs.items()}


def _compared(old: Facts, new: Facts, names: Iterable[str] | None = None) -> Iterator[Change]:
    """Compare facts. A change of a thing has the aspects that differ; a new or gone thing has its first two aspects."""
    for name in _names(old, new) if names is None else names:
        one, other = old.get(name, NONE), new.get(name, NONE)
        if isinstance(one, str) or isinstance(other, str):
            texts = [fact if isinstance(fact, str) else ", ".join([*fact.values()][:2]) for fact in (one, other)]
        else:
            aspects = [aspect for aspect in one if one[aspect] != other[aspect]]
            texts = [", ".join(fact[aspect] for aspect in aspects) for fact in (one, other)]
        if texts[0] != texts[1]:
            yield Change(name, *texts)


def _bytes(number: int) -> str:
    return f"{number:,} B"


def _names(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [*new, *(name for name in old if name not in new)]


def _leaves(path: str, old: Any, new: Any) -> Iterator[Change]:
    """Yield all differences in plain data, by dotted path."""
    if isinstance(old, list) and isinstance(new, list):
        old, new = (dict(enumerate(value)) for value in (old, new))
    if not (isinstance(old, dict) and isinstance(new, dict)):
        if (one := json.dumps(old)) != (other := json.dumps(new)):
            yield Change(path, one, other)
        return
    for key in _names(old, new):
        inner = f"{path}.{key}" if path else str(key)
        if key in old and key in new:
            yield from _leaves(inner, old[key], new[key])
        else:
            yield Change(inner, *(json.dumps(values[key]) if key in values else NONE for values in (old, new)))
