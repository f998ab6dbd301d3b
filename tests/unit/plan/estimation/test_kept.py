"""What is compiled for an estimate is kept, and found again by all that it follows from."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import CompileError
from cstool.foundation.folders import cache_root
from cstool.model.params import load_params
from cstool.plan.estimation import EstimateOptions, Estimator, kept, make_request, smallest_compute_bound
from tests.unit.plan.compiler.programs import ROOT


@pytest.fixture(autouse=True)
def root(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch) -> list[int]:
    """Numbers of systems of what is compiled, as it is."""
    found: list[int] = []
    compile_model = kept.cstool.plan.compiler.compile_model

    def counting(params, system, **more):
        found.append(params.num_csx)
        return compile_model(params, system, **more)

    monkeypatch.setattr("cstool.plan.compiler.compile_model", counting)
    return found


def estimator(name: str = "fc_mnist", system: str = "cs2", flags: Any = None, keeps: bool = True, **asked) -> Estimator:
    params = load_params(ROOT / "params" / f"{name}.yaml", flags=flags or {})
    options = EstimateOptions(system, **{"execution_mode": "weight_streaming", **asked})
    return Estimator(make_request(params, options), keeps=keeps)


def files() -> list[Path]:
    (folder,) = cache_root().glob("estimates-*")
    return sorted(folder.iterdir())


def test_the_same_estimate_compiles_once_in_a_folder_for_this_user_alone(compiled):
    """What is found again has all of its system, also what a file leaves out and no comparison looks at."""
    first, again = estimator().at(1), estimator().at(1)
    assert compiled == [1]
    assert again.artifact == first.artifact
    assert (again.step_s, again.limits, again.step) == (first.step_s, first.limits, first.step)
    made, found = first.artifact.system, again.artifact.system
    assert None not in (made.hosts, made.servers)
    assert [getattr(made, each.name) for each in fields(made)] == [getattr(found, each.name) for each in fields(found)]
    (file,) = files()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert kept.read_artifact(file) == first.artifact


def test_one_that_is_not_asked_to_keeps_nothing_and_what_fails_is_not_kept(root, compiled):
    for _ in range(2):
        estimator(keeps=False).at(1)
    assert compiled == [1, 1]
    assert not root.exists()
    for _ in range(2):
        with pytest.raises(CompileError):
            estimator("llama3_8b", execution_mode="pipelined").at(1)
    assert len(compiled) == 4


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("fc_mnist", {"system": "cs3"}),
        ("fc_mnist", {"recompute": "none"}),
        ("fc_mnist", {"execution_mode": "pipelined"}),
        ("fc_mnist", {"batch_per_csx": 64}),
        pytest.param("gpt_tiny", {"frozen": "first:1"}, marks=pytest.mark.lab),
        ("fc_mnist", {"software": "2.0"}),
        ("fc_mnist", {"flags": {"trainer.init.optimizer.SGD.learning_rate": ("--set", 0.2)}}),
        pytest.param("moe_tiny", {"expert_imbalance": 1.5}, marks=pytest.mark.lab),
    ],
)
def test_what_is_asked_otherwise_is_compiled(compiled, name, other):
    estimator(name).at(1)
    estimator(name, **other).at(1)
    assert len(compiled) == 2


def test_other_systems_and_other_sources_are_compiled_and_other_folders_are_not(compiled, root, monkeypatch):
    found = estimator()
    found.at(1)
    found.at(2)
    moved = replace(found.request, params=replace(found.request.params, model_dir=Path("/elsewhere")))
    Estimator(moved, keeps=True).at(2)
    assert compiled == [1, 2]
    monkeypatch.setattr(kept, "sources_digest", lambda: "of tomorrow")
    estimator().at(1)
    assert (compiled, len(list(root.glob("estimates-*")))) == ([1, 2, 1], 2)


def test_the_digest_is_of_every_source_that_decides(monkeypatch, tmp_path):
    package = tmp_path / "cstool"
    for name in ("__init__.py", "foundation/words.py", "plan/timing/pe.py", "training/run/run.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text("")
    monkeypatch.setattr(kept.cstool, "__file__", str(package / "__init__.py"))

    def digest() -> str:
        kept.sources_digest.cache_clear()
        return kept.sources_digest()

    try:
        found = [digest()]
        for name in ("plan/timing/pe.py", "foundation/words.py", "plan/timing/new.py", "training/run/run.py"):
            (package / name).write_text("changed = True\n")
            found.append(digest())
        monkeypatch.setattr(kept.cstool, "__version__", "9.9")
        found.append(digest())
    finally:
        kept.sources_digest.cache_clear()
    # What runs is no source of an estimate.
    assert found[4] == found[3]
    assert len(set(found)) == 5


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"schema": 0}', None])
def test_a_damaged_or_edited_file_is_made_again(compiled, content):
    expected = estimator().at(1).artifact
    (file,) = files()
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b'"batch_size": ', b'"batch_size": 1') if content is None else content)
    assert estimator().at(1).artifact == expected
    assert file.read_bytes() == whole
    assert len(compiled) == 2


def test_the_smallest_batch_that_the_links_do_not_limit_is_kept(monkeypatch):
    def smallest() -> int | None:
        found = estimator("gpt_tiny", execution_mode="weight_streaming")
        return smallest_compute_bound(found, found.at(1))

    expected = smallest()
    with monkeypatch.context() as patched:
        patched.setattr("cstool.plan.compiler.prepared.Prepared.kernel_cycles", None)
        assert smallest() == expected
    for file in files():
        if file.stat().st_size < 100:
            file.write_text("none")
    assert smallest() == expected


def test_where_no_folder_can_be_made_estimates_are_as_ever(monkeypatch, tmp_path, compiled):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("CSTOOL_CACHE_DIR", str(tmp_path / "file"))
    assert estimator().at(1).artifact == estimator().at(1).artifact
    assert len(compiled) == 2


@pytest.mark.parametrize("writes", ["plan.estimation.kept.write_artifact", "model.ir._artifact_file.write_replacing"])
def test_a_full_disk_is_left_alone(monkeypatch, compiled, writes):
    def full(*_: object) -> None:
        raise kept.ArtifactError("no space left") if writes.endswith("artifact") else OSError(28, "No space left")

    monkeypatch.setattr(f"cstool.{writes}", full)
    estimator().at(1)
    assert len(compiled) == 1
    assert files() == []


def test_the_files_used_last_stay(monkeypatch, root):
    monkeypatch.setattr(kept, "MOST_FILES", 3)
    made: Callable[[], float] = iter(range(10)).__next__
    results = estimator()._kept
    for number in range(3):
        results.number(str(number), made)
        os.utime(max(files(), key=lambda path: path.stat().st_mtime), (number, number))
    # The oldest is used once more.
    assert results.number("0", made) == 0.0
    results.number("3", made)
    assert [results.number(each, made) for each in ("0", "2", "3")] == [0.0, 2.0, 3.0]
    assert results.number("1", made) == 4.0


@pytest.mark.takes("a process of Python with another seed of hashes")
def test_another_process_finds_it(monkeypatch):
    """What sets have in them is in another order there."""
    estimator().at(1)
    before = files()
    monkeypatch.setenv("PYTHONHASHSEED", "3")
    script = "from tests.unit.plan.estimation.test_kept import estimator; estimator().at(1)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
    assert files() == before
