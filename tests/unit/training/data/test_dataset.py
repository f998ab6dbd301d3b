"""Fields, the vendor's names of data sets, and what keeps one from being read."""

import sys
from functools import partial

import pytest

from cstool.model.params import SentencesParams
from cstool.training.data import (
    Hdf5TextDataset,
    MaskedTextPlan,
    SpanTextPlan,
    load_tokenizer,
    open_dataset,
    open_hdf5_text,
    open_mnist,
    prepare_digits,
    prepare_masked_text,
    prepare_span_text,
)
from cstool.training.data.dataset import names_in_folder
from cstool.training.data.sentences import SentencesDataset
from cstool.training.data.sources import find_files
from cstool.training.data.tokenizing import train_tokenizer
from tests.unit.training.data.encoder_files import opened_by, write_vocabulary
from tests.unit.training.data.made import samples, write, write_files


@pytest.mark.parametrize("name", ["GptHDF5MapDataProcessor", "GptHDF5DataProcessor"])
def test_both_language_model_processors_read_the_same_files(tmp_path, name):
    write(tmp_path / "a.h5", samples(3))
    dataset = open_dataset(name, [tmp_path], max_sequence_length=2)
    assert (type(dataset), dataset.sample_count, dataset.fields["labels"].shape) == (Hdf5TextDataset, 3, (2,))


def test_the_mnist_processor_reads_the_part_asked_for(mnist):
    mnist("train", 3)
    mnist("t10k", 2)
    counts = [open_dataset("MNISTDataProcessor", [mnist.folder], split=s).sample_count for s in (None, "train", "val")]
    assert counts == [3, 3, 2]


def test_an_unknown_processor_is_reported_with_the_nearest(tmp_path, error_of):
    assert error_of(open_dataset, "GptHDF5Processor", [tmp_path]) == (
        "data_processor: must be one of GptHDF5MapDataProcessor, GptHDF5DataProcessor, MNISTDataProcessor, "
        "got GptHDF5Processor\nhint: GptHDF5DataProcessor is the nearest"
    )


DIGITS = "DIR/mnist/train-images-idx3-ubyte"


@pytest.mark.parametrize(
    ("refusing", "call", "message"),
    [
        ("pathlib.Path.open", lambda folder: find_files([folder]), "DIR/a.h5: must be readable"),
        ("os.scandir", lambda folder: find_files([folder]), "DIR: must be a readable folder"),
        ("pathlib.Path.open", lambda folder: open_hdf5_text([folder]), "DIR/a.h5: must be readable"),
        ("pathlib.Path.iterdir", lambda folder: names_in_folder(folder, "", "", ""), "DIR: must be a readable folder"),
        ("pathlib.Path.read_bytes", lambda folder: open_mnist([folder / "mnist"]), f"{DIGITS}: must be readable"),
    ],
)
def test_what_may_not_be_read_is_told(tmp_path, error_of, mnist, monkeypatch, refusing, call, message):
    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    write(tmp_path / "a.h5", samples(1))
    mnist("train", 3)
    monkeypatch.setattr(refusing, refuse)
    assert error_of(call, tmp_path) == f"{message}, got: Permission denied"


CUTTING = "cutting text into tokens needs the package"
MASKED, SPANS = MaskedTextPlan(16, vocab_size=120), SpanTextPlan(32, vocab_size=280)
GLUE = {"data_processor": "SST2DataProcessor", "split": "train", "max_sequence_length": 9}
open_glue = partial(opened_by, SentencesDataset, SentencesParams, **GLUE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: load_tokenizer(path / "t.json"), "DIR/t.json: reading a tokenizer needs the package"),
        (lambda path: train_tokenizer(path / "t.json", iter("a"), 300), "--train_tokenizer: needs the package"),
        (lambda path: prepare_masked_text([path / "text"], path / "out", MASKED), f"--vocab_size: {CUTTING}"),
        (lambda path: prepare_span_text([path / "text"], path / "out", SPANS), "--vocab_size: needs the package"),
        (lambda path: open_glue([path / "SST-2"], vocab_file=path / "vocab.txt"), f"DIR/vocab.txt: {CUTTING}"),
        (lambda path: prepare_digits(path / "out"), "the digits come with the package"),
    ],
)
def test_without_a_package_the_hint_says_how_to_get_it(tmp_path, error_of, monkeypatch, call, message):
    glue = {"SST-2__train.tsv": "sentence\tlabel\na\t1\n"}
    write_files(tmp_path, text__a="the cat sat on the mat .\n" * 9, **glue)
    write_vocabulary(tmp_path)
    for package in ("tokenizers", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, package, None)
    name, extra = ("scikit-learn", "data") if "digits" in message else ("tokenizers", "tokenizers")
    assert error_of(call, tmp_path) == (
        f"{message} {name}, which is not installed\nhint: pip install 'cstool[{extra}]', or {name} itself"
    )
    assert load_tokenizer("bytes").vocab_size == 256
