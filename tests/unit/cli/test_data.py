"""`cstool data`."""

import json
import re

import pytest

from tests.end_to_end.refusals import error
from tests.unit.training.data import test_hdf5_contexts


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
    """Run `cstool data prepare text` on the sources, or other text, with more arguments."""

    def run(*arguments: str, source=sources, val_fraction="0.3"):
        common = ("--output", tmp_path / "text", "--sequence_length", "16", "--val_fraction", val_fraction)
        return cstool("data", "prepare", "text", source, *common, *arguments)

    return run


TOKENS = ("--train_tokenizer", "258", "--packing", "documents", "--shuffle_seed", "1")


@pytest.mark.parametrize(("flags", "name"), [((), "text"), (TOKENS, "tokens")])
def test_preparing_text_tells_the_size_of_both_parts(prepare, golden, tmp_path, flags, name):
    stdout = prepare(*flags).said.replace(str(tmp_path), "DIR")
    golden(f"cli/prepare_{name}.txt", re.sub(r"in \d+\.\d s", "in S s", stdout))


def test_a_share_that_is_the_one_asked_for_is_not_told(prepare, tmp_path):
    (tmp_path / "one.txt").write_text("abcdefgh" * 100)
    assert "Held out" not in prepare(source=tmp_path / "one.txt", val_fraction="0.1").said


def test_files_that_are_no_text_are_told(cstool, tmp_path):
    source = tmp_path / "sources"
    source.mkdir()
    files = {"a.txt": b"text, " * 100, "b.png": b"\x89PNG\r\n" * 30, "c": b"\0" * 40, "d.csv": b"a,b\n1,some text\n"}
    for name, content in files.items():
        (source / name).write_bytes(content)
    command = ("data", "prepare", "text", source, "--output", tmp_path / "out", "--sequence_length", "8")
    for _ in range(2):
        assert cstool(*command).stdout.splitlines()[-1] == (
            "Left out, since no text: 1 CSV, 1 PNG, 1 binary; --csv_column takes a column of CSV"
        )
    assert cstool(*command, "--json").document["other_files"] == {"CSV": 1, "PNG": 1, "binary": 1}
    for more, last in (
        (("--csv_column", "b"), "Left out, since no text: 1 PNG, 1 binary"),
        (("--any_file",), "Held out"),
    ):
        assert cstool(*command, *more, "--overwrite").stdout.splitlines()[-1].startswith(last)


def test_json_lines_are_documents_from_the_command_to_the_information(cstool, prepare, tmp_path):
    lines = [json.dumps({"id": f"{number}", "story": f"Once upon {number}. " * 9}) for number in range(300)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    asked = {"source": tmp_path / "x.jsonl", "val_fraction": "0.2"}
    assert prepare(**asked).refusal == (
        f"error: {tmp_path}/x.jsonl:1: must have its text under a usual key (text, content, document, body, "
        'raw_content), got texts under "id", "story"\nhint: name the key, for example --jsonl_key story\n'
    )
    assert [line.split()[:3] for line in prepare("--jsonl_key", "story", **asked).said.splitlines()[1:4]] == [
        ["part", "files", "documents"],
        ["train", "1", "238"],
        ["val", "1", "62"],
    ]
    told = cstool("data", "info", tmp_path / "text").stdout
    assert ' bytes in 300 documents, "story" of JSON Lines\n' in told
    assert re.search(r"begins with +'Once upon \d", told)
    assert cstool("data", "check", tmp_path / "text").code == 0


def test_preparing_preferences_tells_what_became_of_the_lines(cstool, tmp_path):
    lines = [{"prompt": f"{n}=", "chosen": f"{n}", "rejected": "9" * 20 if n else ""} for n in range(11)]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    command = ("data", "prepare", "preferences", str(tmp_path / "pairs.jsonl"), "--output", tmp_path / "out")
    command += ("--sequence_length", "16", "--val_fraction", "0.2")
    stdout = cstool(*command).said
    assert re.sub(r"in \d+\.\d s", "in S s", stdout).splitlines() == [
        f"{tmp_path}/out: prepared in S s",
        "part   pairs  tokens of answers  cut",
        "train      8                136    8",
        "val        2                 35    2",
        "Left out: 1 line without a prompt or an answer",
    ]
    assert cstool(*command).stdout.splitlines()[0] == f"{tmp_path}/out: already prepared"
    assert cstool(*command, "--json").document["train"] == {"pairs": 8, "tokens": 136, "cut": 8}
    assert cstool("data", "check", tmp_path / "out").code == 0


def test_text_that_is_already_prepared_is_kept_and_the_summary_is_there_as_json(prepare, tmp_path):
    document = prepare("--json").document
    assert document["path"] == f"{tmp_path}/text"
    assert document["train"]["files"] + document["val"]["files"] == 20
    assert prepare().stdout.splitlines()[0] == f"{tmp_path}/text: already prepared"


def test_info_says_what_a_data_set_is(prepare, cstool, golden, tmp_path):
    prepare(*TOKENS)
    golden("cli/data_info.txt", cstool("data", "info", tmp_path / "text").said.replace(str(tmp_path), "DIR"))
    prepare("--overwrite")
    shown = cstool("data", "info", tmp_path / "text", "--json").said
    golden("cli/data_info.json", shown.replace(str(tmp_path), "DIR"))


def test_info_of_questions_says_how_many_contexts_each_has(cstool, tmp_path):
    test_hdf5_contexts.write(tmp_path / "dpr" / "train")
    lines = cstool("data", "info", tmp_path / "dpr").stdout.splitlines()
    assert lines[:4] == [
        f"data set            {tmp_path}/dpr",
        "format              HDF5 of questions with contexts",
        "tokens of a sample  4",
        "contexts            2, of 5 tokens each",
    ]


def test_info_of_images_says_how_many_there_are_of_a_class(cstool, tmp_path):
    for name in ("train/cat/1", "train/cat/2", "train/dog/1", "train/elk/1", "train/fox/1", "val/cat/1"):
        path = tmp_path / f"{name}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P6 2 1 255\n" + bytes(6))
    assert cstool("data", "info", str(tmp_path)).stdout.splitlines() == [
        f"data set  {tmp_path}",
        "format    images in files",
        "classes   cat, dog, elk and 1 more",
        "",
        "part   files  size  samples  classes  fewest  most",
        "train      5  85 B        5        4       1     2",
        "val        1  17 B        1        1       1     1",
    ]
    finding = "lacks dog, elk, fox and has besides none"
    assert finding in cstool("data", "check", str(tmp_path)).stdout


