"""The page about runs shows what a run leaves behind, and what it says."""

import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.pages import without_numbers
from tests.event_files import scalars_of

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "runs.md").read_text(encoding="utf-8")


def tree(folder: Path) -> list[str]:
    """Return all that is in a folder, with what links point to."""
    entries = sorted([folder, *folder.rglob("*")])
    return [f"{path} -> {path.readlink()}" if path.is_symlink() else str(path) for path in entries]


def test_the_page_shows_what_it_prints_and_leaves(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [kind for kind, _ in blocks] == ["console", "", "", "", "python", "", ""]
    run, left, before, summary, look, seen, _ = (text for _, text in blocks)
    outcomes = [cstool(*shlex.split(line.removeprefix("$ cstool "))) for line in run.splitlines()]
    assert [outcome.code for outcome in outcomes] == [0, 0]
    printed = [line.partition("INFO:   ")[2] for line in outcomes[1].stdout.splitlines()]
    begin = printed.index("=" * 75)
    assert printed[begin : begin + len(before.splitlines())] == before.splitlines()
    # How long parts took decides which of them are worth a word.
    shown, found = ([without_numbers(line) for line in lines] for lines in (summary.splitlines(), printed))
    found = found[found.index("Run summary:") :]
    assert [line for line in found if " time " not in line] == [line for line in shown if " time " not in line]
    files = [without_numbers(line.replace(socket.gethostname(), "host")) for line in tree(Path("checkpoints/small"))]
    assert files == [without_numbers(line) for line in left.splitlines()]
    looked = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    assert looked == seen


def test_the_page_has_all_tags(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")
    assert cstool("data", "prepare", "text", "--output", "datasets/text", "--sequence_length", "128").code == 0
    flags = ["sparsity=0.5", "callbacks=[{ComputeNorm: {}}]", "loop.eval_steps=1"]
    command = ("run", "--params", "params/gpt_tiny.yaml", "--mode", "train_and_eval", "--max_steps", "1", "--set")
    assert cstool(*command, *(f"trainer.init.{flag}" for flag in flags)).code == 0
    found = {
        re.sub(r"^sparsity/.*/", "sparsity/WEIGHTS/", re.sub(r"^(\w+_norm)/(?!layer).*", r"\1/WEIGHT", tag))
        for tag in scalars_of(Path("checkpoints/gpt_tiny/events"))
    }
    rows = re.findall(r"^\| (`.*?`) \|.* \| (?:ours|the vendor's) \|$", PAGE, re.MULTILINE)
    listed = {tag for row in rows for tag in re.findall(r"`(.*?)`", row)}
    assert {re.sub(r"layer_\d", "layer_N", tag) for tag in found} == listed


def test_its_picture_is_there_and_small():
    (image,) = re.findall(r"\]\((images/.*?)\)", PAGE)
    assert 10_000 < (PROJECT / "docs" / image).stat().st_size < 200_000
