"""From params to a session: the appliance, laid out for the batches, its kernels compiled; and its starting point."""

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from cstool import __version__
from cstool.foundation.errors import CheckpointError
from cstool.foundation.progress import Progress
from cstool.foundation.words import bytes_text, counted
from cstool.model.ir import Artifact, Graph, Loss
from cstool.model.optimizers import make_optimizer
from cstool.model.params import ALL_STATES, BertParams, ModelParams, Params
from cstool.training.kernels.fastest import choose_for
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.gemm_providers import EMULATED, FLOAT32
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.budgets import streamed_activation_bytes
from cstool.training.machine.data_sets import DataSet, DataSets
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx_store import open_backing
from cstool.training.machine.prepare import compile_within_budget, needed_kernels, prepare_kernels
from cstool.training.machine.ranks.orders import CompileKernels, SettleKernels
from cstool.training.machine.sparsity import KernelChooser, sparsity_rules
from cstool.training.machine.start import Start, restore
from cstool.training.machine.state import FORMS_BEFORE, environment, forms
from cstool.training.run.patience import Patience
from cstool.training.run.report.events import Events
from cstool.training.run.report.time_split import TimeSplit
from cstool.training.run.result import Modelled
from cstool.training.run.session import RunOrder, Session
from cstool.training.store import ADAPTERS, base_value, newest_checkpoints, scaler_of

log = logging.getLogger("cstool")


def open_session(
    params: Params,
    artifact: Artifact,
    data: DataSets,
    start: Start,
    order: RunOrder,
    *,
    events: Events,
    times: TimeSplit,
    progress: Progress,
    stack: ExitStack,
) -> Session:
    """Return the session of a run, all but the weights in place.

    Args:
        params: their model_dir is there
        data: the systems are laid out for its batches
        start, order: starting point of the run; its order

    Raises:
        CstoolError: an error that the user can act on
    """
    graph, trains = artifact.graph, data.train is not None
    optimizer = make_optimizer(params.trained_by, params.precision.max_gradient_value) if trains else None
    chooser = KernelChooser(order.sparse_kernels)
    sparsity = sparsity_rules(params, graph, chooser)
    compile_within_budget(progress, needed_kernels(graph, params.host_precision, sparsity.groups.keys(), optimizer))
    kept = KeptModel(
        graph,
        optimizer,
        sparsity,
        precision=params.host_precision,
        max_gradient_norm=params.precision.max_gradient_norm,
        loss_scaling=params.precision.loss_scaling,
        learning_rate_scales={
            name: scale for name in graph.weights if trains and (scale := params.learning_rate_scale(name)) != 1.0
        },
    )
    backing = open_backing(params, kept, start, order.lanes, link=order.link)
    if backing.store is not None:
        stack.callback(backing.store.close)
    nodes_here = sum(order.link.hosts[node] == order.link.hosts[0] for node in range(backing.shards.nodes))
    appliance = stack.enter_context(
        Appliance(
            kept,
            seed=params.seed,
            num_csx=params.num_csx,
            lanes=order.lanes,
            memory_bytes=None
            if backing.store is None
            else streamed_activation_bytes(backing.buffers_bytes, graph, nodes_here),
            recompute=params.activation_checkpointing,
            link=order.link,
            backing=backing,
            executor=order.executor,
            device=order.device,
        )
    )
    modelled = Modelled(artifact.system.name, artifact.mode, artifact.step_s)
    session = Session(params, order, graph, appliance, progress, modelled, chooser=chooser, events=events, times=times)
    appliance.memoryx.statistics.with_norms = params.computes_norms
    if trains and params.early_stopping is not None:
        session.patience = Patience(params.early_stopping)
    if trains and graph.losses[0].scaling == "batch_size":
        _tell_scaling(params.model, graph.losses)
    sizes = {found.loader.batch_size: found for found in reversed(data.held_out)}
    for found in reversed(sizes.values()):
        _prepare_systems(session, found, trains=False, kinds=len(sizes))
    if data.train is not None:
        _prepare_systems(session, data.train, trains=True)
    needs = needed_kernels(graph, appliance.precision, appliance.memoryx.arrays.sparse_names, optimizer)
    prepare_kernels(progress, needs)
    appliance.others.order(CompileKernels(needs))
    return session