def test_of_a_folder_of_others_info_says_what_it_can(prepare, cstool, tmp_path, monkeypatch):
    prepare()
    monkeypatch.setattr("cstool.training.data.info.COUNTED_SAMPLES", 10)
    (tmp_path / "text" / "prepared.json").rename(tmp_path / "away")
    assert cstool("data", "info", str(tmp_path / "text" / "val")).stdout.splitlines()[-3:] == [
        "",
        "part  files     size  samples  tokens                padding",
        "val       1  8.77 kB       35       -  0.00% of the first 10",
    ]


def test_check_is_one_line_or_all_findings(prepare, cstool, tmp_path):
    prepare()
    folder = tmp_path / "text"
    assert cstool("data", "check", folder) == (0, f"{folder}: ok, 107 samples in 2 files, 24.6 kB\n", "")
    assert cstool("data", "check", folder, "--vocab_size", "98") == (
        1,
        "".join(
            f"{folder}/{part}/data_00000.h5: {name} must be in [0, 98), got 98 in sample 0 at position {place}, and "
            f"{more} more\n"
            for part, mores in (("train", (562, 563)), ("val", (274, 275)))
            for (name, place), more in zip((("input_ids", 1), ("labels", 0)), mores, strict=True)
        ),
        "",
    )


def test_check_is_there_as_json(prepare, cstool, tmp_path):
    prepare()
    document = cstool("data", "check", tmp_path / "text", "--json").document
    assert (document["ok"], document["findings"], document["samples"]) == (True, [], 107)
    (tmp_path / "text" / "val" / "data_00000.h5").unlink()
    outcome = cstool("data", "check", tmp_path / "text", "--json")
    document = json.loads(outcome.stdout)
    assert (outcome.code, outcome.stderr, document["ok"], len(document["findings"])) == (1, "", False, 3)


def test_digits_are_told_in_one_line_and_class_by_class(cstool, golden, tmp_path):
    made = tmp_path / "digits"
    command = ("data", "prepare", "digits", "--output", made)
    line = "prepared, 1,797 pictures: 1,438 train, 359 val\n"
    assert cstool(*command).said == f"{made}: {line}"
    assert cstool(*command).said == f"{made}: already {line}"
    found = {"path": str(made), "train": 1438, "val": 359, "already_prepared": True}
    assert cstool(*command, "--json").document == found
    golden("cli/data_info_digits.txt", cstool("data", "info", made).stdout.replace(str(tmp_path), "DIR"))
    message = error(f"{made}/train: must be a folder with files *.h5, found nothing there").strip()
    assert cstool("data", "baseline", made).refusal.startswith(message)


def test_the_baseline_is_one_line(prepare, cstool, tmp_path):
    prepare()
    pattern = rf"Held-out loss of a bigram model of {tmp_path}/text: \d\.\d{{5}} nats per byte\n"
    assert re.fullmatch(pattern, cstool("data", "baseline", tmp_path / "text").said)
    document = cstool("data", "baseline", tmp_path / "text", "--json").document
    assert (document["path"], document["model"]) == (f"{tmp_path}/text", "bigram")
    assert 0 < document["loss"] < 6
    prepare("--train_tokenizer", "258", "--overwrite")
    assert cstool("data", "baseline", tmp_path / "text").said.endswith(" nats per token\n")


MLM = ("--sequence_length", "16", "--vocab_size", "40", "--val_fraction", "0.3")


@pytest.mark.parametrize(("flags", "name"), [((), "mlm"), (("--nsp", "--do_lower"), "pairs")])
def test_masked_text_is_told_like_text(cstool, sources, golden, tmp_path, flags, name):
    command = ("data", "prepare", "mlm", sources, "--output", tmp_path / "made", *MLM, *flags)
    stdout = cstool(*command).said.replace(str(tmp_path), "DIR")
    golden(f"cli/prepare_{name}.txt", re.sub(r"in \d+\.\d s", "in S s", stdout))
    assert cstool(*command, "--json").document["already_prepared"]
    told = cstool("data", "info", tmp_path / "made").said.replace(str(tmp_path), "DIR")
    golden(f"cli/data_info_{name}.txt", told)
    assert cstool("data", "check", tmp_path / "made").code == 0
