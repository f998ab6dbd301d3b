"""The rules of a legal graph and artifact. Checked after building, compiling and reading."""

from collections import Counter
from collections.abc import Iterable, Sequence

from cstool.model.ir._artifact import Artifact, ExecutionMode
from cstool.model.ir._graph import Graph
from cstool.model.ir._op_kinds import losses_of
from cstool.model.ir._plans import PipelinedPlan, Region, SramEntry, Stage, StreamingPlan


def verify(graph: Graph) -> None:
    """Check that a graph is legal.

    Raises:
        ValueError: naming the op, when a tensor is used before it is produced, is produced twice or not
            declared, a weight is not declared or never used, an op name (the key of its random numbers)
            is used twice, an alias is none, a weight begins as one of another shape, an op beyond a barrier has
            weights, or the losses are not the outputs of loss ops.
    """
    names = Counter(op.name for op in graph.ops)
    if repeated := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"op name {repeated[0]!r} is used {names[repeated[0]]} times")
    available = {tensor.name for tensor in graph.inputs}
    used_weights = set()
    for op in graph.ops:
        for name in op.inputs:
            if name not in available:
                raise ValueError(f"{op.name}: reads {name!r}, which no op before it produces")
        for name in op.outputs:
            if name in available:
                raise ValueError(f"{op.name}: produces {name!r} a second time")
            if name not in graph.tensors:
                raise ValueError(f"{op.name}: produces {name!r}, which is not declared")
            available.add(name)
        for name in op.weights:
            if name not in graph.weights:
                raise ValueError(f"{op.name}: uses weight {name!r}, which is not declared")
            used_weights.add(name)
    for weight in graph.weights.values():
        if (first := weight.begins_as) is None:
            continue
        if first not in graph.weights or graph.weights[first].shape != weight.shape:
            raise ValueError(f"{weight.name}: must begin as a weight of its shape, got {first!r}")
    if idle := set(graph.weights) - used_weights:
        raise ValueError(f"weight {min(idle)!r} is declared but no op uses it")
    if graph.barrier is not None and (kept := [op.name for op in graph.barrier.beyond.ops if op.weights]):
        raise ValueError(f"{kept[0]}: uses weights beyond a barrier, where no weight is streamed")
    for alias, name in graph.aliases.items():
        if name not in graph.weights or alias in graph.weights:
            raise ValueError(f"{alias!r} must be another name of a weight, got {name!r}")
    losses = [loss.name for loss in graph.losses]
    for name in losses:
        if name not in available:
            raise ValueError(f"no op produces the loss {name!r}")
    if (made := [name for op in graph.ops for name in losses_of(op)]) not in ([], losses):
        raise ValueError(f"the losses that ops produce are {made}, and the graph has {losses}")


def verify_artifact(artifact: Artifact) -> None:
    """Check that an artifact is legal.

    Raises:
        ValueError: naming the illegal part: the graph, a kernel that does not cover its ops, a region outside of its
            replica or upon another, an account of SRAM that does not add up or does not fit, a color that cannot be
            routed, micro-batches that do not make up the batch, a plan that does not belong to the mode
    """
    verify(artifact.graph)
    verify_plans(artifact)


def verify_plans(artifact: Artifact) -> None:
    """Check that all of an artifact but its graph is legal; see `verify_artifact`."""
    _verify_batch(artifact)
    _verify_kernels(artifact)
    plans = {
        ExecutionMode.WEIGHT_STREAMING: artifact.streaming,
        ExecutionMode.PIPELINED: artifact.pipelined,
    }
    present = [str(mode) for mode, plan in plans.items() if plan is not None]
    if present != [artifact.mode]:
        raise ValueError(f"mode is {artifact.mode}, plans are {present}")
    if artifact.streaming is not None:
        _verify_streaming(artifact, artifact.streaming)
    if artifact.pipelined is not None:
        _verify_pipelined(artifact, artifact.pipelined)
    if not 0 < artifact.active_pes <= artifact.system.fabric.pes:
        raise ValueError(f"active_pes is {artifact.active_pes}, the fabric has {artifact.system.fabric.pes}")


def _verify_batch(artifact: Artifact) -> None:
    if artifact.num_csx < 1 or artifact.batch_size < 1 or artifact.batch_size % artifact.num_csx:
        raise ValueError(f"num_csx {artifact.num_csx} does not divide batch_size {artifact.batch_size}")
    samples = artifact.batch_size // artifact.num_csx
    size, plan = artifact.micro_batch_size, artifact.streaming
    if not 1 <= size <= samples:
        raise ValueError(f"micro_batch_size {size} is not of {samples} samples of a CSX")
    if plan is not None and not plan.micro_batches * (size - 1) < samples <= plan.micro_batches * size:
        raise ValueError(f"{plan.micro_batches} micro-batches of at most {size} are not {samples} samples")


def _verify_kernels(artifact: Artifact) -> None:
    segments = artifact.graph.segments
    if len(artifact.kernels) != len(segments):
        raise ValueError(f"kernels are of {len(artifact.kernels)} segments, the graph has {len(segments)}")
    for number, (kernels, segment) in enumerate(zip(artifact.kernels, segments, strict=True)):
        covered = [op for kernel in kernels for op in kernel.ops]
        ops = [op.name for op in segment.ops]
        if covered != ops:
            at = next((n for n, (a, b) in enumerate(zip(covered, ops, strict=False)) if a != b), -1)
            got, expected = (repr(names[at]) if at >= 0 else f"{len(names)} ops" for names in (covered, ops))
            raise ValueError(f"kernels of segment {number} cover {got}, the stream has {expected}")


