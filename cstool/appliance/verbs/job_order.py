"""From params and flags to the order of a job: checked as a run checks them, with its needs of the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cstool.appliance.queue.job import PRIORITIES, USUAL_PRIORITY, Capacity, JobOrder, Needs
from cstool.appliance.queue.names import check_labels, check_note
from cstool.foundation.errors import ClusterError, CstoolError, ParamsError
from cstool.foundation.words import BYTE_UNITS, check_choice, parse_quantity
from cstool.model.verbs.asked import check_traced
from cstool.training.verbs.ranks import restart_error
from cstool.training.verbs.run import RunRequest

if TYPE_CHECKING:
    from cstool.model.ir import Graph
    from cstool.model.params import Params
    from cstool.model.params.paths import ResolvedPath

VARIABLES = (
    *("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR"),
    *("CSTOOL_CACHE_DIR", "XDG_CACHE_HOME", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "OPENBLAS_CORETYPE"),
)
"""variables of the environment that a job gets as they are at its submission: places and kinds of programs and
kernels, the language; no secrets"""
_MOST = 2**31 - 1
"""lanes and restarts of a job"""
LEAST_MEMORY_BYTES, LEAST_DISK_BYTES = 300 * 2**20, 100 * 2**20
"""needs of a job that runs no model, such as a compile"""

History = Callable[[str, int], float | None]
"""seconds per step of jobs that ended, by compile_key and cores; see `Queue.history_s`"""


@dataclass(frozen=True)
class JobRequest:
    """Request for a job, beside its params; None, or nothing, where nothing was typed.

    Args:
        run: how the params are run; its lanes are the cores of the job
        typed: the command as it was typed
        program: words that start cstool, such as [python, -m, cstool]
        params_file: where the params came from, for people
        memory: budget of all processes of the job together, such as "2GiB"
        disk: largest growth of its model_dir, such as "10GB"
        time: limit, as sbatch takes it: minutes, h:mm:ss, days-hours
        priority: p1, p2 or p3; None for the priority in the params, or else p2
        labels: KEY=VALUE each; they win over labels in the params
        note: free text, one line
        preempts: whether running jobs of a lower priority may be stopped for it
        max_restarts: largest number of restarts after crashes; None for 0
        compile_dir: of artifacts where the params name no folder; None for a run's usual one, in model_dir
        backend_options: options of the back end
    """

    run: RunRequest = field(default_factory=RunRequest)
    typed: Sequence[str] = ()
    program: Sequence[str] = ()
    params_file: str = ""
    memory: str | None = None
    disk: str | None = None
    time: str | None = None
    priority: str | None = None
    labels: Sequence[str] = ()
    note: str = ""
    preempts: bool = False
    max_restarts: int | None = None
    compile_dir: Path | None = None
    backend_options: Sequence[str] = ()


def make_order(
    trainers: Sequence[Params],
    request: JobRequest,
    *,
    capacity: Capacity | None = None,
    history: History | None = None,
) -> JobOrder:
    """Return the order of a job, once all is checked that can be before it waits for its turn.

    Args:
        trainers: of one params file
        request: the rest of the request
        capacity: of the appliance; None: unknown
        history: times of earlier steps; None for no history

    Raises:
        CstoolError: an error that the user can act on: as of a run, or the request cannot be met
    """
    run = request.run
    keys = _job_keys(trainers)
    priority = _priority(request.priority, keys)
    labels = check_labels(keys.get("job_labels", ())) | check_labels(request.labels)
    note = check_note(request.note)
    if request.max_restarts is not None and request.max_restarts < 0:
        raise ClusterError(f"--max_restarts: must be at least 0, got {request.max_restarts}")
    for flag, count in (("--max_restarts", request.max_restarts), ("--lanes", run.lanes)):
        if count is not None and count > _MOST:
            raise ClusterError(f"{flag}: must be at most {_MOST}, got {count}")
    cannot_restart = restart_error(trainers, run.checkpoint_path is None and run.load_checkpoint_states is None)
    if request.max_restarts and cannot_restart is not None:
        raise cannot_restart
    if run.trace is not None:
        check_traced(trainers, run.mode)
    trainers = _settled(trainers, request.compile_dir)
    graphs = _checked(trainers, run)
    compiles = _compilation(trainers, graphs, run)
    return JobOrder(
        typed=tuple(request.typed),
        program=tuple(request.program),
        run_words=tuple(_run_words(run)),
        compile_words=compiles.words,
        params=params_text(trainers),
        params_file=request.params_file or str(trainers[0].path),
        working_dir=Path.cwd(),
        environment={name: os.environ[name] for name in VARIABLES if name in os.environ},
        model=trainers[0].model.name,
        mode=run.mode,
        model_dir=Path(os.path.abspath(trainers[0].model_dir)),
        compile_dir=Path(os.path.abspath(trainers[0].artifacts_dir)),
        compile_key=compiles.key,
        max_steps=_last_step(trainers, run.mode),
        needs=_needs(trainers, graphs, request, keys, capacity, history, compiles.key),
        priority=priority,
        labels=labels,
        note=note,
        preempts=request.preempts,
        preemptible=cannot_restart is None,
        max_restarts=request.max_restarts or 0,
        backend_options=tuple(request.backend_options),
    )


def params_text(trainers: Sequence[Params]) -> str:
    """Return trainers as the text of a params file that asks for the same, wherever it lies."""
    import yaml

    resolved = [params.resolved() for params in trainers]
    data = resolved[0] if len(resolved) == 1 else {"trainer": resolved}
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def _job_keys(trainers: Sequence[Params]) -> Mapping[str, Any]:
    """The entries of the params about the job; of several trainers the entries of the first.

    Raises:
        ParamsError: an entry that no job can have
    """
    keys, where = trainers[0].job_keys, f"{trainers[0].path}: trainer.init.backend.cluster_config"
    labels, seconds = keys.get("job_labels", ()), keys.get("job_time_sec")
    if not isinstance(labels, list | tuple) or not all(isinstance(label, str) for label in labels):
        raise ParamsError([(f"{where}.job_labels must be a list of KEY=VALUE for a job, got {labels!r}", None)])
    if seconds is not None and (type(seconds) not in (int, float) or not 0 < seconds < 2**53):
        raise ParamsError([(f"{where}.job_time_sec must be a number of seconds for a job, got {seconds!r}", None)])
    return keys


def _priority(typed: str | None, keys: Mapping[str, Any]) -> str:
    if typed is not None:
        check_choice("--priority", typed, PRIORITIES)
        return typed
    written = str(keys.get("job_priority", USUAL_PRIORITY))
    check_choice("trainer.init.backend.cluster_config.job_priority", written, PRIORITIES)
    return written


def _settled(trainers: Sequence[Params], compile_dir: Path | None) -> list[Params]:
    """The trainers with one folder of artifacts, and with final paths of checkpoints that an earlier trainer makes.

    Relative paths of a params file start from its folder, or else the working directory, if the file is there. A
    checkpoint that is yet to be made is in neither.
    """
    folders = [Path(os.path.abspath(params.model_dir)) for params in trainers]

    def settle(found: ResolvedPath | None) -> ResolvedPath | None:
        if found is None:
            return None
        made = [path for path in found.tried if any(path.is_relative_to(folder) for folder in folders)]
        return replace(found, path=found.now if found.now.exists() or not made else made[0])

    return [
        replace(
            params,
            compile_dir=Path(os.path.abspath(params.compile_dir or compile_dir or params.artifacts_dir)),
            model_dir=Path(os.path.abspath(params.model_dir)),
            checkpoint_path=settle(params.checkpoint_path),
            eval_checkpoint_path=settle(params.eval_checkpoint_path),
        )
        for params in trainers
    ]


def _checked(trainers: Sequence[Params], run: RunRequest) -> list[Graph | None]:
    """Check the inputs of each trainer; return its model, None where nothing runs.

    Raises:
        CstoolError: an error that the user can act on
    """
    from cstool.model.graphs.following import check_following
    from cstool.training.machine.data_sets import check_data

    graphs = [
        None if params.compile_only or params.validate_only else check_data(params, run.mode) for params in trainers
    ]
    known = [graph for graph in graphs if graph is not None]
    if len(known) == len(trainers) > 1:
        check_following(trainers, known)
    return graphs


class _Compilation(NamedTuple):
    """Words of a command that compiles a job's models, and the key that equal compilations share."""

    words: tuple[str, ...] = ()
    key: str = ""


