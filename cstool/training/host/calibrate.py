"""The speed of this host, measured in seconds: small models of every kind of op are trained, and costs fitted to them.

The models are for measurement only. Batches are read ahead as in a run. If all cores have a lane, the optimizer does
nothing, so that the times of ops are theirs alone; if cores are left, it updates beside them, as in a run. Updates by
themselves, memory and disk are measured as well.
"""

import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import yaml

from cstool.foundation.errors import EstimateError
from cstool.model.graphs import declared_form, trained_graph
from cstool.model.ir import OP_RULES, Graph, matrix_of
from cstool.model.optimizers import Optimizer, Step, WholeOptimizer, forms, make_optimizer, rule_name
from cstool.model.params import Params, parse_params
from cstool.training.data import MASKS, Sampler
from cstool.training.data.dataset import Field
from cstool.training.host.step import PASSES, HostRates, OnHost, Work, fit_cost, fit_rates, kind_of, rest_row
from cstool.training.kernels.compile import UPDATE_KERNELS, compile_kernels
from cstool.training.kernels.fastest import choose_for
from cstool.training.kernels.gemm_providers import FLOAT32
from cstool.training.kernels.one_thread import one_blas_thread
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.grains import available_cores, grain_samples, lanes_for
from cstool.training.machine.inputs import InputWorker
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.prepare import needed_kernels
from cstool.training.machine.sparsity import KernelChooser, sparsity_rules
from cstool.training.machine.state import environment
from cstool.training.store.block_file import BlockFile

Array = np.ndarray[Any, Any]

STEPS, MOST_STEPS = 5, 41
"""of each model, at least and at most; the first warms up, of every op the median of the others counts"""
PROBE_S = 0.6
"""duration of the training of a model, unless the fewest steps take longer"""
SAMPLES = 1024
"""of the data set"""
UPDATE_WEIGHTS = 1 << 22
UPDATES = 4
DISK_BYTES = 1 << 28
BLOCK_BYTES = 1 << 23
MESSAGE_BYTES, MESSAGES = 1 << 19, 400
Report = Callable[[str, int, int], None]
"""report(name of the measurement, number done, number in all)"""


@dataclass(frozen=True)
class _Probe:
    """A model that is trained for its times: a decoder, or a fully connected one where it has no heads."""

    name: str
    hidden: int
    batch: int
    heads: int = 0
    sequence: int = 0
    vocabulary: int = 0
    dropout: float = 0.0
    sparsity: float = 0.0


PROBES = (
    _Probe("gpt2", 64, 16, 2, 64, 128),
    _Probe("gpt2", 128, 24, 4, 128, 256),
    _Probe("gpt2", 256, 8, 4, 256, 1024, dropout=0.1),
    _Probe("gpt2", 512, 4, 8, 512, 8192),
    _Probe("gpt2", 1024, 4, 16, 512, 2048),
    _Probe("llama", 128, 24, 4, 128, 256),
    _Probe("llama", 768, 4, 12, 512, 1024),
    _Probe("fc_mnist", 128, 120),
    _Probe("fc_mnist", 320, 96),
    _Probe("fc_mnist", 384, 128),
    _Probe("fc_mnist", 2048, 64),
    _Probe("fc_mnist", 1536, 512),
    _Probe("fc_mnist", 1024, 96),
    _Probe("gpt2", 256, 8, 4, 256, 256, sparsity=0.9),
    _Probe("gpt2", 1024, 4, 16, 512, 256, sparsity=0.9),
    _Probe("gpt2", 768, 4, 12, 512, 256, sparsity=0.75),
)


class _NoUpdate:
    """An optimizer that does nothing."""

    is_one_loop = False
    name, artifact_key, update_ops = "none", "none", 0

    def states(self, _shape: tuple[int, ...]) -> Mapping[str, tuple[int, ...]]:
        return {}

    def update(self, weight: Array, gradient: Array, states: Sequence[Array], step: Step, decays: bool) -> None:
        pass