def needs_of(params: Params, graph: Graph, *, trains: bool) -> frozenset[str]:
    """Return the needs of a run for kernels, before it is open: see `needed_kernels`."""
    optimizer = make_optimizer(params.trained_by, None) if trains else None
    sparsity = sparsity_rules(params, graph, KernelChooser("never"))
    return needed_kernels(graph, params.host_precision, sparsity.groups.keys(), optimizer)


def _tell_scaling(model: ModelParams, losses: Sequence[Loss]) -> None:
    """Log the meaning of the losses of steps, if each is a sum over several terms of a sample."""
    term = model.loss_term
    if term == "sample":
        return
    key = next(key for key in ("mlm_loss_weight", "lm_loss_weight", "loss_weight") if hasattr(model, key))
    weight = losses[0].weight
    # Of tokens with classes it may be shared out among all of a sample.
    factor = f"{key} ({weight:g})" if getattr(model, key) == weight else f"{weight:g}"
    pairs = " The mean loss of pairs is added to both." if isinstance(model, BertParams) and len(losses) > 1 else ""
    log.info(
        f"Losses of training steps are as the file scales them: the sum over the {term}s of a sample, times {factor}. "
        f"Those of evaluations are nats per {term}.{pairs}"
    )


def settle_kernels(session: Session) -> None:
    """Choose the provider of products and the kernels of sparse weights: as the run chose before, or anew."""
    appliance, kept = session.appliance, session.kept_choices
    plan = max(appliance.clusters, key=lambda systems: systems.trains).plan
    # An evaluation may be in another precision than the run was.
    is_same = kept.get("precision", FLOAT32) == appliance.precision
    name = session.params.precision.products
    if name is None and is_same and kept:
        name = kept.get("gemm", NUMPY.name)
    trains = appliance.memoryx.optimizer is not None
    appliance.multiply_with(choose_for(session.graph, appliance.precision, plan.samples, trains=trains, name=name))
    if appliance.gemm is not NUMPY:
        slow = appliance.gemm.name == EMULATED.name
        log.log(
            logging.WARNING if slow else logging.INFO,
            f"Products take {appliance.precision} operands, with float32 sums, by {appliance.gemm.name}"
            f"{': slower than float32 here, which --precision float32 takes' if slow else ''}.",
        )
    shapes = appliance.memoryx.arrays.sparse_shapes()
    if not shapes:
        return
    session.chooser.settle(shapes, plan.samples * plan.tokens, appliance.gemm, kept.get("sparse_kernels"))
    appliance.others.order(SettleKernels(session.chooser.crossovers))


def _prepare_systems(session: Session, data: DataSet, *, trains: bool, kinds: int = 1) -> None:
    batch_size = data.loader.batch_size
    systems = session.appliance.prepare(batch_size, trains=trains, kinds=kinds)
    if not trains and session.appliance.memoryx.optimizer is not None:
        return
    log.info(f"Effective batch size is {batch_size}.")
    log.info(
        f"Preparing to execute using {session.params.num_csx} CSX: {counted(systems.grains, 'grain')} of "
        f"{counted(systems.plan.samples, 'sample')}, {counted(len(systems.lanes), 'lane')}, "
        f"{counted(systems.waves, 'wave')}"
    )
    if trains and systems.waves > 1 and session.appliance.memoryx.arrays.store.outlives:
        size_bytes = 4 * session.graph.parameter_count
        log.warning(
            f"The batch goes in {systems.waves} waves: until the last one, sums of gradients wait in memory, up to "
            f"{bytes_text(size_bytes)} of them. A smaller batch_size, or more memory for activations, avoids that."
        )
    if layers := len(systems.plan.timeline.recomputed):
        log.info(
            f"Recomputing the activations of {counted(layers, 'layer')} in backward: a grain takes "
            f"{bytes_text(systems.plan.slot_bytes)}, {bytes_text(systems.layout.whole_slot_bytes)} if all were kept"
        )


