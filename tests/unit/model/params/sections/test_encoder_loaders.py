"""The dataloader sections of encoders."""

import re

import pytest
import yaml

from cstool.model.graphs import SampleForm, declared_form
from cstool.model.params.sections.encoder_loaders import usual_predictions
from cstool.model.params.sections.loaders import LOADERS
from tests.unit.model.params.conftest import cases, told
from tests.unit.model.params.sections.test_encoder_decoder_loaders import SECTIONS as ENCODER_DECODERS

TRAIN = "fit.train_dataloader"
BERT = {"name": "bert", "hidden_size": 64, "num_heads": 4, "num_hidden_layers": 1, "max_position_embeddings": 64}
COMMON = {"data_dir": "data", "batch_size": 8}
WORKERS = {"num_workers": 8, "prefetch_factor": 10, "persistent_workers": True, "vocab_size": 30522}
SECTIONS = yaml.safe_load("""
BertCSVDynamicMaskDataProcessor:
  model: {}
  needed: {max_sequence_length: 32, max_predictions_per_seq: 5, vocab_file: vocab.txt}
  acted_on: {disable_nsp: false, dynamic_mlm_scale: true, mask_whole_word: true, do_lower: true, oov_token: <unk>,
    mask_token: <mask>, exclude_from_masking: [<pad>], masked_lm_prob: 0.2, input_pad_id: 1}
  one_value: {gather_mlm_labels: true, attn_mask_pad_id: 0, segment_pad_id: 0}
  noted: {buckets: [4], document_separator_token: </s>, labels_pad_id: 0, shuffle_buffer: 9, steps: 1,
    num_examples: 5, whole_word_masking: true}
BertCSVDataProcessor:
  model: {}
  needed: {}
  acted_on: {disable_nsp: false, dynamic_mlm_scale: true, max_predictions_per_seq: 9}
  one_value: {}
  noted: {buckets: [4], shuffle_buffer: 9, vocab_file: x, whole_word_masking: true, do_lower: true,
    masked_lm_prob: 0.1, max_position_embeddings: 64}
BertHDF5DataProcessor:
  model: {name: esm2}
  needed: {}
  acted_on: {use_vsl: true, max_predictions_per_seq: 9, max_sequence_length: 32}
  one_value: {sort_files: true, pad_last: false, data_subset: null, mixture: null, num_samples: null}
  noted: {use_worker_cache: true}
DPRHDF5DataProcessor:
  model: {name: dpr}
  needed: {}
  acted_on: {}
  one_value: {}
  noted: {features_list: [x]}
MNLIDataProcessor: &sentences
  model: {name: bert/classifier, num_labels: 3, task_dropout: 0.1}
  needed: {max_sequence_length: 32, vocab_file: vocab.txt}
  acted_on: {is_training: false, do_lower: true, input_pad_id: 1}
  one_value: {attn_mask_pad_id: 0}
  noted: {labels_pad_id: 0}
BertTokenClassifierDataProcessor:
  model: {name: bert/token_classifier, num_classes: 7, encoder_output_dropout_rate: 0.0}
  needed: {max_sequence_length: 32, vocab_file: vocab.txt, label_vocab_file: label2id.json}
  acted_on: {do_lower: true, labels_pad_id: 2, input_pad_id: 1}
  one_value: {attn_mask_pad_id: 0}
  noted: {mask_whole_word: true, shuffle_buffer: 9}
BertSumCSVDataProcessor:
  model: {name: bert/extractive_summarization}
  needed: {max_sequence_length: 32, max_cls_tokens: 5}
  acted_on: {vocab_file: vocab.txt, pad_id: 0, do_lower: true}
  one_value: {}
  noted: {mask_whole_word: true, shuffle_buffer: 9}
SST2DataProcessor: *sentences
""")
"""name -> a model, keys that must be there, keys that are acted on, keys of one value, keys without effect"""
MODELS = {name: {**BERT, **section["model"]} for name, section in SECTIONS.items()}
MODELS["DPRHDF5DataProcessor"] = {"name": "dpr", "encoder": {key: BERT[key] for key in BERT if key != "name"}}


def section(name: str, **keys):
    """Changes of the small file to a model and its data."""
    data = {"data_processor": name, **COMMON, **SECTIONS[name]["needed"], **keys}
    return {"init.model": MODELS[name], TRAIN: data}


