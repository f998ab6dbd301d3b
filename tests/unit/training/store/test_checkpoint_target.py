"""What may be typed where checkpoints are named."""

from pathlib import Path

import pytest

from cstool.foundation.errors import CheckpointError
from cstool.training.store import find_checkpoint, find_checkpoints
from tests.contract.refusal import refusal
from tests.end_to_end.refusals import rows

NAMES = (
    *("checkpoint_9.mdl", "checkpoint_10.mdl", "checkpoint_100.mdl"),
    *("checkpoint_10_20240101_000000.mdl", "checkpoint_10_20250101_000000.mdl", "notes.txt"),
)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder `runs` of the working folder, with checkpoints of the steps 9, 10 (three) and 100."""
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for name in NAMES:
        Path("runs", name).touch()
    return Path("runs")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("runs/checkpoint_9.mdl", "runs/checkpoint_9.mdl"),
        ("runs/../runs/checkpoint_9.mdl", "runs/../runs/checkpoint_9.mdl"),
        ("runs/missing.mdl", "runs/missing.mdl"),
        ("nowhere:9", "nowhere:9"),
        ("runs", "runs"),
        ("runs:9", "runs/checkpoint_9.mdl"),
        ("runs/:009", "runs/checkpoint_9.mdl"),
        ("runs:10", "runs/checkpoint_10_20250101_000000.mdl"),
        ("runs:latest", "runs/checkpoint_100.mdl"),
        ("./runs:latest", "runs/checkpoint_100.mdl"),
        ("runs/*_9.mdl", "runs/checkpoint_9.mdl"),
        ("r[u]ns/checkpoint_9.???", "runs/checkpoint_9.mdl"),
    ],
)
def test_a_target_names_a_file(target, found):
    assert find_checkpoint(target) == Path(found)


@pytest.mark.usefixtures("folder")
def test_a_glob_names_files_by_their_numbers_and_one_that_is_named_twice_counts_once():
    times = ("9", "10", "10_20240101_000000", "10_20250101_000000", "100")
    assert [path.name for path in find_checkpoints(["runs/*.mdl"])] == [f"checkpoint_{time}.mdl" for time in times]
    targets = ["runs:100", "runs/checkpoint_100.mdl", "runs/*_9.mdl", "runs:latest"]
    assert [path.name for path in find_checkpoints(targets)] == ["checkpoint_100.mdl", "checkpoint_9.mdl"]


@pytest.mark.parametrize("name", ["runs:9", "runs:latest", "checkpoint_*.mdl", "a[1].mdl"])
@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")], ids=["file", "dangling link"])
def test_a_file_of_just_that_name_counts_first(folder, name, make):
    make(Path(name))
    assert find_checkpoint(name) == Path(name)


REFUSED = rows("""\
runs:11 => runs: has no checkpoint of step 11\nhint: there is one of step 9 and one of step 10
runs:99 => runs: has no checkpoint of step 99\nhint: there is one of step 10 and one of step 100
runs:last => runs:last: after the colon must be a step or latest, got last
runs:-1 => runs:-1: after the colon must be a step or latest, got -1
runs:² => runs:²: after the colon must be a step or latest, got ²
.:latest => .: has no checkpoints\nhint: give the model_dir of a run
runs/x*.mdl => runs/x*.mdl: no file has such a name\nhint: cstool checkpoint list shows those of a folder
runs/* => runs/*: must be one checkpoint, got 6: runs/checkpoint_9.mdl, runs/checkpoint_10.mdl,
        runs/checkpoint_10_20240101_000000.mdl, ...
runs/*_9* => runs/*_9*: must be one checkpoint, got 2: runs/a_9, runs/checkpoint_9.mdl
""")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("target", "message"), REFUSED)
def test_a_target_that_names_no_file_or_several_is_refused(target, message):
    if target == "runs/*_9*":
        Path("runs/a_9").touch()
    rule, _, hint = message.partition("\nhint: ")
    with refusal(CheckpointError, rule, hint or None):
        find_checkpoint(target)