def _compilation(trainers: Sequence[Params], graphs: Sequence[Graph | None], run: RunRequest) -> _Compilation:
    """How the models of trainers are compiled.

    The command that compiles reads no data. Where samples are shorter than the params alone say, it is told their
    length; where that does not do, the run compiles for itself.

    Raises:
        CompileError, ArtifactError: as the run would say
    """
    from cstool.model.graphs import SampleForm, declared_form, trained_graph
    from cstool.model.ir import plain_digest, require_model
    from cstool.model.system import load_system
    from cstool.plan import compiler
    from cstool.plan.compiler.cache import compile_inputs
    from cstool.plan.compiler.compile import make_program

    if run.artifact is not None:
        for params, graph in zip(trainers, graphs, strict=True):
            artifact = compiler.load_compiled(params, run.artifact)
            if graph is not None:
                require_model(artifact, graph, str(run.artifact))
        return _Compilation()
    if trainers[0].validate_only:
        return _Compilation()
    system, keys, is_declared = load_system(run.system), [], True
    words = ["compile", *_modelled_words(run)]
    for number, (params, graph) in enumerate(zip(trainers, graphs, strict=True)):
        form = declared_form(params) if graph is None else SampleForm.of(graph)
        if graph is not None and trained_graph(params, declared_form(params)) != graph:
            length = _length_that_declares(params, graph)
            is_declared &= length is not None
            trainer = "trainer" if len(trainers) == 1 else f"trainer.{number}"
            words += ["--set", f"{trainer}.{_LENGTH}={length}"]
        program = make_program(params, system, execution_mode=run.execution_mode, recompute=run.recompute, form=form)
        keys.append(plain_digest(dict(compile_inputs(params.model, program))))
    key = keys[0] if len(keys) == 1 else plain_digest({str(number): each for number, each in enumerate(keys)})
    return _Compilation(tuple(words) if is_declared else (), key)


