"""Fixtures of the tests that type commands."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cstool.cli import main
from cstool.plan.compiler import compile as compiling
from cstool.training.data import TextRequest, prepare_text
from cstool.training.run.result import RunResult
from tests.end_to_end.disk import Disk
from tests.end_to_end.refusals import Outcome, error, kept
from tests.end_to_end.runs import TEXT, bits, gpt_params, run_file, write_text
from tests.end_to_end.worked import write_params


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """A model is compiled once in this process: the same inputs give the same artifact."""
    compile_it, known = compiling._compile, {}

    def look_up(params, program, inputs, after_pass):
        key = tuple(sorted(inputs.items()))
        if after_pass is not None or key not in known:
            known[key] = compile_it(params, program, inputs, after_pass)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "_compile", look_up)
        yield


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """A folder of 60 samples."""
    return write_text(tmp_path_factory.mktemp("text") / "train", 60)


@pytest.fixture
def cstool(monkeypatch, capsys, tmp_path, data) -> Callable[..., Outcome]:
    """Run `cstool` in this process; in what it prints, TMP and DATA stand for the two folders."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["cstool", *map(str, arguments)])
        code = main()
        stdout, stderr = (t.replace(str(data), "DATA").replace(str(tmp_path), "TMP") for t in capsys.readouterr())
        return Outcome(code, stdout, stderr)

    return run


@pytest.fixture
def conversion(cstool, tmp_path) -> Callable[..., Outcome]:
    """Convert a checkpoint in the folder of the test: `conversion("hf", "a.mdl", "--json")`."""
    return lambda source, target, *flags: cstool("checkpoint", "convert", tmp_path / source, tmp_path / target, *flags)


@pytest.fixture
def refused(cstool, tmp_path, data) -> Callable[..., None]:
    """Check that a run refuses with just this message, and leaves everything in model_dir as it was."""

    def check(
        message: str, hint: str | None, *typed: object, write: Callable[..., Path] = gpt_params, **changes: Any
    ) -> None:
        file, before = write(tmp_path, data, **changes), kept(tmp_path / "model_dir")
        outcome = cstool("run", "-p", file, *typed)
        assert (outcome.code, outcome.stderr, kept(tmp_path / "model_dir")) == (2, error(message, hint), before)

    return check


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A folder with the params of a small GPT, its text, and a model_dir in which it has learnt it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "source.txt").write_text(TEXT)
    prepare_text([folder / "source.txt"], folder / "text", TextRequest(64, val_fraction=0.1))
    model = {"vocab_size": 256, "hidden_size": 64, "filter_size": 128, "max_position_embeddings": 64}
    file = gpt_params(
        folder,
        folder / "text" / "train",
        init__loop={"max_steps": 60},
        init__checkpoint={"steps": 60},
        init__logging={"log_steps": 60},
        fit__train_dataloader__batch_size=16,
        **{f"init__model__{key}": value for key, value in model.items()},
    )
    run_file(file)
    return folder


@pytest.fixture
def model_dir(tmp_path, trained) -> Path:
    """A copy of the model_dir that is the fixture `trained` of a module."""
    return Path(shutil.copytree(trained, tmp_path / "model_dir"))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, data) -> Callable[..., str]:
    """Return the digest at the end of a run in this process with some changes; the same run is made once."""
    known: dict[str, str] = {}

    def run(write: Callable[..., Path] = gpt_params, train: Callable[..., RunResult] = run_file, **changes: Any) -> str:
        key = f"{write.__module__} {write.__name__} {sorted(changes.items())}"
        if key not in known:
            known[key] = bits(train(write(tmp_path_factory.mktemp("undisturbed"), data, **changes)))[1]
        return known[key]

    return run


@pytest.fixture
def ready(trained, tmp_path) -> Path:
    """A copy of it; returns the params file."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "params.yaml"
    file.write_text(file.read_text().replace(str(trained), str(tmp_path)))
    return file


@pytest.fixture
def with_params(tmp_path, monkeypatch) -> None:
    """Work in a folder with the stock params files."""
    monkeypatch.chdir(tmp_path)
    write_params(tmp_path)


@pytest.fixture
def make_disk() -> Iterator[Callable[[Path, int], Disk]]:
    """Make small disks, by their place and their size, which are gone after the test."""
    places = []

    def make(place: Path, size_bytes: int) -> Disk:
        places.append(place)
        return Disk(place, size_bytes)

    yield make
    for place in places:
        subprocess.run(["umount", str(place)], capture_output=True)