def take_up(session: Session, start: Start) -> None:
    """Load the starting point of a run into MemoryX, or begin with random weights, and go on from its position.

    Raises:
        CheckpointError: it cannot be read, or is of another model
        StoreError: likewise, of a MemoryX file
    """
    params, memoryx, wanted = session.params, session.appliance.memoryx, start.states
    session.resumes = start.resumes
    session.position, values = restore(memoryx, params, start, session.progress)
    if start.path is None:
        return
    if params.tuning.adapters and not memoryx.arrays.sparse:
        kept = values.get(ADAPTERS)
        is_base = kept is None and start.checkpoint is not None
        session.base = base_value(start.path, session.graph) if is_base else (kept or {}).get("base")
    file = memoryx.arrays.file
    if start.committed is not None and file is not None and file.record is not None:
        session.committed_step = session.position.step
    if wanted == ALL_STATES:
        session.kept_choices = values.get("choices", {})
        if session.patience is not None:
            session.patience.adopt(values.get("early_stopping"))
    if session.resumes and isinstance(values.get("run"), str):
        session.run_id = values["run"]
    if memoryx.optimizer is None:
        return
    if "optimizer" in wanted:
        session.appliance.loss_scale.adopt(scaler_of(start.path, values))
    before, now = session.kept_choices.get("precision", FLOAT32), params.host_precision
    if wanted == ALL_STATES and before != now:
        raise CheckpointError(
            f"{start.path}: was trained with products of {before}, the run asks for {now}",
            f"--precision {before} goes on as it was; --load_checkpoint_states model,optimizer goes on with {now}",
        )
    if "optimizer" in wanted and (changed := _changes(session, values)):
        log.warning(f"Not as it was in the checkpoint: {'; '.join(changed)}. Bits may differ from a straight run.")
    step = session.position.step
    if session.resumes and (changed := _changed_sections(params, values)):
        log.warning(
            f"Not as it was up to step {step}: {' and '.join(changed)}. From here on it is as the params say now, "
            f"with a learning rate of {params.learning_rate(step):g} in the next step."
        )
    for name, sparse in memoryx.arrays.sparse.items():
        if sparse.asked_density not in (None, sparse.density):
            log.warning(
                f"{name} goes on with the {1 - sparse.density:.1%} zeros that it has in the checkpoint: a static mask "
                "does not change, whatever sparsity the params ask for."
            )
            break
    if "optimizer" not in wanted:
        log.info("Only the weights count from here on: the optimizer begins afresh, at step 1.")
        session.weights_of = start.path
    if session.resumes:
        session.saved_step = session.position.step
        if start.committed is not None:
            held = newest_checkpoints(params.model_dir, params.checkpoint.checkpoint_name)
            session.saved_step = held[-1].step if held else None
        log.info(
            f"Resuming from step {session.position.step}. To start fresh, choose another --model_dir, or set "
            "trainer.init.checkpoint.autoload_last_checkpoint to false."
        )


def _changes(session: Session, before: dict[str, Any]) -> list[str]:
    """Changes on which bits depend: versions, the CPU, the seed, the grain, forms."""
    then = {**(FORMS_BEFORE if "choices" in before else {}), **before.get("choices", {})}
    then["seed"] = before.get("random", {}).get("seed")
    now = {**environment(), "grain_samples": session.cluster.plan.samples, "seed": session.params.seed}
    now |= forms(session.params)
    if (products := session.params.precision.products) is not None:
        now["gemm"] = products
    if session.appliance.memoryx.arrays.sparse_shapes():
        then["sparse_kernels"] = _mode(then.get("sparse_kernels"))
        now["sparse_kernels"] = _mode(session.chooser.as_dict())
    return [f"{key} {then[key]} -> {now[key]}" for key in now if then.get(key) not in (None, now[key])]


def _changed_sections(params: Params, before: dict[str, Any]) -> list[str]:
    """Sections on which updates depend, the optimizer and its schedules, that a run had otherwise before."""
    metadata = before.get("__metadata__")
    described = metadata[-1] if isinstance(metadata, list) and metadata else {}
    if not isinstance(described, dict) or described.get("version") != __version__:
        return []  # another version may have had other keys
    then = described.get("params", {}).get("trainer", {}).get("init", {})
    now = json.loads(json.dumps(params.resolved()["trainer"]["init"]))
    return [f"trainer.init.{name}" for name in ("optimizer", "schedulers") if then.get(name) != now.get(name)]


def _mode(chosen: Any) -> str | None:
    """Choice of sparse kernels: by measurement, or by whom."""
    mode = chosen.get("mode") if isinstance(chosen, dict) else None
    return "auto" if mode == "measure" else mode
