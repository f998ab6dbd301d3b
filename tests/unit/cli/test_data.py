"""`cstool data`."""

from __future__ import annotations

import json
import re

import pytest


@pytest.fixture
def sources(tmp_path):
    """Twenty small files of text."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.txt").write_text("abababab" * (number + 1))
    return folder


@pytest.fixture
def prepare(cstool, sources, tmp_path):
    """Run `cstool data prepare text` on the sources, with more arguments."""

    def run(*arguments: str):
        common = ("--output", str(tmp_path / "text"), "--sequence_length", "16", "--val_fraction", "0.3")
        return cstool("data", "prepare", "text", str(sources), *common, *arguments)

    return run


def test_preparing_text_tells_the_size_of_both_parts(prepare, golden, tmp_path):
    outcome = prepare()
    assert (outcome.code, outcome.stderr) == (0, "")
    golden("cli/prepare_text.txt", re.sub(r"in \d+\.\d s", "in S s", outcome.stdout.replace(str(tmp_path), "DIR")))


def test_a_share_that_is_the_one_asked_for_is_not_told(cstool, tmp_path):
    (tmp_path / "one.txt").write_text("abcdefgh" * 100)
    command = ("data", "prepare", "text", str(tmp_path / "one.txt"), "--output", str(tmp_path / "text"))
    outcome = cstool(*command, "--sequence_length", "16", "--val_fraction", "0.1")
    assert (outcome.code, [line for line in outcome.stdout.splitlines() if "Held out" in line]) == (0, [])


def test_text_that_is_already_prepared_is_kept(prepare, tmp_path):
    prepare()
    assert prepare().stdout.splitlines()[0] == f"{tmp_path}/text: already prepared"


def test_the_summary_is_there_as_json(prepare, tmp_path):
    document = json.loads(prepare("--json").stdout)
    assert document["path"] == f"{tmp_path}/text"
    assert document["train"]["files"] + document["val"]["files"] == 20


def test_other_arguments_need_overwrite(prepare, tmp_path):
    prepare()
    message = (
        f"error: {tmp_path}/text: must not hold another data set, got one made from other text or with other "
        "arguments\nhint: add --overwrite to replace it, or give another --output\n"
    )
    assert prepare("--seed", "5") == (2, "", message)


def test_overwrite_replaces_a_different_data_set(prepare, tmp_path):
    prepare()
    assert prepare("--seed", "5", "--overwrite").stdout.startswith(f"{tmp_path}/text: prepared in ")


def test_the_baseline_is_one_line(prepare, cstool, tmp_path):
    prepare()
    outcome = cstool("data", "baseline", str(tmp_path / "text"))
    pattern = rf"Held-out loss of a bigram model of {tmp_path}/text: \d\.\d{{5}} nats per byte\n"
    assert (outcome.code, outcome.stderr) == (0, "")
    assert re.fullmatch(pattern, outcome.stdout)


def test_the_baseline_is_there_as_json(prepare, cstool, tmp_path):
    prepare()
    document = json.loads(cstool("data", "baseline", str(tmp_path / "text"), "--json").stdout)
    assert (document["path"], document["model"]) == (f"{tmp_path}/text", "bigram")
    assert 0 < document["loss"] < 6


def test_a_baseline_of_nothing_says_how_to_make_a_data_set(cstool, tmp_path):
    message = (
        f"error: {tmp_path}/train: must be a folder with files *.h5, found nothing there\n"
        "hint: `cstool data prepare text --output DIR --sequence_length N` makes a data set from any files\n"
    )
    assert cstool("data", "baseline", str(tmp_path)) == (2, "", message)