def calibrate(folder: Path, report: Report) -> HostRates:
    """Measure this host.

    Args:
        folder: on the disk that counts
        report: is told the progress

    Raises:
        EstimateError: the folder cannot be written
    """
    compile_kernels(lambda *_: None, {f"{UPDATE_KERNELS} {rule_name(optimizer)}" for optimizer in forms()})
    measured: dict[str, list[tuple[Work, float]]] = {}
    rests: list[tuple[Any, float, float]] = []
    for number, probe in enumerate(PROBES):
        report(f"{probe.name} {probe.hidden}", number, len(PROBES) + 2)
        rests.append(_measure(probe, measured))
    report("updates", len(PROBES), len(PROBES) + 2)
    update_s = _measure_updates()
    report("disk", len(PROBES) + 1, len(PROBES) + 2)
    cached, read, write = _measure_disk(folder)
    socket_s = _measure_sockets()
    costs = {name: fit_cost([work for work, _ in found], [s for _, s in found]) for name, found in measured.items()}
    for kind, rules in OP_RULES.items():
        if rules.measured_as is not None:
            for direction in PASSES:
                costs.setdefault(f"{kind.value} {direction}", costs[f"{rules.measured_as.value} {direction}"])
    step_s, stage_s, uneven = fit_rates(*map(list, zip(*rests, strict=True)))
    return HostRates(
        cpu=environment()["cpu"],
        cores=available_cores(),
        costs=costs,
        update_s=update_s,
        step_s=step_s,
        stage_s=stage_s,
        uneven=uneven,
        cached_bytes_per_s=cached,
        read_bytes_per_s=read,
        write_bytes_per_s=write,
        socket_s=socket_s,
    )


def _params(probe: _Probe) -> Params:
    model: dict[str, Any] = {"name": probe.name}
    if probe.heads:
        model |= {
            "hidden_size": probe.hidden,
            "num_heads": probe.heads,
            "num_hidden_layers": 1,
            "filter_size": 4 * probe.hidden,
            "vocab_size": probe.vocabulary,
            "max_position_embeddings": probe.sequence,
        }
        if probe.name == "llama":
            model |= {"position_embedding_type": "rotary", "norm_type": "rmsnorm", "nonlinearity": "swiglu"}
        if probe.dropout:
            model |= {"dropout_rate": probe.dropout, "attention_dropout_rate": probe.dropout}
    else:
        model |= {"hidden_sizes": [probe.hidden, probe.hidden], "activation_fn": "relu", "dropout": 0.0}
    init: dict[str, Any] = {
        "model": model,
        "optimizer": {"SGD": {"learning_rate": 0.1, "momentum": 0.9}},
        "loop": {"max_steps": STEPS},
    }
    if probe.sparsity:
        init["sparsity"] = probe.sparsity
    return parse_params(yaml.safe_dump({"trainer": {"init": init}}), "calibration")


