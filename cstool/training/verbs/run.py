"""Train and evaluate: the verb behind `cstool run`, and its faces for Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cstool.foundation.errors import CstoolError
from cstool.foundation.progress.screen import OpenScreen, screen_of
from cstool.foundation.words import check_choice
from cstool.model.verbs.asked import asked_params, check_lanes, check_trace_file, check_traced
from cstool.plan.verbs.compiling import EXECUTION_MODES, RECOMPUTE

if TYPE_CHECKING:
    from cstool.foundation.progress import Progress
    from cstool.model.ir import Artifact
    from cstool.model.params import Params
    from cstool.training.machine.device import Device
    from cstool.training.machine.ranks.link import Link
    from cstool.training.run.result import Modelled, RunResult

MODES = ("train", "eval", "train_and_eval", "eval_all")


@dataclass(frozen=True)
class NotRun:
    """The result of params that ask for less than a run.

    Args:
        mode: compile_only or validate_only
        model: its name
        modelled: the compiler's model of the wafer; None where nothing was compiled
    """

    mode: str
    model: str
    modelled: Modelled | None

    def as_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        from dataclasses import asdict

        return asdict(self)


@dataclass(frozen=True)
class RunRequest:
    """Settings of a run beside its params.

    Args:
        mode: "train", "eval", "train_and_eval", or "eval_all"
        checkpoint_path: start from this one (`FILE`, `DIR:STEP`, `DIR:latest`), not from the latest in model_dir
        load_checkpoint_states: the parts of it to load, such as "model"; None for the choice of the params
        system: name of a system, or a system file
        execution_mode: "auto", "pipelined" or "weight_streaming", on the modelled wafer
        recompute: "needed", "fastest", "none" or "all", on the modelled wafer
        artifact: run an earlier result of the compiler; None compiles, or takes the one that is kept
        lanes: host threads; None to choose. Results do not depend on it
        sparse_kernels: "auto", "always", "never" or "measure": the choice of kernels for sparse weights
        executor: "table" or "python": who calls the kernels. Results do not depend on it. "fabric": `run_all` is given
            a device
        trace: a .json file that a trace of a few training steps goes to

    Raises:
        CstoolError: a word is none of these, or a file of a trace cannot be written
    """

    mode: str = "train"
    checkpoint_path: Path | None = None
    load_checkpoint_states: str | None = None
    system: str = "cs2"
    execution_mode: str = "auto"
    recompute: str = "fastest"
    artifact: Path | None = None
    lanes: int | None = None
    sparse_kernels: str = "auto"
    executor: str = "table"
    trace: Path | None = None

    def __post_init__(self) -> None:
        check_choice("mode", self.mode, MODES)
        check_choice("execution_mode", self.execution_mode, EXECUTION_MODES)
        check_choice("recompute", self.recompute, RECOMPUTE)
        check_choice("sparse_kernels", self.sparse_kernels, ("auto", "always", "never", "measure"))
        check_choice("executor", self.executor, ("table", "python", "fabric"))
        check_lanes(self.lanes)
        if self.trace is not None:
            check_trace_file(self.trace)


def run_trainers(
    trainers: Sequence[Params],
    request: RunRequest | None = None,
    *,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> list[RunResult | NotRun]:
    """Run the trainers of a params file, one after the other, each going on from the end of the one before.

    Args:
        trainers: from `load_all_params`
        request: settings of the run; None for training
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        The result of each

    Raises:
        CstoolError: any error that the user can act on
    """
    return run_all(trainers, request or RunRequest(), screen_of(progress), called="run_trainers")


def train(
    params: str | Path | Params,
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    evaluates: bool = False,
    max_steps: int | None = None,
    num_steps: int | None = None,
    eval_steps: int | None = None,
    num_csx: int | None = None,
    seed: int | None = None,
    precision: Literal["float32", "bfloat16"] | None = None,
    model_dir: str | Path | None = None,
    memoryx: Literal["auto", "ram", "file"] | None = None,
    checkpoint_path: str | Path | None = None,
    load_checkpoint_states: str | None = None,
    system: str = "cs2",
    execution_mode: Literal["auto", "pipelined", "weight_streaming"] = "auto",
    artifact: str | Path | None = None,
    lanes: int | None = None,
    sparse_kernels: Literal["auto", "always", "never", "measure"] = "auto",
    executor: Literal["table", "python"] = "table",
    trace: str | Path | None = None,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> RunResult:
    """Train the model of a params file, from its latest checkpoint on, if there is one.

    Arguments that are left out are as the file says. Ctrl-C lets a step finish, saves, and raises `Interrupted`.

    Args:
        params: a params file of one trainer, or params that are loaded
        overrides: values by dotted key, for example `{"trainer.init.optimizer.AdamW.weight_decay": 0.0}`
        evaluates: evaluate on the way and at the end, too
        max_steps: train up to this step, counted from step 0
        num_steps: train this many steps from here on; wins over max_steps
        eval_steps: batches of an evaluation
        num_csx: number of CSX systems
        seed: of all random numbers
        precision: of the operands of products on this host
        model_dir: folder of checkpoints and logs
        memoryx: place of weights and optimizer state
        checkpoint_path: start from this one (`FILE`, `DIR:STEP`, `DIR:latest`), not from the latest
        load_checkpoint_states: the parts of it to load, such as "model"
        system: kind of each CSX: cs1, cs2, cs3, or a system file
        execution_mode: the model's use of the modelled wafer
        artifact: run an earlier result of the compiler
        lanes: host threads; None for one per core. Results do not depend on it
        sparse_kernels: the choice of kernels for sparse weights
        executor: who calls the kernels. Results do not depend on it
        trace: a .json file that a trace of a few steps goes to
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        The losses of all steps [nats], times and memory of this host, evaluations, checkpoints, and modelled numbers

    Raises:
        NonFiniteError: training came to NaN or infinity
        Interrupted: it was stopped, after it saved
        CstoolError: any other error that the user can act on
    """
    numbers = {"max_steps": max_steps, "num_steps": num_steps, "eval_steps": eval_steps}
    about = {"num_csx": num_csx, "seed": seed, "precision": precision, "memoryx": memoryx}
    asked = asked_params(params, overrides, model_dir=_path(model_dir), **numbers, **about)
    request = RunRequest(
        mode="train_and_eval" if evaluates else "train",
        checkpoint_path=_path(checkpoint_path),
        load_checkpoint_states=load_checkpoint_states,
        system=system,
        execution_mode=execution_mode,
        artifact=_path(artifact),
        lanes=lanes,
        sparse_kernels=sparse_kernels,
        executor=executor,
        trace=_path(trace),
    )
    return _run_one(asked, request, progress, "train")


def evaluate(
    params: str | Path | Params,
    *,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
    all_checkpoints: bool = False,
    eval_steps: int | None = None,
    num_csx: int | None = None,
    model_dir: str | Path | None = None,
    checkpoint_path: str | Path | None = None,
    system: str = "cs2",
    lanes: int | None = None,
    progress: Literal["auto", "none"] | Progress = "auto",
) -> RunResult:
    """Evaluate the latest checkpoint of a run, or all of them, on the held-out data of its params file.

    Args:
        params: a params file of one trainer, or params that are loaded
        overrides: values by dotted key
        all_checkpoints: evaluate every checkpoint in model_dir, on every data set
        eval_steps: batches of an evaluation
        num_csx: number of CSX systems
        model_dir: folder of checkpoints and logs
        checkpoint_path: evaluate this one (`FILE`, `DIR:STEP`)
        system: kind of each CSX: cs1, cs2, cs3, or a system file
        lanes: host threads; None for one per core. Results do not depend on it
        progress: "auto" shows it in a notebook and on a terminal; "none"; or an object that is told

    Returns:
        Its `evaluations` have a loss [nats] and metrics for each checkpoint and data set

    Raises:
        NonFiniteError: a loss is not finite
        Interrupted: it was stopped
        CstoolError: any other error that the user can act on
    """
    asked = asked_params(params, overrides, eval_steps=eval_steps, num_csx=num_csx, model_dir=_path(model_dir))
    request = RunRequest(
        mode="eval_all" if all_checkpoints else "eval",
        checkpoint_path=_path(checkpoint_path),
        system=system,
        lanes=lanes,
    )
    return _run_one(asked, request, progress, "evaluate")


def run_all(
    trainers: Sequence[Params],
    request: RunRequest,
    open_screen: OpenScreen,
    *,
    called: str | None = None,
    command: Callable[[Mapping[str, str | None]], str] | None = None,
    link: Link | None = None,
    open_device: Callable[[Params], Device] | None = None,
) -> list[RunResult | NotRun]:
    """Run trainers one after the other, each with its log in its model_dir.

    Args:
        trainers: of one file, in order
        request: settings of the run
        open_screen: shows a trainer while it runs
        called: the verb that was called from Python; None for a command
        command: writes the command that was typed with other flags; None where there was none
        link: to other ranks, which call this, too; None where there are none
        open_device: makes the device of executor "fabric" for a trainer

    Raises:
        ToldElsewhere: the run is over, and this is not rank 0
        CstoolError: any error that the user can act on
    """
    from cstool.training.machine.ranks.link import ALONE

    if request.executor == "fabric" and open_device is None:
        raise CstoolError("executor: must be table or python here, got fabric", "`cstool run --executor fabric` has it")
    link = link or ALONE
    if link.rank > 0:
        from cstool.training.run.follow import follow

        follow(trainers, request.mode, request.lanes, link)
    if request.trace is not None:
        check_traced(trainers, request.mode)
    from cstool.model.graphs.following import check_following
    from cstool.training.machine.data_sets import check_data
    from cstool.training.run.run import run, run_lock
    from cstool.training.run.session import RunOrder
    from cstool.training.verbs.run_log import LOG, run_log

    # Of several trainers, all is checked that can be before the first trains for days.
    runs = not (trainers[0].compile_only or trainers[0].validate_only)
    trains = runs and request.mode in ("train", "train_and_eval")
    several = len(trainers) > 1
    graphs = [check_data(trainer, request.mode, link.ranks) for trainer in trainers] if several and runs else []
    following = check_following(trainers, graphs) if runs else []
    results: list[RunResult | NotRun] = []
    for number, params in enumerate(trainers):
        with (
            run_lock(params) if trains else nullcontext(),
            open_screen() as screen,
            run_log(params.model_dir, params.logging.log_level, screen.handler, params.resolved(), called) as folder,
            ExitStack() as ahead,
        ):
            if several:
                LOG.info("Trainer %d of %d (trainer.%d of the file)", number + 1, len(trainers), number)
                for warning in following if number == 0 else ():
                    LOG.warning(warning)
            compiled = _compiled(params, request, link.ranks, ahead)
            if params.compile_only or params.validate_only:
                results.append(_without_run(params, compiled))
                continue
            assert compiled is not None
            order = RunOrder(
                request.mode,
                # Later trainers go on from where the one before them came to.
                request.checkpoint_path if number == 0 else None,
                request.load_checkpoint_states if number == 0 else None,
                request.lanes,
                request.sparse_kernels,
                request.executor,
                request.trace,
                folder,
                # Flags are of all trainers of a file: none of them goes on alone.
                None if several else command,
                link,
                number,
                None if open_device is None else open_device(params),
            )
            results.append(run(params, compiled, order, screen.progress))
    return results


def _run_one(
    params: Params, request: RunRequest, progress: Literal["auto", "none"] | Progress, called: str
) -> RunResult:
    from cstool.training.run.result import RunResult

    for key in ("compile_only", "validate_only"):
        if getattr(params, key):
            raise CstoolError(f"{params.path}: {key} must be false for {called}, got true", "nothing runs with it")
    [result] = run_all([params], request, screen_of(progress), called=called)
    assert isinstance(result, RunResult)
    return result


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


def _without_run(params: Params, compiled: Artifact | None) -> NotRun:
    """The result where nothing ran."""
    from cstool.training.run.result import Modelled

    if compiled is None:
        return NotRun("validate_only", params.model.name, None)
    modelled = Modelled(compiled.system.name, compiled.mode, compiled.step_s)
    return NotRun("compile_only", params.model.name, modelled)


def _compiled(params: Params, request: RunRequest, ranks: int, ahead: ExitStack) -> Artifact | None:
    """The artifact of a model, compiled or as given; None if it is only checked.

    Meanwhile another process compiles kernels, until they are there or the stack is closed.
    """
    from cstool.model.graphs import SampleForm
    from cstool.model.ir import require_model
    from cstool.model.system import load_system
    from cstool.plan import compiler
    from cstool.plan.compiler.density import sparsity_notes
    from cstool.training.machine.data_sets import check_data
    from cstool.training.machine.prepare import kernels_ahead
    from cstool.training.verbs.run_log import LOG

    if params.validate_only:
        compiler.compile_to_kernels(params)
        LOG.info("Every op of the model has a kernel. Nothing was compiled, nothing ran: validate_only.")
        return None
    file = request.artifact
    loaded = None if file is None else compiler.load_compiled(params, file)
    graph = None if params.compile_only else check_data(params, request.mode, ranks)
    if graph is not None and ranks == 1:
        from cstool.training.run.setup import needs_of

        ahead.enter_context(kernels_ahead(needs_of(params, graph, trains=not request.mode.startswith("eval"))))
    if loaded is not None:
        if graph is not None:
            require_model(loaded, graph, str(file))
        return loaded
    compiled, path = compiler.compile_or_load(
        params,
        load_system(request.system),
        params.artifacts_dir,
        execution_mode=request.execution_mode,
        recompute=request.recompute,
        form=None if graph is None else SampleForm.of(graph),
    )
    machine = f"{params.num_csx} x {compiled.system.name}"
    LOG.info(f"Modelled for {machine}: {compiled.mode}, {compiled.step_s:.3g} s per step.")
    for note in sparsity_notes(params, compiled):
        LOG.info(f"Modelled: {note}.")
    if params.compile_only:
        LOG.info(f"{path}: compiled. Nothing ran: compile_only.")
    return compiled