_LENGTH = "fit.train_dataloader.max_sequence_length"


def _length_that_declares(params: Params, graph: Graph) -> int | None:
    """The max_sequence_length with which the params describe the samples as the data do; None if none does."""
    from cstool.model.graphs import declared_form, trained_graph

    loader, length = params.train_dataloader, graph.sequence_length
    if loader is None or length is None or not hasattr(loader, "max_sequence_length"):
        return None
    declared = replace(params, train_dataloader=loader.model_copy(update={"max_sequence_length": length}))
    return length if trained_graph(params, declared_form(declared)) == graph else None


def _modelled_words(run: RunRequest) -> list[str]:
    """The flags about the modelled wafer that are not the usual ones."""
    usual = RunRequest()
    words = []
    if run.system != usual.system:
        words += ["--system", os.path.abspath(run.system) if Path(run.system).is_file() else run.system]
    for name in ("execution_mode", "recompute"):
        if getattr(run, name) != getattr(usual, name):
            words += [f"--{name}", getattr(run, name)]
    return words


def _run_words(run: RunRequest) -> list[str]:
    """The words that run a job, without --lanes and --params; paths are absolute."""
    words = ["run", "--mode", run.mode, *_modelled_words(run)]
    for name in ("checkpoint_path", "artifact", "trace"):
        if (path := getattr(run, name)) is not None:
            words += [f"--{name}", os.path.abspath(path)]
    if run.load_checkpoint_states is not None:
        words += ["--load_checkpoint_states", run.load_checkpoint_states]
    for name in ("sparse_kernels", "executor"):
        if getattr(run, name) != getattr(RunRequest(), name):
            words += [f"--{name}", getattr(run, name)]
    return words