@pytest.fixture
def loader(load):
    """Load one dataloader; keys may be added, of the model, too."""

    def call(name: str, model=None, **keys):
        changes = section(name, **keys)
        changes["init.model"] = {**changes["init.model"], **(model or {})}
        return load(changes).dataloaders("train")[0]

    return call


def test_all_processors_of_encoders_are_tried_here():
    of_images = {"MNISTDataProcessor", "CIFAR10Processor", "CIFAR100Processor", "ImageNet1KProcessor"}
    of_decoders = {"GptHDF5MapDataProcessor", "GptHDF5DataProcessor", "DpoHDF5DataProcessor"}
    assert {*SECTIONS} == {*LOADERS} - of_decoders - of_images - {*ENCODER_DECODERS}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_the_keys_of_the_vendor(load, folder, name):
    _, needed, acted_on, one_value, noted = SECTIONS[name].values()
    order = {"shuffle": True, "shuffle_seed": 3, "drop_last": False}
    params = load(section(name, **acted_on, **one_value, **noted, **WORKERS, **order))
    written = {"data_processor": name, "batch_size": 8, **needed, **acted_on, **order}
    paths = {key: str(folder / value) for key, value in written.items() if key.endswith("_file")}
    assert params.dataloaders("train")[0].dump().items() >= {**written, **paths}.items()
    assert {*params.notes} == {f"trainer.{TRAIN}.{key}: accepted, no effect" for key in {**noted, **WORKERS}}


@pytest.mark.parametrize("name", SECTIONS)
def test_what_is_left_out_is_the_vendors(loader, name):
    found = loader(name)
    in_order = ("BertCSVDataProcessor", "BertHDF5DataProcessor", "DPRHDF5DataProcessor")
    assert (found.shuffle, found.drop_last, found.shuffle_seed) == (name not in in_order, True, 1)


def test_what_the_graph_needs_is_there(loader):
    def said(name, model=None, **keys):
        found = loader(name, model, **keys)
        return found.sample_length, found.predictions, found.has_pairs, found.is_packed, found.scales_by_predictions

    dynamic, drawn, hdf5 = list(SECTIONS)[:3]
    assert said(dynamic) == (32, 5, True, False, False)
    assert said(dynamic, {"disable_nsp": True}, dynamic_mlm_scale=True) == (32, 5, False, False, True)
    assert said(drawn) == (None, None, True, False, False)
    assert said(drawn, dynamic_mlm_scale=True, max_predictions_per_seq=7)[1:] == (7, True, False, True)
    assert said(hdf5) == (None, None, False, False, False)
    assert said(hdf5, use_vsl=True, max_sequence_length=16) == (16, None, False, True, False)
    assert said("SST2DataProcessor") == (32, None, False, False, False)
    assert said("BertSumCSVDataProcessor") == (32, 5, False, False, False)


def test_the_form_of_samples_is_known_before_there_are_any(load):
    forms = [declared_form(load(section(name))) for name in SECTIONS]
    assert forms == [
        SampleForm(32, 5),
        SampleForm(64, usual_predictions(64)),
        SampleForm(64, usual_predictions(64)),
        SampleForm(64, contexts=2, context_tokens=64),
        SampleForm(32, has_halves=True),
        SampleForm(32),
        SampleForm(32, 5),
        SampleForm(32),
    ]
    assert declared_form(load(section(next(iter(SECTIONS)), dynamic_mlm_scale=True))).scales_by_predictions
    assert declared_form(load(section("BertHDF5DataProcessor", use_vsl=True))).is_packed


def test_usually_fifteen_of_a_hundred_are_masked():
    assert [usual_predictions(length) for length in (1, 20, 128, 512)] == [1, 3, 20, 77]


@pytest.mark.parametrize(("key", "part"), [({}, "train"), ({"is_training": False}, "val"), ({"split": "val"}, "val")])
def test_the_part_is_that_of_is_training_or_of_the_place(loader, key, part):
    assert loader("SST2DataProcessor", **key).part == part


