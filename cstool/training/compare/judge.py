"""The verb behind `cstool validate`: the same run, sparse and dense, and one verdict."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from cstool.foundation.errors import CstoolError
from cstool.foundation.folders import temporary_folder
from cstool.foundation.progress import Progress
from cstool.model.ir import Graph
from cstool.model.optimizers import costed_optimizer
from cstool.model.params import Params, SparsityParams
from cstool.model.sparsity import assign_groups, starts_sparse
from cstool.training.compare.cost import build_cost
from cstool.training.compare.numerics import compare_numerics
from cstool.training.compare.race import Finish, Runner, race
from cstool.training.compare.request import Request, check_params, run_params, sparse_groups
from cstool.training.compare.verdict import Comparison, Quality, Setting, Verdict
from cstool.training.kernels.fastest import choose_for
from cstool.training.kernels.sparse.ceiling import Ceiling, measure_ceiling
from cstool.training.machine.data_sets import check_data
from cstool.training.machine.grains import available_cores
from cstool.training.machine.memoryx.kept_model import KeptModel
from cstool.training.machine.memoryx.sparse_weights import SparsityRules
from cstool.training.machine.state import environment

DENSITY_DIGITS = 3
"""decimals of rounded densities for a measurement of kernels: the densities of one group differ by a few weights"""


def validate(params: Params, request: Request, progress: Progress) -> Verdict:
    """Compare sparse training with dense training: results of kernels, learning, cost of a step.

    The runs begin with the weights of the seed and see the same data; the timed runs take turns.

    Args:
        params: checked params of one trainer, with training and validation data
        request: settings of the comparison

    Raises:
        NonFiniteError: a run came to NaN or infinity
        CstoolError: an error that the user can act on
    """
    notes = check_params(params)
    first, points = _points(params, request)
    num_steps = request.steps(params)
    with _folder(request.model_dir) as folder:
        graph = check_data(run_params(params, first.groups, folder, num_steps), "train_and_eval")
        for runner in points:
            assign_groups(runner.groups, graph, params.sparsity_place)
        numerics = compare_numerics(params, request, first.groups, num_steps, folder, graph, progress)
        keeps, runners = request.model_dir is not None, [Runner("dense"), *points]
        dense, *found = race(params, runners, num_steps, folder, progress, request.lanes, keeps=keeps)
    comparisons = _compare(params, request, graph, points, dense, found, progress)
    groups = _by_weight(params, first, graph)
    setting = Setting(
        model=params.model.name,
        parameters=graph.parameter_count,
        sparse_parameters=sum(graph.weights[name].size for name in groups),
        num_steps=num_steps,
        file_steps=params.loop.num_steps or params.loop.max_steps,
        batch_size=params.dataloaders("train")[0].batch_size,
        tokens=graph.sequence_length,
        num_csx=params.num_csx,
        lanes=dense.result.lanes,
        cores=available_cores(),
        cpu=environment()["cpu"],
        seed=params.seed,
        loss_of=params.model.loss_term,
    )
    main = comparisons[points.index(first)]
    sweep = tuple(sorted(comparisons, key=lambda point: -point.density)) if request.sweep else ()
    if any(group.is_dynamic and not starts_sparse(group.update) for group in first.groups):
        notes = (*notes, "training begins dense, so numerics compares kernels on weights without zeros")
    return Verdict(setting, numerics, main, sweep, (*params.warnings, *notes))


def _points(params: Params, request: Request) -> tuple[Runner, list[Runner]]:
    """Return the sparse run that the verdict is about, and all that there are."""
    share, flag = request.sparsity, "--sparsity"
    if share is None and not params.sparsity and request.sweep:
        share, flag = request.sweep[0], "--sweep"
    asked = [(share, flag), *((share, "--sweep") for share in request.sweep)]
    groups = [sparse_groups(params, share, flag) for share, flag in asked]
    runners = [Runner(f"sparse {_in_words(found)}", found) for found in groups]
    return runners[0], list(dict.fromkeys(runners))


def _in_words(groups: tuple[SparsityParams, ...]) -> str:
    """Sparsity of groups, in words: a number if all groups have the same."""
    shares = {group.sparsity for group in groups}
    (share, *others) = shares
    return f"{share:g}" if not others and isinstance(share, float) else "as in the file"


@contextmanager
def _folder(model_dir: Path | None) -> Iterator[Path]:
    if model_dir is None:
        with temporary_folder("cstool-validate-") as temporary:
            yield temporary
        return
    try:
        model_dir.mkdir(parents=True, exist_ok=True)
        runs = [path.name for path in model_dir.iterdir() if path.name not in ("cerebras_logs", "latest_run.log")]
    except OSError as error:
        raise CstoolError(
            f"--model_dir: must be a folder that can be written, got {model_dir}: {error.strerror}"
        ) from error
    if runs:
        rule = "must be empty or not there yet, since every run begins afresh"
        raise CstoolError(f"--model_dir: {rule}, got {model_dir} with {sorted(runs)[0]} in it")
    yield model_dir


def _by_weight(params: Params, runner: Runner, graph: Graph) -> dict[str, SparsityParams]:
    numbers = assign_groups(runner.groups, graph, params.sparsity_place)
    return {name: runner.groups[number] for name, number in numbers.items()}


def _compare(
    params: Params,
    request: Request,
    graph: Graph,
    points: list[Runner],
    dense: Finish,
    found: list[Finish],
    progress: Progress,
) -> list[Comparison]:
    """Compare each sparse run with the dense one, and measure the kernels that it used."""
    samples, products = dense.result.grain_samples, params.precision.products
    tokens = samples * (graph.sequence_length or 1)
    gemm = choose_for(graph, params.host_precision, samples, trains=True, name=products)
    task, measured = "Measuring kernels", 0
    progress.start(task, None)

    @cache
    def measure(rows: int, columns: int, density: float, share: float) -> Ceiling:
        nonlocal measured
        measured += 1
        progress.advance(task, measured, f"{rows} x {columns}")
        return measure_ceiling(rows, columns, max(1, round(tokens * share)), density, gemm)

    def ceiling_of(rows: int, columns: int, density: float, share: float) -> Ceiling:
        return measure(rows, columns, round(density, DENSITY_DIGITS), share)

    comparisons = []
    for runner, sparse in zip(points, found, strict=True):
        rules = SparsityRules(_by_weight(params, runner, graph), last_step=request.steps(params))
        model = KeptModel(graph, costed_optimizer(params.optimizer), rules, params.host_precision)
        batch_size = params.dataloaders("train")[0].batch_size
        cost = build_cost(model, dense, sparse, batch_size=batch_size, ceiling_of=ceiling_of)
        density = cost.matrices.density
        assert density is not None
        quality = _quality(dense, sparse, request.max_loss_gap)
        comparisons.append(Comparison(_in_words(runner.groups), density, quality, cost))
    progress.finish(task)
    return comparisons


def _quality(dense: Finish, sparse: Finish, max_loss_gap: float) -> Quality:
    assert dense.evaluation is not None and sparse.evaluation is not None
    return Quality(
        sparse_losses=sparse.losses,
        dense_losses=dense.losses,
        sparse_loss=sparse.evaluation["loss"],
        dense_loss=dense.evaluation["loss"],
        sparse_accuracy=sparse.evaluation["accuracy"],
        dense_accuracy=dense.evaluation["accuracy"],
        max_loss_gap=max_loss_gap,
    )
