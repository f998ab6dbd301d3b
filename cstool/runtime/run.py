"""The verb behind `cstool run`: open the data, build the model, restore, train, evaluate, save."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from cstool.data import (
    HDF5_TEXT_PROCESSORS,
    MNIST_PROCESSOR,
    Dataset,
    SinkTokensDataset,
    batches_per_epoch,
    open_dataset,
)
from cstool.errors import CheckpointError, DataError, Interrupted
from cstool.ir import Artifact, Graph, require_model
from cstool.kernels.compile import compile_kernels, kernels_cached
from cstool.models import build_graph
from cstool.params import DataloaderParams, DecoderParams, Params
from cstool.runtime.appliance import Appliance
from cstool.runtime.checkpoints import choose_start, restore
from cstool.runtime.evaluate import evaluate
from cstool.runtime.events import Events, evaluation_scalars
from cstool.runtime.file_traffic import traffic_of
from cstool.runtime.grains import check_systems, grain_samples
from cstool.runtime.kernel_choice import KernelChooser
from cstool.runtime.memoryx_store import open_backing, streamed_activation_bytes
from cstool.runtime.optimizer import make_optimizer
from cstool.runtime.progress import Progress
from cstool.runtime.session import Modelled, Recomputed, RunResult, Session
from cstool.runtime.sparsity_rules import sparsity_rules
from cstool.runtime.sparsity_table import sparsity_table, table_lines
from cstool.runtime.state import parse_states
from cstool.runtime.step_statistics import StepStatistics
from cstool.runtime.stopping import StopRequest
from cstool.runtime.summary import conclude
from cstool.runtime.time_split import EVALUATION, TimeSplit
from cstool.runtime.train import train
from cstool.runtime.wording import counted
from cstool.sparsity import assign_groups
from cstool.store import sweep_temporary

log = logging.getLogger("cstool")
COMPILING = "Compiling kernels"


def run(
    params: Params,
    artifact: Artifact,
    *,
    mode: str,
    checkpoint_path: Path | None = None,
    load_checkpoint_states: str | None = None,
    strict: bool = True,
    lanes: int | None = None,
    sparse_kernels: str = "auto",
    trace: Path | None = None,
    log_folder: Path | None = None,
    command: Callable[[Mapping[str, str | None]], str] | None = None,
    progress: Progress,
) -> RunResult:
    """Do what a params file asks for.

    Args:
        params: checked params
        artifact: the model compiled; its graph is what runs, op by op in the order of its stream
        mode: "train", "eval" or "train_and_eval"
        checkpoint_path: start from this one; None for the latest in model_dir, if there is one
        load_checkpoint_states: "all", or which parts to load; None for what the params say
        strict: whether a checkpoint must hold exactly the weights of the model
        lanes: host threads; None to choose
        sparse_kernels: one of `SPARSE_KERNELS`
        trace: the file that a trace of a few training steps goes to; None for no trace
        log_folder: of the log of this run, for `performance.json`; None for none
        command: writes the command that began the run with other flags, for what to type next; None for nothing
        progress: is told what is going on

    Raises:
        CstoolError: whatever the user can act on
    """
    times = TimeSplit()
    parse_states(load_checkpoint_states or params.load_checkpoint_states or "all")
    trains = mode != "eval"
    with ExitStack() as stack:
        train_loader, val_loader, train_data, val_data, length = _open_data(params, mode, stack)
        for dataset in (train_data, val_data):
            if dataset is not None:
                log.info(dataset.describe())
        require_model(artifact, build_graph(params.model, length))
        graph = artifact.graph
        optimizer = make_optimizer(params.optimizer, params.precision.max_gradient_value) if trains else None
        chooser = KernelChooser(sparse_kernels)
        sparsity = sparsity_rules(params, graph, chooser)
        prepare_model_dir(params.model_dir)
        start = choose_start(params, checkpoint_path, load_checkpoint_states, trains=trains)
        backing = open_backing(params, graph, optimizer, sparsity, start, lanes)
        if backing.store is not None:
            stack.callback(backing.store.close)
        appliance = stack.enter_context(
            Appliance(
                graph,
                optimizer=optimizer,
                max_gradient_norm=params.precision.max_gradient_norm,
                loss_scaling=getattr(params.model, "loss_scaling", "num_tokens"),
                loss_weight=getattr(params.model, "loss_weight", 1.0),
                seed=params.seed,
                learning_rate_scales={
                    name: scale for name in graph.weights if (scale := params.learning_rate_scale(name)) != 1.0
                },
                sparsity=sparsity,
                num_csx=params.num_csx,
                lanes=lanes,
                store=backing.store,
                waiting_bytes=backing.waiting_bytes,
                memory_bytes=None if backing.store is None else streamed_activation_bytes(params, graph),
                recompute=params.activation_checkpointing,
            )
        )
        result = RunResult(mode, params.model.name, graph.parameter_count, num_csx=params.num_csx)
        result.modelled = Modelled(artifact.system.name, artifact.mode, artifact.step_s)
        events = stack.enter_context(Events(params.events_dir))
        session = Session(
            params,
            graph,
            appliance,
            progress,
            result,
            trace=trace,
            chooser=chooser,
            events=events,
            times=times,
            log_folder=log_folder,
            command=command,
        )
        appliance.memoryx.statistics = StepStatistics(with_norms=params.computes_norms)
        for warning in params.warnings:
            log.warning(warning)
        for note in params.notes:
            log.info(note)
        if trains and appliance.loss_scaling == "batch_size":
            log.info(
                "Losses of training steps are as the file scales them: the sum over the tokens of a sample, times "
                f"loss_weight ({appliance.loss_weight:g}). Those of evaluations are nats per token."
            )
        _prepare_systems(session, val_loader, "val_dataloader", trains=False)
        _prepare_systems(session, train_loader, "train_dataloader", trains=True)
        prepare_kernels(progress)
        restore(session, start, strict)
        appliance.memoryx.reserve()
        _settle_kernels(session)

        stop = stack.enter_context(StopRequest())

        def evaluate_now() -> float:
            assert val_data is not None and val_loader is not None
            began = time.perf_counter()
            found = evaluate(
                appliance,
                val_data,
                val_loader,
                step=session.position.step,
                steps=params.loop.eval_steps,
                log_steps=params.logging.log_steps,
                masks=max((weight.group.samples or 0 for weight in appliance.memoryx.dropped.values()), default=0),
                progress=progress,
                stop=stop,
            )
            if found is not None:
                result.evaluations.append(found.as_dict())
                metrics = {"loss": found.loss, "accuracy": found.accuracy}
                if session.tokens_per_sample > 1:
                    metrics["lm_perplexity"] = found.as_dict()["perplexity"]
                events.scalars(found.step, evaluation_scalars(metrics))
            return times.move(time.perf_counter() - began, EVALUATION)

        try:
            if train_data is not None and train_loader is not None:
                train(session, train_data, train_loader, None if val_data is None else evaluate_now, stop)
            if val_data is not None:
                evaluate_now()
            if stop.signal_name is not None and val_data is not None:
                raise Interrupted(
                    f"stopped by {stop.signal_name} during the evaluation after step {session.position.step}",
                    "--mode eval repeats it",
                )
        except Interrupted:
            conclude(session)
            raise
        result.sparsity = sparsity_table(appliance.memoryx)
        if not trains:
            result.streamed_bytes_per_step = sum(systems.streamed_bytes for systems in appliance.systems)
        for line in table_lines(result.sparsity):
            log.info(line)
        if result.sparsity and result.losses:
            log.info(
                f"Streamed {result.streamed_bytes_per_step / 1e6:,.1f} MB of weights a step; with the zeros it would "
                f"have been {result.dense_streamed_bytes_per_step / 1e6:,.1f} MB."
            )
        result.memoryx = traffic_of(appliance.memoryx)
        if result.memoryx is not None:
            log.info(result.memoryx.line())
        conclude(session)
        return result


def _settle_kernels(session: Session) -> None:
    """Say by what the kernels of sparse weights are chosen: by what the run chose before, or by measuring."""
    shapes = session.appliance.memoryx.sparse_shapes()
    if not shapes:
        return
    plan = max(session.appliance.systems, key=lambda systems: systems.trains).plan
    session.chooser.settle(shapes, plan.samples * plan.sequence, session.kept_choices.get("sparse_kernels"))


def check_data(params: Params, mode: str) -> Graph:
    """Check what a run reads, as far as that goes without reading samples, and return the model for it.

    The systems must share the grains of its batches evenly.

    Raises:
        CstoolError: whatever the user can act on
    """
    with ExitStack() as stack:
        data = _open_data(params, mode, stack)
    graph = build_graph(params.model, data.sequence_length)
    for section, loader in (("train_dataloader", data.train_loader), ("val_dataloader", data.val_loader)):
        if loader is not None:
            grain = grain_samples(graph, loader.batch_size)
            check_systems(params.num_csx, loader.batch_size, grain, f"{params.path}: trainer.fit.{section}")
    assign_groups(params.sparsity, graph, params.sparsity_place)
    return graph


class _Data(NamedTuple):
    train_loader: DataloaderParams | None
    val_loader: DataloaderParams | None
    train: Dataset | None
    val: Dataset | None
    sequence_length: int | None


def _open_data(params: Params, mode: str, stack: ExitStack) -> _Data:
    """Open the data sets of a mode; the stack closes them."""
    trains = mode != "eval"
    train_loader = params.dataloader("train") if trains else None
    val_loader = params.dataloader("val" if trains else "eval") if mode != "train" else None
    train_data, val_data = (open_loader(params, loader, stack) for loader in (train_loader, val_loader))
    if train_data is not None and train_loader is not None:
        where = f"{params.path}: trainer.fit.train_dataloader.batch_size"
        batches_per_epoch(train_data.sample_count, train_loader.batch_size, train_loader.drop_last, where)
    return _Data(train_loader, val_loader, train_data, val_data, _sequence_length(params, train_data, val_data))


def open_loader(params: Params, loader: DataloaderParams | None, stack: ExitStack) -> Dataset | None:
    """Open the data set of a dataloader, with its transforms; the stack closes it. None for no dataloader."""
    if loader is None:
        return None
    dataset: Dataset = open_dataset(
        loader.data_processor,
        loader.data_dir,
        split=loader.split,
        max_sequence_length=loader.max_sequence_length,
        vocab_size=getattr(params.model, "vocab_size", None),
        tried=loader.tried,
    )
    stack.callback(dataset.close)
    for sinks in loader.data_transforms:
        dataset = SinkTokensDataset(
            dataset,
            token=sinks.sink_token_id,
            count=sinks.num_sink_tokens,
            position=sinks.sink_token_start_pos,
            keep_length=sinks.truncate_to_original_length,
        )
    return dataset


def _sequence_length(params: Params, *datasets: Dataset | None) -> int | None:
    """Return the tokens of a sample, or None where a sample is not a sequence.

    Raises:
        DataError: a data set is for another kind of model, too long for it, or the two differ in length
    """
    fields = [dataset.fields for dataset in datasets if dataset is not None]
    lengths = [found["labels"].shape[0] if found["labels"].shape else None for found in fields]
    model, path = params.model, params.path
    for found, length in zip(fields, lengths, strict=True):
        if isinstance(model, DecoderParams) != (length is not None):
            text = isinstance(model, DecoderParams)
            wanted = "input_ids, labels, mask" if text else "x, labels, mask"
            raise DataError(
                f"{path}: data_processor must deliver {wanted} for the model {model.name}, got one with "
                f"{', '.join(found)}",
                f"{HDF5_TEXT_PROCESSORS[0] if text else MNIST_PROCESSOR} does",
            )
        if isinstance(model, DecoderParams) and length is not None and length > model.max_position_embeddings:
            most = model.max_position_embeddings - _added_tokens(datasets)
            cut = f"max_sequence_length: {most} in the dataloader cuts them"
            raise DataError(
                f"{path}: the samples must have at most max_position_embeddings ({model.max_position_embeddings}) "
                f"tokens, got {length}",
                cut if most > 0 else "the positions must suffice for the sink tokens, too",
            )
    if len(set(lengths)) > 1:
        raise DataError(
            f"{path}: training and validation samples must have the same number of tokens, got {lengths[0]} and "
            f"{lengths[1]}",
            f"max_sequence_length: {min(n for n in lengths if n is not None)} in both dataloaders makes them alike",
        )
    return lengths[0]


def _added_tokens(datasets: Iterable[Dataset | None]) -> int:
    """Return by how many tokens sinks make the samples longer, at the most."""
    return max((dataset.added_tokens for dataset in datasets if isinstance(dataset, SinkTokensDataset)), default=0)


def _prepare_systems(session: Session, loader: DataloaderParams | None, section: str, *, trains: bool) -> None:
    if loader is None:
        return
    where = f"{session.params.path}: trainer.fit.{section}"
    systems = session.appliance.prepare(loader.batch_size, trains=trains, where=where)
    if not trains and session.appliance.memoryx.optimizer is not None:
        return
    result = session.result
    result.grain_samples, result.lanes, result.waves = systems.plan.samples, len(systems.lanes), systems.waves
    log.info(f"Effective batch size is {loader.batch_size}.")
    log.info(
        f"Preparing to execute using {session.params.num_csx} CSX: {counted(systems.grains, 'grain')} of "
        f"{counted(systems.plan.samples, 'sample')}, {counted(len(systems.lanes), 'lane')}, "
        f"{counted(systems.waves, 'wave')}"
    )
    if trains and systems.waves > 1 and session.appliance.store.outlives:
        size_bytes = 4 * session.graph.parameter_count
        log.warning(
            f"The batch goes in {systems.waves} waves: until the last one, sums of gradients wait in memory, up to "
            f"{size_bytes / 1e9:,.2f} GB of them. A smaller batch_size, or more memory for activations, avoids that."
        )
    if layers := len(systems.plan.timeline.recomputed):
        result.recomputed = Recomputed(layers, systems.plan.slot_bytes, systems.whole_slot_bytes)
        log.info(
            f"Recomputing the activations of {counted(layers, 'layer')} in backward: a grain takes "
            f"{systems.plan.slot_bytes / 1e6:,.1f} MB, {systems.whole_slot_bytes / 1e6:,.1f} MB if all were kept"
        )


def prepare_model_dir(folder: Path) -> None:
    """Make the folder, and clear it of what a killed writer left.

    Raises:
        CheckpointError: it cannot be made
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: model_dir must be a folder that can be written, got: {error.strerror}"
        ) from error
    sweep_temporary(folder)


def prepare_kernels(progress: Progress) -> None:
    """Compile the kernels for this machine, or load what an earlier run compiled."""
    if kernels_cached():
        compile_kernels(lambda name, done, total: None)
        return
    began = time.perf_counter()
    log.info("Compiling the kernels for this machine. This happens once and may take a minute.")

    def show(name: str, done: int, total: int) -> None:
        if done == 0:
            progress.start(COMPILING, total)
        progress.advance(COMPILING, done, name)

    compile_kernels(show)
    progress.finish(COMPILING)
    log.info(f"Compile was successful! It took {time.perf_counter() - began:.1f} seconds.")