def _verify_streaming(artifact: Artifact, plan: StreamingPlan) -> None:
    planned = [[kernel.name for kernel in kernels] for kernels in plan.kernels]
    known = [[kernel.name for kernel in kernels] for kernels in artifact.kernels]
    if planned != known:
        raise ValueError(f"streamed kernels are {planned}, kernels are {known}")
    layout, fabric = plan.layout, artifact.system.fabric
    if layout.groups * layout.columns > fabric.width or layout.rows > fabric.height:
        raise ValueError(
            f"layout has {layout.groups} x {layout.columns} columns and {layout.rows} rows, "
            f"the fabric is {fabric.width} x {fabric.height}"
        )
    _verify_sram(artifact, [(plan.fullest_kernel, plan.sram)])
    # A name may stand in several segments, for other numbers of `{n}`.
    needs = [(kernel.sram_bytes, kernel.name) for kernels in plan.kernels for kernel in kernels]
    most_bytes = max(sram_bytes for sram_bytes, _ in needs)
    if (most_bytes, plan.fullest_kernel) not in needs or most_bytes != artifact.sram_used_bytes:
        raise ValueError(
            f"the fullest kernel needs {most_bytes} B, {plan.fullest_kernel!r} is named with "
            f"{artifact.sram_used_bytes} B"
        )
    _verify_colors(artifact, plan.colors.items())


def _verify_pipelined(artifact: Artifact, plan: PipelinedPlan) -> None:
    names = [
        segment.name_of(kernel.name, repetition)
        for segment, kernels in zip(artifact.graph.segments, artifact.kernels, strict=True)
        for repetition in range(segment.count)
        for kernel in kernels
    ]
    if (staged := [stage.name for stage in plan.stages]) != names:
        raise ValueError(f"stages are {staged}, kernels are {names}")
    columns, rows = plan.replicas
    fabric = artifact.system.fabric
    if columns * plan.replica_width > fabric.width or rows * plan.replica_height > fabric.height:
        raise ValueError(
            f"{columns} x {rows} replicas of {plan.replica_width} x {plan.replica_height} PEs exceed the fabric of "
            f"{fabric.width} x {fabric.height}"
        )
    _verify_regions(plan.stages, Region(0, 0, plan.replica_width, plan.replica_height))
    _verify_sram(artifact, [(stage.name, stage.sram) for stage in plan.stages])
    slowest = max(stage.cycles.total for stage in plan.stages)
    if not 0 <= plan.bottleneck < len(names) or plan.stages[plan.bottleneck].cycles.total != slowest:
        raise ValueError(f"bottleneck is stage {plan.bottleneck}, the slowest takes {slowest} cycles")
    _verify_colors(artifact, plan.kernel_colors.items())
    _verify_colors(artifact, [(route.name, route.color) for route in plan.routes])
    for route in plan.routes:
        if not (-1 <= route.source < len(names) and -1 <= route.target < len(names)):
            raise ValueError(f"route {route.name!r} goes from stage {route.source} to stage {route.target}")


def _verify_regions(stages: Sequence[Stage], replica: Region) -> None:
    for stage in stages:
        region = stage.region
        is_inside = 0 <= region.x <= replica.width - region.width and 0 <= region.y <= replica.height - region.height
        if region.width < 1 or region.height < 1 or not is_inside:
            raise ValueError(f"{stage.name}: region {_rectangle(region)} is outside of {_rectangle(replica)}")
    west_first = sorted(stages, key=lambda stage: stage.region.x)
    for n, one in enumerate(west_first):
        for other in west_first[n + 1 :]:
            if other.region.x >= one.region.x + one.region.width:
                break  # and so do all that follow
            a, b = one.region, other.region
            if a.y < b.y + b.height and b.y < a.y + a.height:
                got = f"{_rectangle(one.region)} and {_rectangle(other.region)}"
                raise ValueError(f"regions of {one.name} and {other.name} overlap: {got}")


def _verify_sram(artifact: Artifact, accounts: Iterable[tuple[str, Iterable[SramEntry]]]) -> None:
    sums = [(sum(entry.bytes for entry in account), name) for name, account in accounts]
    most_bytes, fullest = max(sums, key=lambda item: item[0])
    if most_bytes != artifact.sram_used_bytes:
        raise ValueError(f"{fullest}: entries of sram add up to {most_bytes} B, not {artifact.sram_used_bytes}")
    if most_bytes > artifact.system.pe.sram_bytes:
        raise ValueError(f"{fullest}: needs {most_bytes} B of a PE, which has {artifact.system.pe.sram_bytes}")


def _verify_colors(artifact: Artifact, colors: Iterable[tuple[str, int]]) -> None:
    links = artifact.system.links
    for name, color in colors:
        if not 0 <= color < links.colors:
            raise ValueError(f"{name!r} has color {color}, the fabric has {links.colors}")


def _rectangle(region: Region) -> str:
    return f"{region.width} x {region.height} at ({region.x}, {region.y})"
