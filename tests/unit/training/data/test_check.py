"""What is wrong with a data set, and what a data set is."""

import json

import numpy as np
import pytest

from cstool.training.data import DataInfo, PartInfo, TextRequest, check_data, data_info, prepare_digits, prepare_text
from tests.unit.training.data.encoder_files import change, findings
from tests.unit.training.data.made import samples, write, write_files

TEXT = "the quick brown fox jumps over the lazy dog " * 4


@pytest.fixture
def made(tmp_path):
    """Make a data set of bytes from two files, all but `changes` as always."""
    write_files(tmp_path / "source", a=TEXT, b=TEXT)

    def make(**changes):
        request = TextRequest(**{"sequence_length": 16, "val_fraction": 0.5, **changes})
        prepare_text([tmp_path / "source"], tmp_path / "text", request)
        return tmp_path / "text"

    return make


def write_vendor(folder, *contents):
    """Write a folder of the vendor's layout, with tokens below 100."""
    for number, content in enumerate(contents):
        write(folder / "vendor" / f"part_{number}.h5", content)
    return folder / "vendor"


@pytest.mark.parametrize(
    "changes", [{}, {"packing": "documents"}, {"shuffle_seed": 1}, {"train_vocab": 270}, {"val_fraction": 0}], ids=str
)
def test_what_was_made_is_fine_and_progress_comes_to_the_end(made, changes):
    folder, told = made(**changes), []
    checked = check_data(folder, progress=lambda *state: told.append(state))
    files = list(folder.rglob("*.h5"))
    size_bytes = sum(file.stat().st_size for file in files)
    parts = json.loads((folder / "prepared.json").read_text())["parts"].values()
    assert (checked.findings, checked.files, checked.size_bytes) == ([], len(files), size_bytes)
    assert checked.samples == sum(part["samples"] for part in parts)
    assert told[-1] == (size_bytes, size_bytes)


def test_tokens_masks_and_labels_that_are_wrong_are_found_each_once_for_a_file(made):
    folder = made()
    change(folder / "train" / "data_00000.h5", (3, 2, 5), 65)
    for place, value in (((1, 0, 0), 256), ((2, 0, 0), -1), ((1, 1, 3), 2), ((4, 2, 15), 300)):
        change(folder / "val" / "data_00000.h5", place, value)
    assert findings(folder) == [
        "DIR/text/train/data_00000.h5: labels must be the next of input_ids, got 65 in sample 3 at position 5",
        "DIR/text/val/data_00000.h5: input_ids must be in [0, 256), got 256 in sample 1 at position 0, and 1 more",
        "DIR/text/val/data_00000.h5: attention_mask must be 0 or 1, got 2 in sample 1 at position 3",
        "DIR/text/val/data_00000.h5: labels must be in [0, 256), got 300 in sample 4 at position 15",
        "DIR/text/val: must have 175 tokens as it was made, got 174",
    ]


def test_a_part_in_which_no_label_counts_is_found(made):
    folder = made()
    change(folder / "val" / "data_00000.h5", (slice(1, None), 1), 0)
    assert findings(folder) == ["DIR/text/val: must have 175 tokens as it was made, got 16"]
    (folder / "prepared.json").unlink()
    assert findings(folder) == []
    change(folder / "val" / "data_00000.h5", (0, 1), 0)
    assert findings(folder) == [
        "DIR/text/val: at least one label must count, got masks that are all 0 in all 11 samples"
    ]


def test_files_that_are_missing_cut_short_or_too_many_are_found(made):
    folder = made()
    path = folder / "train" / "data_00000.h5"
    size = path.stat().st_size
    (folder / "train" / "data_00001.h5").write_bytes(path.read_bytes())
    path.write_bytes(path.read_bytes()[:-100])
    (folder / "val" / "data_00000.h5").unlink()
    assert findings(folder) == [
        f"DIR/text/train/data_00000.h5: must have {size:,} bytes as it was made, got {size - 100:,}",
        "DIR/text/val/data_00000.h5: must be there, found nothing",
        "DIR/text/train/data_00001.h5: must not be there, it is none of the files that were made",
        "DIR/text/train/data_00000.h5: must be a whole HDF5 file, got a truncated or damaged one",
        "DIR/text/val: must have 11 samples as it was made, got 0",
        "DIR/text/val: must have 175 tokens as it was made, got 0",
    ]
    (folder / "val").rmdir()
    assert findings(folder)[1] == "DIR/text/val/data_00000.h5: must be there, found nothing"


def test_what_a_tokenized_data_set_is_and_a_tokenizer_that_is_another_or_gone_is_found(made):
    folder = made(train_vocab=270)
    info, path = data_info(folder), folder / "tokenizer.json"
    assert (info.tokenizer, info.vocab_size) == (str(path), 270)
    assert info.source == f"{folder.parent}/source, 352 bytes, tokenizer from the train part"
    assert TEXT.startswith(info.first_text)
    path.write_text(path.read_text() + "\n")
    rule = "must be the tokenizer that the text was made with, got another"
    assert findings(folder) == [f"DIR/text/tokenizer.json: {rule}"]
    path.unlink()
    assert findings(folder) == ["DIR/text/tokenizer.json: must be bytes or a tokenizers JSON file, found nothing there"]


def test_the_vocabulary_of_a_folder_without_a_record_is_that_which_is_asked_for(tmp_path):
    content = samples(5)
    content[2, 0, 1] = 120
    folder = write_vendor(tmp_path, content)
    assert findings(folder) == findings(folder, vocab_size=121) == []
    rule = "input_ids must be in [0, 120), got 120 in sample 2 at position 1"
    assert findings(folder, vocab_size=120) == [f"DIR/vendor/part_0.h5: {rule}"]


