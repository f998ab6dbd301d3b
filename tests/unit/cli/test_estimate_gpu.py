"""`cstool estimate --gpus`: in words, as a document, and what is refused."""

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.pages import PROJECT


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")


def test_in_words(cstool, golden):
    printed = cstool("estimate", "-p", "gpt3_175b", "--num_csx", "64", "--tokens", "300B", "--gpus", "8,256,1024..4096")
    golden("cli/estimate_gpus.txt", printed.stdout[printed.stdout.index("the same job on GPUs") :])


def test_as_a_document(cstool):
    gpus = cstool("estimate", "-p", "gpt3_xl", "--gpus", "16", "--json").document["gpus"]
    (row,) = gpus["rows"]
    assert (gpus["gpu"], row["gpus"], row["kind"]) == ("a100", 16, "modelled")
    split = row["split"]
    assert split["tensor"] * split["stages"] * split["data"] == 16
    assert gpus["as_fast"]["tokens_per_s"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--gpu", "a100"), "--gpu: must stand beside --gpus, the number of them, got a100 alone"),
        (("--gpus", "x"), "--gpus: must be numbers of GPUs, got x\nhint: such as 4, or 1,2,4..192, where .. doubles"),
        (("--gpus", "8..4"), "--gpus: must go up in 8..4, got 8..4\nhint: such as 4, or 1,2,4..192, where .. doubles"),
    ],
)
def test_what_is_refused(cstool, flags, message):
    outcome = cstool("estimate", "-p", "gpt3_xl", *flags)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (2, "", f"error: {message}\n")
