"""`cstool estimate --mode infer`: in words, as a document, and what is refused."""

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.pages import PROJECT

FLAGS = ("-p", "llama3_8b", "--system", "cs3", "--mode", "infer", "--prompt_tokens", "2048", "--new_tokens", "512")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", "params")


def test_in_words(cstool, golden):
    golden("cli/estimate_infer.txt", cstool("estimate", *FLAGS, "--batch", "1,8,64,100000", "--num_csx", "1").stdout)


def test_as_a_document(cstool):
    document = cstool("estimate", *FLAGS, "--batch", "1,8,100000", "--json").document
    assert (document["model"], document["prompt_tokens"], document["new_tokens"]) == ("llama", 2048, 512)
    one, eight, many = document["modelled"]["batches"]
    assert many == {"users": 100000, "fits": False, "why": many["why"]}
    assert one["kind"] == "modelled"
    assert one["tokens_per_s"] == pytest.approx(one["tokens_per_s_each"])
    assert eight["tokens_per_s"] > one["tokens_per_s"]
    assert sum(one["spent_s"].values()) == pytest.approx(one["token_s"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            (*FLAGS, "--batch", "1,x"),
            "--batch: must be numbers of users, from 1 to 1,000,000, got 1,x\nhint: such as 1,8,64",
        ),
        (
            (*FLAGS, "--batch", ""),
            "--batch: must be numbers of users, from 1 to 1,000,000, got \nhint: such as 1,8,64",
        ),
        (
            (*FLAGS, "--batch", "0"),
            "--batch: must be numbers of users, from 1 to 1,000,000, got 0\nhint: such as 1,8,64",
        ),
        ((*FLAGS, "--num_csx", "1,2"), "--num_csx: must be one number of systems beside --mode infer, got 1,2"),
        ((*FLAGS, "--tokens", "3B"), "--tokens: must be left out beside --mode infer, where it has no effect"),
        ((*FLAGS, "--price", "3"), "--price: must be left out beside --mode infer, where it has no effect"),
        (("-p", "llama3_8b", "--prompt_tokens", "9"), "--prompt_tokens: must stand beside --mode infer"),
        (("-p", "llama3_8b", "--batch", "9"), "--batch: must stand beside --mode infer"),
    ],
)
def test_what_is_refused(cstool, flags, message):
    outcome = cstool("estimate", *flags)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (2, "", f"error: {message}\n")
