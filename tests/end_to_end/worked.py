"""A folder of somebody who worked in it before: params files, a data set, checkpoints."""

import shutil
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from cstool.cli import main
from cstool.model.graphs import SampleForm, build_graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import load_params
from cstool.training.machine.state import Position, save_state, state_values
from tests.end_to_end.pages import PROJECT
from tests.unit.training.machine.machines import make_appliance, randomize


def run(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["cstool", *arguments])
        return main()


def write_params(folder: Path) -> None:
    shutil.copytree(PROJECT / "params", folder / "params")


def write_data(folder: Path) -> None:
    """Write some text, and a data set of it."""
    (folder / "books").mkdir()
    library = Path(sysconfig.get_path("stdlib"))
    for name in ("argparse", "ast", "configparser", "copy", "csv", "heapq", "queue", "tarfile"):
        shutil.copy(library / f"{name}.py", folder / "books" / f"{name}.txt")
    text = ("--output", str(folder / "datasets" / "text"), "--sequence_length", "128")
    assert run("data", "prepare", "text", str(folder / "books"), *text) == 0


def save_random(file: Path, form: SampleForm) -> Path:
    """Save random weights of the model of a params file beside it, as after 7 steps; return the checkpoint."""
    params, checkpoint = load_params(file), file.with_suffix(".mdl")
    with make_appliance(build_graph(params.model, form), optimizer=None, max_gradient_norm=None, seed=3) as appliance:
        randomize(appliance)
        of_run: dict[str, Any] = {"model_name": params.model.name, "seed": 3, "choices": {}}
        values = state_values(appliance.memoryx, Position(7), **of_run, params=params.resolved())
        save_state(checkpoint, appliance.memoryx, values)
    return checkpoint


def save_checkpoints(file: Path, model_dir: Path, steps: tuple[int, ...]) -> None:
    """Save what a run would have saved after these steps, the weights as they are at first."""
    params = load_params(file)
    graph, optimizer = build_graph(params.model, 128), make_optimizer(params.optimizer, None)
    settings: dict[str, Any] = {"max_gradient_norm": 1.0, "seed": 1}
    with make_appliance(graph, optimizer=optimizer, **settings) as appliance:
        appliance.memoryx.initialize(1)
        model_dir.mkdir(parents=True)
        for step in steps:
            of_run = {"model_name": params.model.name, "seed": 1, "choices": {}, "params": params.resolved()}
            values = state_values(appliance.memoryx, Position(step, step), **of_run)
            save_state(model_dir / f"checkpoint_{step}.mdl", appliance.memoryx, values)
