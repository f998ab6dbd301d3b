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

from cstool.training.data import text_work
from tests.end_to_end.refusals import Outcome, error
from tests.unit.training.data.made import content_of

Prepare = Callable[..., Outcome]
PROJECT = Path(__file__).parents[2]
WORDS = [b"weights", b"stream", b"gradients", b"return", b"while", b"activations", b"stay", b"\n"]


@pytest.fixture
def source(tmp_path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(6):
        words = [WORDS[i] for i in rng.integers(0, len(WORDS), 2000)]
        (folder / f"{number}.txt").write_bytes(b" ".join(words))
    return folder


@pytest.fixture
def prepare(cstool, source, monkeypatch) -> Prepare:
    """Prepare the source in files of 64 samples, so that a small text makes several."""
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 64)
    return lambda output, *flags, of=source: cstool(*command_of(of, output, *flags))


def command_of(source: Path, output: Path, *flags: object) -> list[object]:
    return ["data", "prepare", "text", source, "--output", output, "--sequence_length", 64, *flags]


def test_what_cannot_be_asked_for_leaves_nothing(prepare, tmp_path):
    rule = "--packing: must be one of stream, documents, got 'document'"
    assert prepare(tmp_path / "out", "--packing", "document") == (2, "", error(rule, "did you mean documents?"))
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_characters_without_a_token_are_counted_where_that_is_asked_for(prepare, tmp_path):
    loaded = Tokenizer(models.WordLevel({"weights": 0, "stream": 1, "[UNK]": 2}, unk_token="[UNK]"))
    loaded.pre_tokenizer = pre_tokenizers.Whitespace()
    loaded.save(str(tmp_path / "words.json"))
    text, flags = tmp_path / "text.txt", ("--tokenizer", tmp_path / "words.json", "--val_fraction", 0)
    text.write_text("weights stream weights ööö stream " * 20)
    assert prepare(tmp_path / "out", *flags, of=text).code == 2
    outcome = prepare(tmp_path / "out", *flags, "--allow_unknown", of=text)
    assert outcome.stdout.splitlines()[-1] == "Unknown: no token stands for 20 characters"


TOKENS = ("--train_tokenizer", 300)


@pytest.mark.parametrize(
    ("flags", "pages"),
    [
        *((TOKENS, pages) for pages in (0, 1, 30)),
        *(pytest.param((), pages, marks=pytest.mark.lab) for pages in (0, 1, 2, 3, 20, 30)),
        *(pytest.param(TOKENS, pages, marks=pytest.mark.lab) for pages in (2, 3, 20)),
    ],
)
def test_a_full_disk_is_no_loss(prepare, tmp_path, make_disk, flags, pages):
    """Wherever the disk is full: at the lock, in the head of a file, within one, or after some."""
    assert prepare(tmp_path / "straight", *flags).code == 0
    disk = make_disk(tmp_path / "disk", 4096 * (pages + 1))
    if pages == 0:
        (disk.place / "filler").write_bytes(bytes(4096))
    output = disk.place / "out"
    outcome = prepare(output, *flags)
    assert (outcome.code, output.exists()) == (2, False)
    assert re.sub(r"; the data set takes [\d,]+ bytes", "", outcome.stderr) == error(
        "TMP/disk/out: must fit on its disk, which is full",
        "free some space and give the same command, which goes on from what is finished; or give another --output",
    )
    (disk.place / "filler").unlink(missing_ok=True)
    disk.grow(2**24)
    outcome = prepare(output, *flags)
    assert outcome.code == 0
    if pages == 30:
        assert re.search(r"^continued: .*[1-9]\d* of \d+ files", outcome.stdout, re.MULTILINE)
    assert content_of(output) == content_of(tmp_path / "straight")
    assert [path.name for path in disk.place.iterdir()] == ["out"]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.lab)])
def test_a_preparation_that_is_killed_goes_on(prepare, tmp_path, source, monkeypatch, processes):
    monkeypatch.setattr(text_work, "FILE_SAMPLES", 1)
    flags = (*TOKENS, "--processes", processes)
    assert prepare(tmp_path / "straight", *flags).code == 0
    # It says of each file that it is there, and waits to be killed after the second.
    output, partial = tmp_path / "out", tmp_path / ".out.partial"
    script = (
        "import pathlib, sys, time\n"
        "from cstool.cli import main\n"
        "from cstool.training.data import text_work\n"
        "text_work.FILE_SAMPLES = 1\n"
        "tell = text_work.TextWork._tell\n"
        "def told(*arguments):\n"
        "    tell(*arguments)\n"
        f"    if len(list(pathlib.Path({str(partial)!r}).glob('train/data_*.h5'))) > 1:\n"
        "        time.sleep(600)\n"
        "text_work.TextWork._tell = told\n"
        "sys.exit(main())\n"
    )
    command = [sys.executable, "-c", script, *map(str, command_of(source, output, *flags))]
    begun = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(PROJECT)})
    while len(list(partial.glob("train/data_*.h5"))) < 2:
        assert begun.poll() is None
        time.sleep(0.002)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert not output.exists()
    outcome = prepare(output, *flags)
    assert outcome.code == 0
    found = r"^continued: 2 of 2 files of tokens and \d+ of \d+ files were there$"
    assert re.search(found, outcome.stdout, re.MULTILINE)
    assert content_of(output) == content_of(tmp_path / "straight")
    assert not partial.exists()


def test_a_data_file_that_somebody_writes_is_named(cstool, prepare, tmp_path):
    prepare(tmp_path / "out", "--val_fraction", 0)
    path = tmp_path / "out" / "train" / "data_00000.h5"
    script = "import h5py, sys; file = h5py.File(sys.argv[1], 'a'); print(flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", script, path], **pipes) as writer:
        writer.stdout.readline()
        info, check = (cstool("data", verb, tmp_path / "out") for verb in ("info", "check"))
        writer.communicate()
    rule = "must not be written to while it is read, another process has it open for that"
    message = f"TMP/out/train/data_00000.h5: {rule}"
    assert info == (2, "", error(message, "wait until the file is finished"))
    assert (check.code, check.stdout.splitlines()[0], check.stderr) == (1, message, "")
    assert [cstool("data", verb, tmp_path / "out").code for verb in ("info", "check")] == [0, 0]
