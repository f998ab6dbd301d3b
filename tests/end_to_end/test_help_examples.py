"""Every command has examples in its help, and each of them works as it is written."""

from __future__ import annotations

import shlex
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cstool.cli.app import app
from cstool.cli.help_text import examples_of
from cstool.models import build_graph
from cstool.params import load_params
from cstool.runtime import Appliance
from cstool.runtime.optimizer import make_optimizer
from cstool.runtime.state import Position, save_state, state_values
from tests.end_to_end.refusals import Outcome

PROJECT = Path(__file__).parents[2]
INTEROP = PROJECT / "tests" / "interop"
SMALL = {"hidden_size": 16, "num_heads": 2, "num_hidden_layers": 1, "filter_size": 32}


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield a command and all below it, by how they are typed."""
    yield name, command
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}")


COMMANDS = dict(commands(typer.main.get_command(app), "cstool"))
EXAMPLES = dict.fromkeys(example for command in COMMANDS.values() for example in examples_of(command.epilog))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_one_to_three_examples_of_itself(name: str) -> None:
    examples = examples_of(COMMANDS[name].epilog)
    assert 1 <= len(examples) <= 3
    assert all(example.startswith(name) for example in examples)


def run(*arguments: str) -> int:
    """Run `cstool` in this process and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["cstool", *arguments])
        from cstool.cli import main

        return main()


def write_params(folder: Path) -> None:
    """Write the params files that examples name, those that train with few weights and short steps."""
    shutil.copytree(PROJECT / "params", folder / "params")
    file = folder / "params" / "gpt_tiny.yaml"
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    init, fit = document["trainer"]["init"], document["trainer"]["fit"]
    init["model"].update(SMALL)
    init["loop"]["eval_steps"] = 2
    for loader in fit.values():
        loader["batch_size"] = 4
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    # What `checkpoint convert` reads is a folder with the weights of the file above.
    (folder / "params" / "gpt2_small.yaml").write_bytes(file.read_bytes())


def save_checkpoints(file: Path, steps: tuple[int, ...]) -> None:
    """Save what a run would have saved after these steps, the weights as they are at first."""
    params = load_params(file)
    graph, optimizer = build_graph(params.model, 128), make_optimizer(params.optimizer, None)
    settings = {"max_gradient_norm": 1.0, "loss_scaling": "num_tokens", "loss_weight": 1.0, "seed": 1}
    with Appliance(graph, optimizer=optimizer, **settings) as appliance:
        appliance.memoryx.initialize(1)
        params.model_dir.mkdir(parents=True)
        for step in steps:
            of_run = {"model_name": params.model.name, "seed": 1, "choices": {}, "params": params.resolved()}
            values = state_values(appliance.memoryx, Position(step, step), **of_run)
            save_state(params.model_dir / f"checkpoint_{step}.mdl", appliance.memoryx, values)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of somebody who worked before: books, a data set, three checkpoints, files from elsewhere."""
    folder = tmp_path_factory.mktemp("work")
    write_params(folder)
    (folder / "books").mkdir()
    library = Path(sysconfig.get_path("stdlib"))
    for name in ("argparse", "ast", "configparser", "copy", "csv", "heapq", "queue", "tarfile"):
        shutil.copy(library / f"{name}.py", folder / "books" / f"{name}.txt")
    shutil.copy(INTEROP / "gpt2_small_legacy.yaml", folder / "params_gpt2.yaml")
    shutil.copy(PROJECT / "cstool" / "arch" / "systems" / "cs2.yaml", folder / "my_system.yaml")
    (folder / "kept").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        text = ("--output", "datasets/text", "--sequence_length", "128")
        assert run("data", "prepare", "text", "books", *text) == 0
        save_checkpoints(Path("params/gpt_tiny.yaml"), (200, 400, 600))
        last = "checkpoints/gpt_tiny/checkpoint_600.mdl"
        assert run("checkpoint", "copy", last, "kept") == 0
        assert run("checkpoint", "convert", last, "gpt2_folder", "--to", "hf") == 0
        for name in ("gpt2_small.json", "a.json", "b.json"):
            assert run("compile", "--params", "params/gpt2_small.yaml", "--out", name) == 0
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_works_as_it_is_written(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str, cstool: Callable[..., Outcome]
) -> None:
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    if "datasets/text" in example and "prepare" in example:
        shutil.rmtree("datasets/text")
    command, _, target = example.partition(" > ")
    with Path(target or "printed").open("w", encoding="utf-8") as out, redirect_stdout(out):
        outcome = cstool(*shlex.split(command)[1:])
    assert outcome.code == 0, outcome.stderr
    assert [line for line in outcome.stderr.splitlines() if " INFO:   " not in line] == []
    assert Path(target or "printed").stat().st_size