def _last_step(trainers: Sequence[Params], mode: str) -> int | None:
    """The step with which a job ends, as far as it is known before it starts."""
    loop = trainers[-1].loop
    return None if mode.startswith("eval") or loop.num_steps is not None else loop.max_steps


def _needs(
    trainers: Sequence[Params],
    graphs: Sequence[Graph | None],
    request: JobRequest,
    keys: Mapping[str, Any],
    capacity: Capacity | None,
    history: History | None,
    compile_key: str,
) -> Needs:
    """The needs of the job: as stated, else as estimated; of several trainers the largest needs.

    Raises:
        CstoolError: a stated value is no size or time
    """
    from cstool.foundation.slurm.batch_script import limit_s
    from cstool.training.host.job_needs import estimate_disk, estimate_memory, estimate_seconds, lanes_of

    sources = dict.fromkeys(("cores", "memory_bytes", "disk_bytes"), "estimated")
    run = request.run
    pairs = [(params, graph) for params, graph in zip(trainers, graphs, strict=True) if graph is not None]
    most = None if capacity is None else len(capacity.cpus)
    if run.lanes is not None:
        cores, sources["cores"] = run.lanes, "stated"
    else:
        cores = max((lanes_of(params, graph, run.mode, most) for params, graph in pairs), default=1)
    memory, disk = _size("--memory", request.memory), _size("--disk", request.disk)
    if memory is None:
        room = None if capacity is None else capacity.memory_bytes
        estimates = [estimate_memory(params, graph, run.mode, cores, room) for params, graph in pairs]
        memory = max((each.total for each in estimates), default=0)
        memory = max(memory, LEAST_MEMORY_BYTES)
        if any(each.is_capped for each in estimates):
            sources["memory_bytes"] = "capped"
    else:
        sources["memory_bytes"] = "stated"
    if disk is None:
        has_base = run.checkpoint_path is not None
        each_disk = (estimate_disk(*pair, run.mode, memory, has_base=has_base) for pair in pairs)
        disk = sum(each_disk) or LEAST_DISK_BYTES
    else:
        sources["disk_bytes"] = "stated"
    limit: float | None = None
    if request.time is not None:
        limit = limit_s(request.time)
    elif (written := keys.get("job_time_sec")) is not None:
        limit = float(written)
    seconds = None
    if pairs and len(pairs) == len(trainers):
        per_step = history(compile_key, cores) if history is not None and compile_key else None
        each = [estimate_seconds(params, graph, run.mode, cores, per_step) for params, graph in pairs]
        seconds = None if None in each else sum(filter(None, each))
        if seconds is not None:
            sources["seconds"] = "measured" if per_step is not None else "estimated"
    if limit is not None:
        sources["limit_s"] = "stated"
        if seconds is None or seconds > limit:
            seconds, sources["seconds"] = limit, "stated"
    systems = max(params.num_csx for params in trainers)
    return Needs(cores, memory, disk, systems, seconds, limit, sources)


def _size(flag: str, text: str | None) -> int | None:
    """A size that was typed [bytes].

    Raises:
        CstoolError: it is none
    """
    if text is None:
        return None
    value = parse_quantity(text, BYTE_UNITS)
    if value is None or value >= 2**63 or round(value) < 1:
        raise CstoolError(f"{flag}: must be a size, such as 2GiB, got {text!r}")
    return round(value)
