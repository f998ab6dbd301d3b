"""Preparing data that goes wrong: one clear error, and the same command goes on when the reason is gone.

In the expected messages TMP is the folder of the test.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from cstool.data import text_work
from tests.end_to_end.refusals import Outcome, error

Cstool = Callable[..., Outcome]
PROJECT = Path(__file__).parents[2]
WORDS = [b"weights", b"stream", b"gradients", b"return", b"while", b"activations", b"stay", b"\n"]


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    """Make files of 64 samples, so that a small text makes several."""
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 64)


@pytest.fixture
def source(tmp_path) -> Path:
    """Some files of words."""
    folder = tmp_path / "source"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(6):
        words = [WORDS[i] for i in rng.integers(0, len(WORDS), 2000)]
        (folder / f"{number}.txt").write_bytes(b" ".join(words))
    return folder


def prepare(cstool: Cstool, source: Path, output: Path, *flags: object) -> Outcome:
    return cstool("data", "prepare", "text", source, "--output", output, "--sequence_length", 64, *flags)


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def letters(path: Path) -> Path:
    """Save a tokenizer that knows two words."""
    loaded = Tokenizer(models.WordLevel({"weights": 0, "stream": 1, "[UNK]": 2}, unk_token="[UNK]"))
    loaded.pre_tokenizer = pre_tokenizers.Whitespace()
    loaded.save(str(path))
    return path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--tokenizer TMP/no.json", error("TMP/no.json: must be bytes or a tokenizers JSON file, found nothing there")),
        ("--tokenizer TMP/letters.json --train_tokenizer 300", error("--train_tokenizer: must stand without another "
         "tokenizer, got --tokenizer TMP/letters.json", "leave one of the two out")),
        ("--train_tokenizer 256", error("--train_tokenizer: must be from 257 to 1,048,576 tokens, got 256",
         "256 are the bytes, and one stands between documents")),
        ("--allow_unknown", error("--allow_unknown: must stand beside --tokenizer FILE; bytes stand for all there is",
         "leave it out")),
        ("--processes 0", error("--processes: must be at least 1, got 0")),
        ("--packing document", error("--packing: must be one of stream, documents, got 'document'",
         "did you mean documents?")),
        ("--shuffle_seed x", error("--shuffle_seed: must be a whole number, got 'x'",
         "`cstool data prepare text --help` lists what there is")),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_leaves_nothing(cstool, tmp_path, source, flags, expected):
    letters(tmp_path / "letters.json")
    outcome = prepare(cstool, source, tmp_path / "out", *flags.replace("TMP", str(tmp_path)).split())
    assert outcome == (2, "", expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letters.json", "source"]


@pytest.mark.parametrize("processes", [1, 2])
def test_text_that_is_not_utf8_is_named_with_its_offset(cstool, tmp_path, source, processes):
    with (source / "3.txt").open("ab") as stream:
        stream.write(b"caf\xe9")
    place = (source / "3.txt").stat().st_size - 1
    flags = ("--train_tokenizer", 300, "--processes", processes)
    assert prepare(cstool, source, tmp_path / "out", *flags) == (2, "", error(
        f"TMP/source/3.txt: must be UTF-8 text for a tokenizer, got byte 0xe9 at offset {place:,}",
        "convert the file (iconv -t UTF-8) or leave it out; --tokenizer bytes takes any file",
    ))  # fmt: skip
    assert prepare(cstool, source, tmp_path / "out").code == 0


def test_characters_without_a_token_are_counted_where_that_is_asked_for(cstool, tmp_path):
    (tmp_path / "text.txt").write_text("weights stream weights ööö stream " * 20)
    flags = ("--tokenizer", letters(tmp_path / "letters.json"), "--val_fraction", 0)
    assert prepare(cstool, tmp_path / "text.txt", tmp_path / "out", *flags).code == 2
    outcome = prepare(cstool, tmp_path / "text.txt", tmp_path / "out", *flags, "--allow_unknown")
    assert outcome.stdout.splitlines()[-1] == "Unknown: no token stands for 20 characters"


def test_a_data_set_is_checked_and_every_finding_listed(cstool, tmp_path, source):
    prepare(cstool, source, tmp_path / "out")
    outcome = cstool("data", "check", tmp_path / "out")
    assert (outcome.code, re.sub(r"\d[\d,.]*", "N", outcome.stdout)) == (0, "TMP/out: ok, N samples in N files, N MB\n")
    first = tmp_path / "out" / "train" / "data_00000.h5"
    os.truncate(first, 4000)
    (tmp_path / "out" / "train" / "data_00001.h5").unlink()
    outcome = cstool("data", "check", tmp_path / "out")
    assert (outcome.code, outcome.stderr) == (1, "")
    assert re.sub(r"\b(got|have) [\d,]+", r"\1 N", outcome.stdout) == (
        "TMP/out/train/data_00000.h5: must have N bytes as it was made, got N\n"
        "TMP/out/train/data_00001.h5: must be there, found nothing\n"
        "TMP/out/train/data_00000.h5: must be a whole HDF5 file, got a truncated or damaged one\n"
        "TMP/out/train: must have N samples as it was made, got N\n"
        "TMP/out/train: must have N tokens as it was made, got N\n"
    )


@pytest.mark.parametrize("flags", [(), ("--train_tokenizer", 300)], ids=["bytes", "tokens"])
@pytest.mark.parametrize("pages", [0, 1, 2, 3, 20, 30])
def test_a_full_disk_is_no_loss(cstool, tmp_path, source, make_disk, flags, pages):
    """Wherever the disk is full: at the lock, in the head of a file, within one, or after some."""
    assert prepare(cstool, source, tmp_path / "straight", *flags).code == 0
    disk = make_disk(tmp_path / "disk", 4096 * (pages + 1))
    if pages == 0:
        (disk.place / "filler").write_bytes(bytes(4096))
    output = disk.place / "out"
    outcome = prepare(cstool, source, output, *flags)
    assert outcome.code == 2
    assert re.sub(r"; the data set takes [\d,]+ bytes", "", outcome.stderr) == error(
        "TMP/disk/out: must fit on its disk, which is full",
        "free some space and give the same command, which goes on from what is finished; or give another --output",
    )
    assert not output.exists()
    (disk.place / "filler").unlink(missing_ok=True)
    disk.grow(2**24)
    outcome = prepare(cstool, source, output, *flags)
    assert outcome.code == 0
    if pages == 30:
        assert re.search(r"^continued: .*[1-9]\d* of \d+ files", outcome.stdout, re.MULTILINE)
    assert content_of(output) == content_of(tmp_path / "straight")
    assert [path.name for path in disk.place.iterdir()] == ["out"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_preparation_that_is_killed_goes_on(cstool, tmp_path, source, monkeypatch, processes):
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 1)
    flags = ("--train_tokenizer", 300, "--processes", processes)
    assert prepare(cstool, source, tmp_path / "straight", *flags).code == 0
    # It says of each file that it is there, and waits to be killed after the second.
    output = tmp_path / "out"
    partial = tmp_path / ".out.partial"
    script = (
        "import pathlib, sys, time\n"
        "from cstool.cli import main\n"
        "from cstool.data import text_work\n"
        "text_work.FILE_SAMPLES = 1\n"
        "tell = text_work.TextWork._tell\n"
        "def told(*arguments):\n"
        "    tell(*arguments)\n"
        f"    if len(list(pathlib.Path({str(partial)!r}).glob('train/data_*.h5'))) > 1:\n"
        "        time.sleep(600)\n"
        "text_work.TextWork._tell = told\n"
        "sys.exit(main())\n"
    )
    command = ["data", "prepare", "text", source, "--output", output, "--sequence_length", 64, *flags]
    begun = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, command)], env={**os.environ, "PYTHONPATH": str(PROJECT)}
    )
    while len(list(partial.glob("train/data_*.h5"))) < 2:
        assert begun.poll() is None
        time.sleep(0.002)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert not output.exists()
    outcome = prepare(cstool, source, output, *flags)
    assert outcome.code == 0
    assert re.search(
        r"^continued: 2 of 2 files of tokens and \d+ of \d+ files were there$", outcome.stdout, re.MULTILINE
    )
    assert content_of(output) == content_of(tmp_path / "straight")
    assert not partial.exists()


@pytest.mark.parametrize("command", ["info", "check"])
def test_a_data_file_that_somebody_writes_is_named(cstool, tmp_path, source, command):
    prepare(cstool, source, tmp_path / "out", "--val_fraction", 0)
    path = tmp_path / "out" / "train" / "data_00000.h5"
    script = "import h5py, sys; file = h5py.File(sys.argv[1], 'a'); print(flush=True); sys.stdin.read()"
    writer = subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    writer.stdout.readline()
    message = (
        "TMP/out/train/data_00000.h5: must not be written to while it is read, another process has it open for that"
    )
    outcome = cstool("data", command, tmp_path / "out")
    writer.communicate()
    if command == "info":
        assert outcome == (2, "", error(message, "wait until the file is finished"))
    else:
        assert (outcome.code, outcome.stdout.splitlines()[0], outcome.stderr) == (1, message, "")
    assert cstool("data", command, tmp_path / "out").code == 0