def test_the_model_says_what_the_data_leaves_out(loader, load, folder):
    for name in ("BertCSVDynamicMaskDataProcessor", "BertCSVDataProcessor"):
        assert not loader(name, {"disable_nsp": True}).has_pairs
        assert loader(name, {"disable_nsp": False}, disable_nsp=False).has_pairs
    assert loader("BertSumCSVDataProcessor", {"vocab_file": "a.txt"}).vocab_file.path == folder / "a.txt"
    both = loader("BertSumCSVDataProcessor", {"vocab_file": "a.txt"}, vocab_file="b.txt")
    assert both.vocab_file.path == folder / "b.txt"
    found = loader("BertTokenClassifierDataProcessor", {"label_vocab_file": "x.json"}, label_vocab_file=None)
    assert found.label_vocab_file.path == folder / "x.json"
    for counts in (True, False):
        found = loader("BertTokenClassifierDataProcessor", {"include_padding_in_loss": counts})
        assert found.include_padding_in_loss is counts


def test_variables_stand_in_paths_of_vocabularies(loader, folder, monkeypatch):
    monkeypatch.setenv("MODELZOO_ROOT", str(folder / "zoo"))
    found = loader("SST2DataProcessor", vocab_file="$MODELZOO_ROOT/vocab/a.txt")
    assert found.vocab_file.path == folder / "zoo/vocab/a.txt"
    monkeypatch.delenv("MODELZOO_ROOT")
    found = loader("SST2DataProcessor", vocab_file="$MODELZOO_ROOT/vocab/a.txt")
    assert found.vocab_file.path == folder / "$MODELZOO_ROOT/vocab/a.txt"


REFUSED = cases("""\
{max_predictions_per_seq: 33} => FILE: @.max_predictions_per_seq must be at most 32, got 33
{max_sequence_length: 65} =>
    FILE: @.max_sequence_length must be at most the max_position_embeddings of the model (64), got 65
{vocab_file: null} => FILE: @.vocab_file is missing
{vocab_file: 5} => FILE: @.vocab_file must be a path, got 5
{gather_mlm_labels: false} => FILE: not supported: @.gather_mlm_labels: false\nhint: supported: true
{exclude_from_masking: "[PAD]"} => FILE: @.exclude_from_masking must be a list, got '[PAD]'
{use_vsl: true} => FILE: @.use_vsl is not a known key
{disable_nsp: true} => FILE: @.disable_nsp must be as in the model (false), got true
""")


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_a_section_that_makes_no_sense_is_an_error(failure, keys, message):
    changes = section("BertCSVDynamicMaskDataProcessor")
    changes[TRAIN] = {**changes[TRAIN], **keys}
    found = re.sub(r"x.yaml:\d+", "FILE", failure(changes))
    assert found == told(message, f"trainer.{TRAIN}")


def test_halves_of_mnli_can_be_waited_for(load, failure):
    stop = [{"EarlyStopping": {"monitor": "eval/accuracy_matched", "patience": 1}}]
    changes = section("MNLIDataProcessor")
    changes |= {"fit.val_dataloader": changes[TRAIN], "init.loop.eval_frequency": 2, "init.callbacks": stop}
    assert load(changes).early_stopping.mode == "max"
    changes[TRAIN] = {**changes[TRAIN], "data_processor": "SST2DataProcessor"}
    assert "hint: they are eval/loss, eval/accuracy" in failure(changes)
    assert not declared_form(load({**changes, "init.callbacks": []})).has_halves


POSITIONS = [{"position_embedding_type": "fixed"}, {"mask_padding_in_positional_embed": True}]


@pytest.mark.parametrize("model", POSITIONS, ids=["position_embedding_type: fixed", "mask_padding_in_positional_embed"])
def test_packed_texts_are_for_encoders_whose_positions_can_begin_anew(loader, failure, model, request):
    assert loader("BertHDF5DataProcessor", {"position_embedding_type": "learned"}, use_vsl=True).is_packed
    changes = section("BertHDF5DataProcessor", use_vsl=True)
    changes["init.model"] = {**changes["init.model"], **model}
    what = request.node.callspec.id
    message = f"must be false with {what}: positions begin anew with each text, got true"
    assert failure(changes).partition(": ")[2] == f"trainer.{TRAIN}.use_vsl {message}"


def test_what_the_hdf5_reader_of_the_vendor_can_beyond_this_is_refused(failure):
    for key, value in {"data_subset": "0.0-0.5", "mixture": [{}], "num_samples": 5, "pad_last": True}.items():
        found = failure(section("BertHDF5DataProcessor", **{key: value}))
        assert f"not supported: trainer.{TRAIN}.{key}" in found
