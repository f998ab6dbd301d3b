"""Needs of a run on this host, known before it starts: memory at its peak, and no less than that; disk, lanes, time.

A run that is given as much memory keeps to it (`CSTOOL_MEMORY`), since it is laid out here as it lays itself out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil, prod

from cstool.foundation.errors import ClusterError
from cstool.foundation.host_memory import UNCOUNTED_BYTES, available_memory_bytes
from cstool.model.ir import Graph, panel_sizes
from cstool.model.optimizers import Optimizer, make_optimizer, whole_arrays
from cstool.model.params import DataloaderParams, Params
from cstool.training.host.planned import planned_setup
from cstool.training.host.rates import load_rates
from cstool.training.host.step import predict_step
from cstool.training.kernels.compile import kernels_cached
from cstool.training.machine.appliance import EVALUATION_PART
from cstool.training.machine.budgets import ACTIVATION_SHARE, BUFFER_SHARE, MOST_IN_FLIGHT
from cstool.training.machine.buffers import PANELS_IN_FLIGHT, in_flight_bytes, most_in_flight_bytes
from cstool.training.machine.grains import grain_samples, lanes_for
from cstool.training.machine.lanes import STAGES_APART
from cstool.training.machine.layout import Layout, lay_out
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx_store import FILE_SHARE
from cstool.training.machine.plan import make_plan
from cstool.training.machine.precision import narrow_in
from cstool.training.machine.prepare import needed_kernels
from cstool.training.machine.sparsity import KernelChooser, sparsity_rules
from cstool.training.store.panel_cache import TILE_BYTES

MIB = 2**20
BASE_BYTES = 218 * MIB
"""of the interpreter, its libraries and compiled kernels, code included (measured on x86-64, as all numbers here are:
`python -m benchmarks.job_memory` prints them beside the use of real runs)"""
LANE_BYTES = 5 * MIB
"""of a lane beside its scratch: its stack, and the arena that malloc keeps for a thread"""
LIBRARY_BYTES = 22 * MIB
"""of oneDNN, the library of products of most models"""
COMPILING_BYTES = 160 * MIB
"""of compiling the kernels, where no run of this user did so before; it stays until the run ends"""
SPARSE_DRAW_BYTES = 68
"""for each number of the largest sparse weight: masks are drawn, and sorted, in arrays of 64 bits"""
FILE_LANE_BYTES = 16 * MIB
"""of a lane where MemoryX is in a file, at most, beside buffers: a panel that is read or written past the page cache"""
SCRATCH_SHARES = 0.16, 0.5
"""of the activations of a grain: with all that can be kept, and as it is laid out; scratch of a lane takes no more"""
BATCHES = 5
"""batches in memory at a time: two ahead, one that is read, one that runs, one of an evaluation"""
COMFORT_SHARE = 0.5
"""share of the free memory for activations before a batch goes in waves: another job may want some, too"""
LOG_BYTES = 32 * MIB
"""on the disk: logs, events, the artifact"""
OVERHEAD_SHARE, CHECKPOINT_BYTES = 1.01, MIB
"""of files, over their arrays"""
PLANNED_OPS = 2500
"""of a model whose activations are laid out to know their size, at most: the time for that grows with their square,
from 0.7 s for a plan of 1,540 ops to a minute and more for one of 12,004"""
START_S = 6.0
"""of a run before its first step and after its last, about [s]"""


@dataclass(frozen=True)
class MemoryNeed:
    """Resident memory at the peak of a run, by purpose [bytes].

    Args:
        base: the interpreter, its libraries, kernels
        state: weights and optimizer state, or buffers of their file
        gradients: waiting gradients, and gradients on their way
        activations: of training and evaluation
        lanes: scratch and memory of threads
        batches: of input
        beyond: passing needs, of drawing masks and compiling kernels
        slack: memory that a run with this budget holds back, as it would be laid out for less otherwise: with
            recomputation, waves, or MemoryX in a file; negative if the limits of all purposes add up to more than a
            job may be given
        is_capped: whether activations were not laid out, see `PLANNED_OPS`; then the total is the most that a job may
            be given, and may turn out too small when the run lays them out
    """

    base: int
    state: int
    gradients: int
    activations: int
    lanes: int
    batches: int
    beyond: int
    slack: int = 0
    is_capped: bool = False

    @property
    def total(self) -> int:
        """All of it: the budget [bytes]."""
        return sum(getattr(self, field.name) for field in fields(self) if field.name != "is_capped")


def lanes_of(params: Params, graph: Graph, mode: str, cores: int | None = None) -> int:
    """Number of lanes that a run would choose on `cores` cores; None for the cores of this host."""
    found = 1
    for loader, _ in _loaders(params, mode):
        grain = grain_samples(graph, loader.batch_size)
        found = max(found, lanes_for(graph, grain, loader.batch_size // grain))
    return found if cores is None else max(1, min(found, cores))


def estimate_memory(
    params: Params, graph: Graph, mode: str, lanes: int, room_bytes: int | None = None, *, compiled: bool | None = None
) -> MemoryNeed:
    """Estimate the memory of a run: no less than it takes.

    Args:
        graph: its model, for the samples of its data
        mode: of the run
        lanes: host threads
        room_bytes: the most that a job may be given; None for the free memory of this host
        compiled: whether its kernels are there; None to look for them

    Raises:
        ClusterError: it does not fit
    """
    trains = not mode.startswith("eval")
    optimizer = make_optimizer(params.trained_by, params.precision.max_gradient_value) if trains else None
    sparsity = sparsity_rules(params, graph, KernelChooser("never"))
    kept_model = KeptModel(graph, optimizer, sparsity, params.host_precision)
    base = BASE_BYTES + LIBRARY_BYTES
    room = available_memory_bytes() if room_bytes is None else room_bytes
    free = max(0, room - base - UNCOUNTED_BYTES)
    state = kept_model.state_bytes
    chosen = params.memoryx.store
    in_file = chosen == "file" or (chosen == "auto" and state > FILE_SHARE * free)
    sizes = [loader.batch_size for loader, is_trained in _loaders(params, mode) if is_trained]
    grains = max((size // grain_samples(graph, size) for size in sizes), default=1)
    flying = 0 if optimizer is None else _flying_bytes(graph, grains, lanes, in_file=in_file)
    if in_file:
        kept, waiting = _file_bytes(params, graph, optimizer, lanes, free), 0
        taken = kept + MOST_IN_FLIGHT * in_flight_bytes(graph) // PANELS_IN_FLIGHT
        of_lanes = min(FILE_LANE_BYTES, _largest_bytes(graph))
    else:
        taken = kept_model.memoryx_bytes
        copies = kept_model.copies_bytes
        # Gradients are counted with a quarter for gradients on their way; the real limit of these is known here.
        waiting = 0 if optimizer is None else (taken - state - copies) * 4 // 5 + copies
        kept, of_lanes = state, 0
        taken += most_in_flight_bytes(graph, MOST_IN_FLIGHT) if optimizer is not None else 0
    if taken > free:
        what = "its weights" if optimizer is None else "its weights, optimizer state and gradients"
        raise ClusterError(
            f"the model: {what} must fit what a job may take ({free:,} bytes beside the program itself), got "
            f"{taken:,} bytes",
            "--memoryx file keeps them on disk; a narrower model, a smaller vocabulary or fewer layers need less",
        )
    if len(graph.ops) > PLANNED_OPS:
        parts = MemoryNeed(base, kept, waiting + flying, 0, lanes * (LANE_BYTES + of_lanes), 0, 0, is_capped=True)
        return replace(parts, slack=room - parts.total)
    layouts = _layouts(params, graph, mode, free - taken)
    scratch = max(
        min(int(SCRATCH_SHARES[0] * layout.whole_slot_bytes), max(MIB, int(SCRATCH_SHARES[1] * layout.plan.slot_bytes)))
        for layout in layouts
    )
    largest_sparse = max((graph.weights[name].size for name in sparsity.groups), default=0)
    beyond = SPARSE_DRAW_BYTES * largest_sparse
    if compiled is None:
        compiled = kernels_cached(needed_kernels(graph, params.host_precision, sparsity.groups.keys(), optimizer))
    beyond += 0 if compiled else COMPILING_BYTES
    activations = sum(layout.activation_bytes(0) for layout in layouts)
    # As a run reckons: see `available_memory_bytes`, `activation_budget_bytes`, `open_backing`, `file_memory_bytes`.
    wanted = [taken + ceil(activations / ACTIVATION_SHARE)]
    wanted += [ceil(kept / BUFFER_SHARE)] if in_file else []
    wanted += [ceil(state / FILE_SHARE)] if chosen == "auto" and not in_file else []
    need = MemoryNeed(
        base,
        kept,
        waiting + flying,
        activations + _meeting_bytes(params, graph, mode),
        lanes * (LANE_BYTES + scratch + of_lanes),
        BATCHES * max(_batch_bytes(graph, loader.batch_size) for loader, _ in _loaders(params, mode)),
        beyond,
    )
    held_back = UNCOUNTED_BYTES + (0 if compiled else COMPILING_BYTES)
    return replace(need, slack=min(max(0, base + held_back + max(wanted) - need.total), room - need.total))


def _loaders(params: Params, mode: str) -> list[tuple[DataloaderParams, bool]]:
    """The dataloaders of a run, and whether each is trained on."""
    found: list[tuple[DataloaderParams, bool]] = []
    if mode != "train":
        purpose = mode if mode.startswith("eval") else "val"
        found += [(loader, False) for loader in params.dataloaders(purpose)]
    if not mode.startswith("eval"):
        found += [(loader, True) for loader in params.dataloaders("train")]
    return found


def _layouts(params: Params, graph: Graph, mode: str, free_bytes: int) -> list[Layout]:
    """The systems as a run lays them out; within a comfortable share of the memory, or else within all of it."""
    budget = int(free_bytes * ACTIVATION_SHARE)
    try:
        return _laid_out(params, graph, mode, int(budget * COMFORT_SHARE))
    except ClusterError:
        return _laid_out(params, graph, mode, budget)


def _laid_out(params: Params, graph: Graph, mode: str, budget: int) -> list[Layout]:
    narrow, found, taken = narrow_in(params.host_precision, graph), [], 0
    held_out = {loader.batch_size for loader, trains in _loaders(params, mode) if not trains}
    alone = mode.startswith("eval")
    sizes = [(size, False) for size in held_out]
    sizes += [(loader.batch_size, True) for loader, trains in _loaders(params, mode) if trains]
    for size, trains in sizes:
        grain = grain_samples(graph, size)
        room = budget - taken if trains else budget // (len(held_out) * (1 if alone else EVALUATION_PART))
        layout = lay_out(
            graph,
            grain=grain,
            grains=size // grain,
            num_csx=params.num_csx,
            trains=trains,
            memory_bytes=[room],
            recompute=params.activation_checkpointing,
            narrow=narrow,
        )
        found.append(layout)
        taken += layout.activation_bytes(0)
    return found


def _file_bytes(params: Params, graph: Graph, optimizer: Optimizer | None, lanes: int, free_bytes: int) -> int:
    """Size of the buffers of a MemoryX in a file: their limit, or all their possible contents."""
    limit = min(params.memoryx.memory, int(BUFFER_SHARE * free_bytes))
    arrays = whole_arrays(optimizer) if optimizer else 0
    tiles = max(2, lanes) * (2 + arrays) * TILE_BYTES
    weights = sum(4 * weight.size for weight in graph.weights.values())
    gradients = 0 if optimizer is None else weights
    # A run insists on a panel for each lane, and some more; see `open_backing`.
    least = (lanes + 5) * _largest_bytes(graph) + tiles + 2 * MIB
    return min(limit, max(least, weights + gradients + tiles + (lanes + 3) * MIB))


def _largest_bytes(graph: Graph) -> int:
    return 4 * max(panel_sizes(graph.weights.values()))


def _flying_bytes(graph: Graph, grains: int, lanes: int, *, in_file: bool) -> int:
    """Gradients on their way, at most.

    At each level of the tree that sums them one of a panel waits, each lane has one, one is applied; and there are
    gradients of the panels that the fastest lane is ahead.
    """
    panels = (max(1, grains) - 1).bit_length() + lanes + 1
    if in_file:
        return max(PANELS_IN_FLIGHT, panels) * _largest_bytes(graph)
    return most_in_flight_bytes(graph, panels + (STAGES_APART if lanes > 1 else 0))


def _batch_bytes(graph: Graph, batch_size: int) -> int:
    return batch_size * sum(4 * prod((tensor.tokens, *tensor.shape[1:])) for tensor in graph.inputs)


def _meeting_bytes(params: Params, graph: Graph, mode: str) -> int:
    """Memory of the ops beyond a barrier, where the samples of a batch meet."""
    barrier = graph.barrier
    if barrier is None:
        return 0
    return sum(
        make_plan(barrier.beyond, loader.batch_size, trains=trains, is_beyond=True).slot_bytes
        for loader, trains in _loaders(params, mode)
    )


def estimate_disk(params: Params, graph: Graph, mode: str, room_bytes: int, *, has_base: bool = False) -> int:
    """Estimate the growth of model_dir by a run: MemoryX in a file with its slots, checkpoints that stay, logs [bytes].

    Args:
        room_bytes: memory that it may take
        has_base: whether it begins with a checkpoint that the params do not name; checkpoints of adapters beside a
            base have no more
    """
    if mode.startswith("eval"):
        state = KeptModel(graph, None, sparsity_rules(params, graph, KernelChooser("never"))).state_bytes
        in_file = params.memoryx.store == "file"
        return LOG_BYTES + (int(OVERHEAD_SHARE * state) + CHECKPOINT_BYTES if in_file else 0)
    sparsity = sparsity_rules(params, graph, KernelChooser("never"))
    optimizer = make_optimizer(params.trained_by, params.precision.max_gradient_value)
    # Of sparse weights files also have the places of the numbers.
    places = sum(4 * graph.weights[name].size for name in sparsity.groups)
    state = KeptModel(graph, optimizer, sparsity).state_bytes
    alone = (has_base or params.checkpoint_path is not None) and params.tuning.adapters and not sparsity.groups
    left_out = sum(4 * weight.size for weight in graph.weights.values() if weight.frozen) if alone else 0
    one = int(OVERHEAD_SHARE * (state + places - left_out)) + CHECKPOINT_BYTES
    count, every = 1, params.checkpoint.steps
    if every:
        made = params.loop.checkpoints(every)
        count = 1 if made is None else made + params.checkpoint.save_initial_checkpoint
        if params.keep_checkpoints is not None:
            # A new one is whole before an old one goes.
            count = min(count, params.keep_checkpoints + 1)
    found = count * one + LOG_BYTES
    free = max(0, room_bytes - BASE_BYTES)
    if params.memoryx.store == "file" or (params.memoryx.store == "auto" and state > FILE_SHARE * free):
        slots = 2 if params.memoryx.commit_steps > 0 else 1
        gradients = sum(4 * weight.size for weight in graph.trained_weights.values())
        found += slots * one + gradients
    return found


def estimate_seconds(params: Params, graph: Graph, mode: str, lanes: int, step_s: float | None = None) -> float | None:
    """Estimate the time of a run from step 0 [s]; None if it is unknown.

    Args:
        step_s: of a step, if measured elsewhere; None for the prediction by the rates of this host, if they are
            measured, and the model is not too large to lay out for that
    """
    steps = params.loop.num_steps or params.loop.max_steps
    if mode.startswith("eval") or steps is None:
        return None
    if step_s is None:
        rates, [loader] = load_rates(), params.dataloaders("train")
        if rates is None or len(graph.ops) > PLANNED_OPS:
            return None
        setup = planned_setup(params, graph, loader.batch_size)
        step_s = predict_step(graph, rates, replace(setup, lanes=min(lanes, setup.grains))).step_s
    return START_S + steps * step_s + _evaluation_s(params, mode, steps, step_s)


def _evaluation_s(params: Params, mode: str, steps: int, step_s: float) -> float:
    """Time of evaluations on the way and at the end: a batch forward is a third of a step, about [s]."""
    batches = params.loop.eval_steps
    if mode != "train_and_eval" or batches is None:
        return 0.0
    every = params.loop.eval_interval(steps)
    times = 1 if every is None else ceil(steps / every)
    return times * len(params.val_dataloaders) * batches * step_s / 3
