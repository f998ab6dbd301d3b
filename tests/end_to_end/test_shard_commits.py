"""No step that all nodes of MemoryX committed is lost, whatever happens at any of them. Ranks are threads here."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import ClusterError, StoreError
from cstool.model.ir import _graph
from cstool.training.machine.committed import survey
from cstool.training.store import FILE_NAME, FileStore, committed_step, find_shards, shard_name
from tests.end_to_end.memoryx_files import IN_FILE, run_small, small_params
from tests.end_to_end.ranks import committed
from tests.end_to_end.runs import digest, latest_bits
from tests.models import SPARSITIES
from tests.patience import wait_until, within_patience
from tests.thread_ranks import Crashes, run_ranks

STEPS, RANKS = 4, 3


@pytest.fixture(autouse=True, scope="module")
def _small_panels() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_graph, "PANEL_BYTES", 2**11)
        yield


def params(folder: Path, data: Path, **changes: Any) -> Path:
    """Write the params of a GPT of one layer with three grains to a batch, which is saved at the end."""
    small = {"init__model__num_hidden_layers": 1, "init__sparsity": SPARSITIES["rigl"], **IN_FILE, **changes}
    systems = {"init__backend__cluster_config": {"num_csx": RANKS}, "fit__train_dataloader__batch_size": 12}
    return small_params(folder, data, **systems, **small)


@pytest.fixture(scope="module")
def straight(tmp_path_factory, data) -> str:
    """The digest at the end of a run in one process that nothing disturbed."""
    file = params(tmp_path_factory.mktemp("straight"), data)
    return digest(Path(run_small(file).checkpoints[-1]))


def gone_on(folder: Path, data: Path, ranks: int, nodes: int) -> str:
    """The bits at the end of a run that goes on from what is in the model_dir of a folder."""
    run_ranks(params(folder, data), ranks, trainer__init__memoryx__nodes=nodes)
    return latest_bits(folder / "model_dir")


def crashes_of(folder: Path, data: Path, ranks: int, nodes: int) -> list[Path]:
    """Run, and return folders with a model_dir each, as crashes would have left it."""
    file = params(folder, data)
    crashes = Crashes(folder / "model_dir", folder / "left")
    with crashes.watched():
        run_ranks(file, ranks, trainer__init__memoryx__nodes=nodes)
    for left in crashes.left:
        (left.parent / f"{left.name} left").mkdir()
        shutil.move(left, left.parent / f"{left.name} left" / "model_dir")
    return [left.parent / f"{left.name} left" for left in crashes.left]


def check_all_go_on(lefts: list[Path], data: Path, straight: str, first: int, apart: int = 11) -> None:
    """Check that what every so many crashes left goes on to the same bits, never from an older step than before."""
    steps = [committed(left / "model_dir") for left in lefts]
    assert steps == sorted(steps), "a step that was committed is lost"
    assert {*steps} == {*range(first, STEPS + 1)}, "there is a crash after each step"
    for left, step in zip(lefts, steps, strict=True):
        found = survey(left / "model_dir", committed_step(left / "model_dir" / FILE_NAME))
        assert max((each.step for each in found.commits), default=0) == step
        # Shards that were gone on from may be half deleted.
        assert all(broken.step < step for broken in found.broken)
    # One after the other each call of a commit is met, on others ranks.
    for number, left in enumerate(lefts[::apart]):
        ranks, nodes = [(3, 3), (2, 2), (1, 1), (3, 1)][number % 4]
        assert gone_on(left, data, ranks, nodes) == straight, f"{left}: on {ranks} ranks, {nodes} nodes"


@pytest.mark.takes("a run goes on from what is left by crashes at many changes of a file")
@pytest.mark.parametrize("apart", [43, pytest.param(11, marks=pytest.mark.lab)])
def test_whatever_a_crash_leaves_goes_on_with_the_same_bits(tmp_path, data, straight, apart):
    lefts = crashes_of(tmp_path, data, RANKS, RANKS)
    assert len(lefts) > 3 * RANKS * STEPS
    check_all_go_on(lefts, data, straight, 0, apart)


@pytest.mark.lab
@pytest.mark.parametrize(("before", "after"), [((1, 1), (3, 3)), ((3, 3), (2, 2)), ((3, 3), (3, 1))], ids=str)
def test_whatever_a_crash_leaves_after_a_run_went_on_on_other_nodes(tmp_path, data, straight, before, after):
    """What it went on from stays until all nodes have committed."""
    file = params(tmp_path, data, init__checkpoint={"steps": 0})
    run_ranks(file, before[0], trainer__init__memoryx__nodes=before[1], trainer__init__loop__max_steps=2)
    assert committed(tmp_path / "model_dir") == 2
    check_all_go_on(crashes_of(tmp_path, data, *after), data, straight, 2)
    # Nothing is left of the files before.
    shards = {shard_name(node, after[1]) for node in range(after[1])}
    assert {path.name for path in (tmp_path / "model_dir").glob("memoryx*.h5*") if path.suffix != ".lock"} == {
        *shards,
        *(f"{name}.commit" for name in shards),
    }


@pytest.mark.parametrize(
    ("node", "what", "step", "held"),
    [(1, "commit", 2, 1), (0, "amend", 1, 1), pytest.param(2, "commit", 1, 0, marks=pytest.mark.lab)],
)
def test_where_a_node_cannot_commit_nobody_overwrites_the_step_before(
    tmp_path, data, straight, monkeypatch, node, what, step, held
):
    model_dir, name = tmp_path / "model_dir", shard_name(node, RANKS)
    original: Callable[..., None] = getattr(FileStore, what)

    def fail(self: FileStore, values: Any, *more: Any) -> None:
        if self.path.name != name or values["global_step"] != step:
            original(self, values, *more)
            return
        # The others have time enough to go on, if nothing kept them.
        wait_until(lambda: sum(step in shard.steps for shard in find_shards(model_dir)) >= RANKS - 1, "no commits")
        time.sleep(0.1)
        shutil.copytree(model_dir, tmp_path / "left" / "model_dir", ignore=shutil.ignore_patterns("*.tmp", "*.lock"))
        raise StoreError(f"{self.path}: cannot be written, got: No space left on device", "free some space")

    monkeypatch.setattr(FileStore, what, fail)
    with pytest.raises(ClusterError if node else StoreError) as caught:
        within_patience(lambda: run_ranks(params(tmp_path, data), RANKS))
    where = f"rank {node}: " if node else ""
    assert caught.value.message == f"{where}{model_dir / name}: cannot be written, got: No space left on device"
    assert caught.value.hint == "free some space"
    monkeypatch.undo()
    for folder in (tmp_path / "left", tmp_path):
        assert committed(folder / "model_dir") == held
        assert gone_on(folder, data, RANKS, RANKS) == straight