def test_folders_below_are_parts_and_files_of_different_lengths_are_found(tmp_path):
    for part, count in (("train", 3), ("val", 2)):
        write(tmp_path / "all" / part / "a.h5", samples(count))
    assert {name: part.samples for name, part in data_info(tmp_path / "all").parts.items()} == {"train": 3, "val": 2}
    assert check_data(tmp_path / "all").samples == 5
    lengths = "got 4 in DIR/vendor/part_0.h5, 8 in DIR/vendor/part_1.h5"
    rule = f"samples must have the same number of tokens, {lengths}"
    assert findings(write_vendor(tmp_path, samples(2), samples(3, 8))) == [f"DIR/vendor: {rule}"]


def test_what_pictures_are_and_that_they_are_checked(tmp_path, mnist):
    mnist("train", 13)
    mnist("t10k", 2)
    info, checked = data_info(tmp_path / "mnist"), check_data(tmp_path / "mnist")
    assert (info.format, info.parts["train"].classes) == ("MNIST IDX", [2, 2, 2, 1, 1, 1, 1, 1, 1, 1])
    assert (info.parts["val"].samples, info.parts["val"].files) == (2, 2)
    assert (checked.findings, checked.files, checked.samples) == ([], 4, 15)
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    assert findings(tmp_path / "mnist") == [f"DIR/mnist/{path.name}: must hold 2 bytes after its header, got 1"]


def test_digits_are_compared_with_their_record(tmp_path):
    prepare_digits(tmp_path / "digits")
    assert findings(tmp_path / "digits") == []
    (tmp_path / "digits" / "t10k-labels-idx1-ubyte").unlink()
    beside = "t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz beside t10k-images-idx3-ubyte"
    assert findings(tmp_path / "digits") == [
        "DIR/digits/t10k-labels-idx1-ubyte: must be there, found nothing",
        f"DIR/digits: must hold {beside}, got neither",
    ]


@pytest.mark.parametrize("ask", [data_info, check_data])
def test_a_folder_without_data_is_refused(tmp_path, error_of, ask):
    hint = (
        "\nhint: give a folder of `cstool data prepare`, one with files *.h5, with a meta.dat that lists files of CSV, "
        "with the files of MNIST, or with images in a folder for each class of each part"
    )
    (tmp_path / "a").touch()
    (tmp_path / "empty").mkdir()
    for name, got in {
        "no": f"found nothing there{hint}",
        "empty": f"got none among its entries (0){hint}",
        "a": "got a file\nhint: give the folder that holds it: DIR",
    }.items():
        assert error_of(ask, tmp_path / name) == f"DIR/{name}: must be a folder with a data set, {got}"


def test_what_a_made_data_set_is(made):
    folder = made(packing="documents", shuffle_seed=3)
    size_bytes = (folder / "train" / "data_00000.h5").stat().st_size
    info = data_info(folder)
    assert info == DataInfo(
        folder,
        "HDF5 text",
        {part: PartInfo(1, size_bytes, 11, 176, 0.0, 11) for part in ("train", "val")},
        sequence_length=16,
        tokenizer="bytes",
        vocab_size=256,
        packing="documents",
        shuffle_seed=3,
        unknown_characters=0,
        source=f"{folder.parent}/source, 352 bytes",
        first_tokens=info.first_tokens,
        first_text=bytes(info.first_tokens).decode(),
    )
    assert info.first_text in TEXT + "\0"


def test_of_many_sources_some_are_told(tmp_path):
    sources = [tmp_path / name for name in "abcde"]
    write_files(tmp_path, **dict.fromkeys("abcde", TEXT))
    prepare_text(sources, tmp_path / "text", TextRequest(sequence_length=16))
    told = ", ".join(map(str, sources[:3]))
    assert data_info(tmp_path / "text").source == f"{told} and 2 more, 880 bytes"


def test_a_record_from_before_sources_were_in_it_is_read(made):
    folder = made()
    record = json.loads((folder / "prepared.json").read_text())
    for key in ("sources", "packing", "shuffle_seed", "unknown_characters"):
        del record[key]
    (folder / "prepared.json").write_text(json.dumps(record))
    info = data_info(folder)
    assert (info.source, info.packing, info.tokenizer) == ("text, 352 bytes", "stream", "bytes")
    assert check_data(folder).findings == []


def test_what_a_folder_of_the_vendor_is_of_which_some_samples_are_read(tmp_path, monkeypatch):
    content = samples(6)
    counted = int(content[:, 1].sum())
    folder = write_vendor(tmp_path, content[:4], content[4:])
    info = data_info(folder)
    part = info.parts["vendor"]
    assert (part.padding, part.tokens, part.files) == (pytest.approx(1 - counted / 24), counted, 2)
    assert (info.first_text, info.source, info.packing, info.tokenizer) == (None, None, None, None)
    assert info.first_tokens == content[0, 0, : max(1, int(content[0, 1].sum()))].tolist()
    monkeypatch.setattr("cstool.training.data.info.COUNTED_SAMPLES", 4)
    part = data_info(folder).parts["vendor"]
    assert (part.samples, part.read_samples, part.tokens) == (6, 4, None)
    assert part.padding == pytest.approx(1 - int(content[:4, 1].sum()) / 16)

    # A mask that is not at the begin does not hide the first token.
    content = np.zeros((1, 3, 4), np.int32)
    content[0, 0] = [9, 8, 7, 6]
    assert data_info(write_vendor(tmp_path / "masked", content)).first_tokens == [9]