def _measure(probe: _Probe, measured: dict[str, list[tuple[Work, float]]]) -> tuple[Any, float, float]:
    """Train a model for its times; add the times of its ops, and return the overhead of a step, and the time in all."""
    params = _params(probe)
    graph = trained_graph(params, declared_form(params))
    samples = grain_samples(graph, probe.batch)
    lanes = lanes_for(graph, samples, probe.batch // samples)
    sparsity = sparsity_rules(params, graph, KernelChooser("always"))
    compile_kernels(lambda *_: None, needed_kernels(graph, FLOAT32, sparsity.groups))
    with (
        Appliance(
            KeptModel(
                graph,
                _NoUpdate() if lanes >= available_cores() else make_optimizer(params.trained_by, None),
                sparsity,
            ),
            seed=0,
        ) as appliance,
        InputWorker(_Numbers(graph), Sampler(SAMPLES, probe.batch, True, 0, True), 0, None) as worker,
    ):
        systems = appliance.prepare(probe.batch, trains=True)
        appliance.memoryx.initialize(0)
        # As a run does.
        appliance.multiply_with(choose_for(graph, FLOAT32, samples, trains=True))
        spent: dict[tuple[str, str], list[float]] = {(op.name, p): [] for op in graph.ops for p in PASSES}
        took: list[float] = []
        before, ends = systems.op_seconds, time.perf_counter() + PROBE_S
        for step in range(1, MOST_STEPS + 1):
            began = time.perf_counter()
            appliance.train_step(worker.next(), step, 1e-6)
            took.append(time.perf_counter() - began)
            after = systems.op_seconds
            for (name, p), seconds in spent.items():
                seconds.append(after[name][p] - before[name][p])
            before = after
            if step >= STEPS and time.perf_counter() > ends:
                break
        on_host = OnHost(graph, samples, systems.plan.keeps, lanes)
        for op in graph.ops:
            sparse = appliance.memoryx.arrays.sparse.get(matrix_of(op) or "")
            density = 1.0 if sparse is None else sparse.count / sparse.weight.size
            for direction in PASSES:
                work = on_host.work(op, direction, density)
                median_s = median(spent[op.name, direction][1:]) / systems.grains
                measured.setdefault(f"{kind_of(op, density)} {direction}", []).append((work, median_s))
        lane_s = [sum(step) / lanes for step in zip(*spent.values(), strict=True)]
        rests = [whole - ops for whole, ops in zip(took[1:], lane_s[1:], strict=True)]
        compute_s, rest_s = median(lane_s[1:]), max(median(rests), 0.0)
        return rest_row(lanes, len(graph.ops), compute_s), rest_s, rest_s + compute_s


class _Numbers:
    """A data set of random numbers, read like one of a file."""

    def __init__(self, graph: Graph) -> None:
        rng = np.random.default_rng(0)
        self.fields = {tensor.name: Field(tensor.shape, tensor.dtype) for tensor in graph.inputs}
        self.sample_count = SAMPLES
        self._arrays: dict[str, Any] = {}
        for name, field in self.fields.items():
            shape = (SAMPLES, *field.shape)
            if name in MASKS:
                self._arrays[name] = np.ones(shape, np.float32)
            elif field.dtype == "int32":
                self._arrays[name] = rng.integers(0, 10, shape, dtype=np.int32)
            else:
                self._arrays[name] = rng.standard_normal(shape, dtype=np.float32)

    def describe(self) -> str:
        return "random numbers"

    def read(self, indices: np.ndarray[Any, Any], out: Mapping[str, np.ndarray[Any, Any]], _epoch: int = 0, /) -> None:
        for name, array in out.items():
            np.take(self._arrays[name], indices, axis=0, out=array)

    def close(self) -> None:
        pass


def _measure_updates() -> dict[str, float]:
    """Measure the update of a weight on one thread while all cores update, by optimizer [s]."""
    cores, step = available_cores(), Step(2, 1e-3, 1.0)
    found = {}
    with ThreadPoolExecutor(cores) as threads, one_blas_thread():
        for optimizer in forms():
            weight = (UPDATE_WEIGHTS // 1024, 1024) if isinstance(optimizer, WholeOptimizer) else (UPDATE_WEIGHTS,)
            shapes = [weight, weight, *optimizer.states(weight).values()]
            sets = [[np.full(shape, 1e-3, np.float32) for shape in shapes] for _ in range(cores)]

            def update(rule: Optimizer = optimizer, sets: list[list[Array]] = sets) -> None:
                list(threads.map(lambda arrays: rule.update(arrays[0], arrays[1], arrays[2:], step, True), sets))

            found[optimizer.name] = min(_seconds(update, 1 + UPDATES)[1:]) / UPDATE_WEIGHTS
    return found


def _seconds(run: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return found


def _measure_sockets() -> float:
    """Measure the time of a core per byte out of a host, or in: by TCP, from this process to itself [s].

    MPI copies received bytes once more, out of a buffer of its own.
    """
    leaving, arriving, own = (memoryview(bytearray(MESSAGE_BYTES)) for _ in range(3))

    def send(address: Any) -> None:
        with socket.create_connection(address) as connection:
            for _ in range(MESSAGES):
                connection.sendall(leaving)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as thread:
        sent = thread.submit(send, listener.getsockname())
        connection, _ = listener.accept()
        with connection:
            began_s = time.process_time()
            while connection.recv_into(own, MESSAGE_BYTES, socket.MSG_WAITALL):
                arriving[:] = own
            seconds = time.process_time() - began_s
        sent.result()
    return seconds / (2 * MESSAGES * MESSAGE_BYTES)


def _measure_disk(folder: Path) -> tuple[float, float, float]:
    """Rates of a copy from the page cache, of reading the disk, and of writing it, synced, the faster of two [B/s]."""
    block = np.ones(BLOCK_BYTES, np.uint8)

    def go(move: Callable[[int, Any], None], synced: int | None = None) -> None:
        for offset in range(0, DISK_BYTES, BLOCK_BYTES):
            move(offset, block)
        if synced is not None:
            with suppress(OSError):
                os.fdatasync(synced)

    try:
        with tempfile.TemporaryFile(dir=folder, prefix=".cstool-disk-") as file:
            descriptor = file.fileno()
            os.posix_fallocate(descriptor, 0, DISK_BYTES)
            with (
                closing(BlockFile(folder, os.dup(descriptor))) as cached,
                closing(BlockFile(folder, os.dup(descriptor), direct=True)) as direct,
            ):
                write_s = min(_seconds(lambda: go(direct.write, descriptor), 2))
                read_s = min(_seconds(lambda: go(direct.read), 2))
                go(cached.write)
                copy_s = min(_seconds(lambda: go(cached.read), 2))
    except OSError as error:
        raise EstimateError(f"{folder}: must be a folder that can be written, got: {error.strerror}") from error
    return DISK_BYTES / copy_s, DISK_BYTES / read_s, DISK_BYTES / write_s
