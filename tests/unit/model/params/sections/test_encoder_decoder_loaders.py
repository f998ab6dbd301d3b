"""The dataloader sections of encoder-decoders."""

import re

import pytest
import yaml

from tests.unit.model.params.conftest import cases, told

TRAIN = "fit.train_dataloader"
SECTIONS = yaml.safe_load("""
T5DynamicDataProcessor:
  needed: &lines {src_data_dir: data, src_vocab_file: vocab.txt, src_max_sequence_length: 512,
    tgt_max_sequence_length: 114}
  acted_on: {do_lower: true, oov_token: '[UNK]', sos_token: <pad>, eos_token: '[SEP]', pad_token: '[PAD]',
    input_pad_id: 1, labels_pad_id: 2, dynamic_loss_weight: true, extra_ids: 100, pack_sequences: true,
    num_documents_to_concatenate: 64}
  one_value: {}
  noted: {buckets: [64], shuffle_buffer: 16384, tgt_vocab_file: x, tgt_data_dir: x, vocab_size: 5, num_workers: 8,
    prefetch_factor: 10, persistent_workers: true}
TransformerDynamicDataProcessor:
  needed: *lines
  acted_on: {do_lower: true, oov_token: '[UNK]', sos_token: <pad>, eos_token: '[SEP]', pad_token: '[PAD]',
    input_pad_id: 1, labels_pad_id: 2, dynamic_loss_weight: true}
  one_value: {extra_ids: 0, pack_sequences: false}
  noted: {buckets: [64], shuffle_buffer: 16384, tgt_vocab_file: x, tgt_data_dir: x, vocab_size: 5, num_workers: 8,
    prefetch_factor: 10, persistent_workers: true, num_documents_to_concatenate: 64}
T5HDF5DataProcessor:
  needed: {data_dir: data}
  acted_on: {features_list: [input_ids, labels]}
  one_value: {use_vsl: false}
  noted: {num_workers: 8, shuffle_buffer: 9}
""")
"""name -> keys that must be there, keys that are acted on, keys of one value, keys without effect"""


def section(name: str, **keys):
    """Changes of the small file to its data."""
    return {TRAIN: {"data_processor": name, "batch_size": 8, **SECTIONS[name]["needed"], **keys}}


@pytest.fixture
def loader(load):
    """Load one dataloader; keys may be added."""

    def call(name: str, **keys):
        return load(section(name, **keys)).dataloaders("train")[0]

    return call


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_the_keys_of_the_vendor(load, folder, name):
    needed, acted_on, one_value, noted = SECTIONS[name].values()
    order = {"shuffle": False, "shuffle_seed": 3, "drop_last": False}
    params = load(section(name, **acted_on, **one_value, **noted, **order))
    written = {"data_processor": name, "batch_size": 8, **needed, **acted_on, **order}
    paths = {key: str(folder / value) for key, value in written.items() if key.endswith("_file")}
    lists = {key: [str(folder / value)] for key, value in written.items() if key.endswith("_dir")}
    expected = {**written, **paths, **lists}
    dumped = params.dataloaders("train")[0].dump()
    assert {key: dumped.get(key) for key in expected} == expected
    assert {*params.notes} == {f"trainer.{TRAIN}.{key}: accepted, no effect" for key in noted}


def test_what_is_left_out_is_the_vendors(loader):
    spans, translations, pairs = map(loader, SECTIONS)
    assert (spans.shuffle, translations.shuffle, pairs.shuffle) == (True, True, False)
    assert (spans.extra_ids, spans.documents) == (0, 1)
    assert (spans.oov_token, spans.sos_token, spans.eos_token, spans.pad_token) == ("<unk>", "<s>", "</s>", "<pad>")
    assert loader("T5DynamicDataProcessor", pack_sequences=True).documents == 128


def test_what_the_graph_needs_is_there(loader):
    found = [*map(loader, SECTIONS), loader("TransformerDynamicDataProcessor", dynamic_loss_weight=True)]
    said = [(each.sample_length, each.target_length, each.scales_by_predictions) for each in found]
    assert said == [(512, 114, False), (512, 114, False), (None, None, False), (512, 114, True)]


REFUSED = cases("""\
{tgt_max_sequence_length: null} => FILE: @.tgt_max_sequence_length is missing
{src_vocab_file: null} => FILE: @.src_vocab_file is missing
{src_data_dir: [a, 5]} => FILE: @.src_data_dir must be a folder or a list of folders, got ['a', 5]
{input_pad_id: "<pad>"} => FILE: @.input_pad_id must be a whole number, got '<pad>'
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
