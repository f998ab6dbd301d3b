"""The dataloader sections of encoder-decoders."""

import re

import pytest

from tests.unit.params.conftest import cases, told

TRAIN = "fit.train_dataloader"
LINES = {
    "src_data_dir": "data",
    "src_vocab_file": "vocab.txt",
    "src_max_sequence_length": 512,
    "tgt_max_sequence_length": 114,
}
TOKENS = {"do_lower": True, "oov_token": "[UNK]", "sos_token": "<pad>", "eos_token": "[SEP]", "pad_token": "[PAD]"} | {
    "input_pad_id": 1,
    "labels_pad_id": 2,
    "dynamic_loss_weight": True,
}
NOTED = {"buckets": [64], "shuffle_buffer": 16384, "tgt_vocab_file": "x", "tgt_data_dir": "x", "vocab_size": 5} | {
    "num_workers": 8,
    "prefetch_factor": 10,
    "persistent_workers": True,
}
SECTIONS = {
    "T5DynamicDataProcessor": (
        LINES,
        {**TOKENS, "extra_ids": 100, "pack_sequences": True, "num_documents_to_concatenate": 64},
        {},
        NOTED,
    ),
    "TransformerDynamicDataProcessor": (
        LINES,
        TOKENS,
        {"extra_ids": 0, "pack_sequences": False},
        {**NOTED, "num_documents_to_concatenate": 64},
    ),
    "T5HDF5DataProcessor": (
        {"data_dir": "data"},
        {"features_list": ["input_ids", "labels"]},
        {"use_vsl": False},
        {"num_workers": 8, "shuffle_buffer": 9},
    ),
}
"""name -> keys that must be there, keys that are acted on, keys of one value, keys without effect"""


def section(name: str, **keys):
    """Changes of the small file to its data."""
    return {TRAIN: {"data_processor": name, "batch_size": 8, **SECTIONS[name][0], **keys}}


@pytest.fixture
def loader(load):
    """Load one dataloader; keys may be added."""

    def call(name: str, **keys):
        return load(section(name, **keys)).dataloaders("train")[0]

    return call


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_the_keys_of_the_vendor(load, folder, name):
    needed, acted_on, one_value, noted = SECTIONS[name]
    written = {**needed, **acted_on, "shuffle": False, "shuffle_seed": 3, "drop_last": False}
    params = load(section(name, **one_value, **noted, **{key: written[key] for key in written if key not in needed}))
    [found] = params.dataloaders("train")
    paths = {key: str(folder / value) for key, value in written.items() if key.endswith("_file")}
    lists = {key: [str(folder / value)] for key, value in written.items() if key.endswith("_dir")}
    dumped = found.dump()
    for key, value in {"data_processor": name, "batch_size": 8, **written, **paths, **lists}.items():
        assert dumped[key] == value, key
    assert set(params.notes) == {f"trainer.{TRAIN}.{key}: accepted, no effect" for key in noted}


def test_what_is_left_out_is_the_vendors(loader):
    found = {name: loader(name) for name in SECTIONS}
    assert {name: each.shuffle for name, each in found.items()} == {
        "T5DynamicDataProcessor": True,
        "TransformerDynamicDataProcessor": True,
        "T5HDF5DataProcessor": False,
    }
    spans = found["T5DynamicDataProcessor"]
    assert (spans.extra_ids, spans.documents) == (0, 1)
    assert (spans.oov_token, spans.sos_token, spans.eos_token, spans.pad_token) == ("<unk>", "<s>", "</s>", "<pad>")
    assert loader("T5DynamicDataProcessor", pack_sequences=True).documents == 128


def test_what_the_graph_needs_is_there(loader):
    def said(name, **keys):
        found = loader(name, **keys)
        return found.sample_length, found.target_length, found.scales_by_predictions

    assert said("T5DynamicDataProcessor") == (512, 114, False)
    assert said("TransformerDynamicDataProcessor", dynamic_loss_weight=True) == (512, 114, True)
    assert said("T5HDF5DataProcessor") == (None, None, False)


REFUSED = cases("""\
{src_max_sequence_length: 3} => FILE: @.src_max_sequence_length must be at least 4, got 3
{tgt_max_sequence_length: null} => FILE: @.tgt_max_sequence_length is missing
{extra_ids: -1} => FILE: @.extra_ids must be at least 0, got -1
{src_vocab_file: null} => FILE: @.src_vocab_file is missing
{src_data_dir: null} => FILE: @.src_data_dir is missing
{src_data_dir: [a, 5]} => FILE: @.src_data_dir must be a folder or a list of folders, got ['a', 5]
{input_pad_id: "<pad>"} => FILE: @.input_pad_id must be a whole number, got '<pad>'
{num_documents_to_concatenate: 0} => FILE: @.num_documents_to_concatenate must be at least 1, got 0
{src_max_sequence_lenght: 5} =>
    FILE: @.src_max_sequence_lenght is not a known key\nhint: did you mean src_max_sequence_length?
""")


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_a_section_that_makes_no_sense_is_an_error(failure, keys, message):
    changes = section("T5DynamicDataProcessor", **keys)
    assert re.sub(r"x.yaml:\d+", "FILE", failure(changes)) == told(message, f"trainer.{TRAIN}")


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("TransformerDynamicDataProcessor", {"extra_ids": 5}, "@.extra_ids: 5\nhint: supported: 0"),
        ("TransformerDynamicDataProcessor", {"pack_sequences": True}, "@.pack_sequences: true\nhint: leave it out"),
        ("T5HDF5DataProcessor", {"use_vsl": True}, "@.use_vsl: true\nhint: leave it out"),
    ],
)
def test_what_the_vendor_can_beyond_this_is_refused(failure, name, key, message):
    found = re.sub(r"x.yaml:\d+", "FILE", failure(section(name, **key)))
    assert found == told(f"FILE: not supported: {message}", f"trainer.{TRAIN}")
