"""The dataloader sections of encoders and encoder-decoders."""

import pytest
import yaml

from cstool.model.graphs import SampleForm, declared_form
from cstool.model.params.sections.encoder_loaders import usual_predictions
from cstool.model.params.sections.loaders import LOADERS
from tests.unit.model.params.conftest import each_message, told

TRAIN = "fit.train_dataloader"
BERT = {"name": "bert", "hidden_size": 64, "num_heads": 4, "num_hidden_layers": 1, "max_position_embeddings": 64}
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
  acted_on: {disable_nsp: false, dynamic_mlm_scale: true, max_predictions_per_seq: 9}
  noted: {buckets: [4], shuffle_buffer: 9, vocab_file: x, whole_word_masking: true, do_lower: true,
    masked_lm_prob: 0.1, max_position_embeddings: 64}
BertHDF5DataProcessor:
  model: {name: esm2}
  acted_on: {use_vsl: true, max_predictions_per_seq: 9, max_sequence_length: 32}
  one_value: {sort_files: true, pad_last: false, data_subset: null, mixture: null, num_samples: null}
  noted: {use_worker_cache: true}
DPRHDF5DataProcessor:
  model: {name: dpr}
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
  noted: {mask_whole_word: true, shuffle_buffer: 9}
SST2DataProcessor: *sentences
T5DynamicDataProcessor:
  needed: &lines {src_data_dir: data, src_vocab_file: vocab.txt, src_max_sequence_length: 512,
    tgt_max_sequence_length: 114}
  acted_on: {do_lower: true, oov_token: '[UNK]', sos_token: <pad>, eos_token: '[SEP]', pad_token: '[PAD]',
    input_pad_id: 1, labels_pad_id: 2, dynamic_loss_weight: true, extra_ids: 100, pack_sequences: true,
    num_documents_to_concatenate: 64}
  noted: &files {buckets: [64], shuffle_buffer: 16384, tgt_vocab_file: x, tgt_data_dir: x}
TransformerDynamicDataProcessor:
  needed: *lines
  acted_on: {do_lower: true, oov_token: '[UNK]', sos_token: <pad>, eos_token: '[SEP]', pad_token: '[PAD]',
    input_pad_id: 1, labels_pad_id: 2, dynamic_loss_weight: true}
  one_value: {extra_ids: 0, pack_sequences: false}
  noted: {<<: *files, num_documents_to_concatenate: 64}
T5HDF5DataProcessor:
  acted_on: {features_list: [input_ids, labels]}
  one_value: {use_vsl: false}
  noted: {shuffle_buffer: 9}
""")
"""name -> a model of encoders; keys that must be there, that are acted on, of one value, without effect"""
OF_PAIRS = [name for name, section in SECTIONS.items() if "model" not in section]
MODELS = {name: {**BERT, **section["model"]} for name, section in SECTIONS.items() if "model" in section}
MODELS["DPRHDF5DataProcessor"] = {"name": "dpr", "encoder": {key: BERT[key] for key in BERT if key != "name"}}
IN_ORDER = {"BertCSVDataProcessor", "BertHDF5DataProcessor", "DPRHDF5DataProcessor", "T5HDF5DataProcessor"}
"""those that do not shuffle unless told to"""


def section(name: str, **keys):
    """Changes of the small file to a model and its data."""
    needed = SECTIONS[name].get("needed", {})
    data = {"data_processor": name, "batch_size": 8, **({} if "src_data_dir" in needed else {"data_dir": "data"})}
    model = {"init.model": MODELS[name]} if name in MODELS else {}
    return {**model, TRAIN: {**data, **needed, **keys}}


@pytest.fixture
def loader(load):
    """Load one dataloader; keys may be added, of the model, too."""

    def call(name: str, model=None, **keys):
        changes = section(name, **keys)
        if model:
            changes["init.model"] = {**changes["init.model"], **model}
        return load(changes).dataloaders("train")[0]

    return call


def test_all_processors_of_encoders_and_encoder_decoders_are_tried_here():
    of_images = {"MNISTDataProcessor", "CIFAR10Processor", "CIFAR100Processor", "ImageNet1KProcessor"}
    of_decoders = {"GptHDF5MapDataProcessor", "GptHDF5DataProcessor", "DpoHDF5DataProcessor", "KtoHDF5DataProcessor"}
    assert {*SECTIONS} == {*LOADERS} - of_decoders - of_images


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_has_the_keys_and_the_defaults_of_the_vendor(load, loader, folder, name):
    needed, acted_on, one_value, noted = (
        SECTIONS[name].get(kind, {}) for kind in ("needed", "acted_on", "one_value", "noted")
    )
    plain = loader(name)
    assert (plain.shuffle, plain.drop_last, plain.shuffle_seed) == (name not in IN_ORDER, True, 1)
    order = {"shuffle": name in IN_ORDER, "shuffle_seed": 3, "drop_last": False}
    params = load(section(name, **acted_on, **one_value, **noted, **WORKERS, **order))
    written = {"data_processor": name, "batch_size": 8, **needed, **acted_on, **order}
    paths = {key: str(folder / value) for key, value in written.items() if key.endswith("_file")}
    lists = {key: [str(folder / value)] for key, value in written.items() if key.endswith("_dir")}
    assert params.dataloaders("train")[0].dump().items() >= {**written, **paths, **lists}.items()
    assert {*params.notes} == {f"trainer.{TRAIN}.{key}: accepted, no effect" for key in {**noted, **WORKERS}}


def test_what_is_left_out_of_pairs_is_the_vendors(loader):
    spans = loader("T5DynamicDataProcessor")
    assert (spans.extra_ids, spans.documents) == (0, 1)
    assert (spans.oov_token, spans.sos_token, spans.eos_token, spans.pad_token) == ("<unk>", "<s>", "</s>", "<pad>")
    assert loader("T5DynamicDataProcessor", pack_sequences=True).documents == 128


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
    found = [*map(loader, OF_PAIRS), loader("TransformerDynamicDataProcessor", dynamic_loss_weight=True)]
    pairs = [(each.sample_length, each.target_length, each.scales_by_predictions) for each in found]
    assert pairs == [(512, 114, False), (512, 114, False), (None, None, False), (512, 114, True)]


def test_the_form_of_samples_is_known_before_there_are_any(load):
    forms = [declared_form(load(section(name))) for name in MODELS]
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


@each_message("""\
BertCSVDynamicMaskDataProcessor: {max_predictions_per_seq: 33} => @.max_predictions_per_seq must be at most 32, got 33
BertCSVDynamicMaskDataProcessor: {max_sequence_length: 65} =>
    @.max_sequence_length must be at most the max_position_embeddings of the model (64), got 65
BertCSVDynamicMaskDataProcessor: {vocab_file: null} => @.vocab_file is missing
BertCSVDynamicMaskDataProcessor: {vocab_file: 5} => @.vocab_file must be a path, got 5
BertCSVDynamicMaskDataProcessor: {gather_mlm_labels: false} => not supported: @.gather_mlm_labels: false
    hint: supported: true
BertCSVDynamicMaskDataProcessor: {exclude_from_masking: "[PAD]"} => @.exclude_from_masking must be a list, got '[PAD]'
BertCSVDynamicMaskDataProcessor: {use_vsl: true} => @.use_vsl is not a known key
BertCSVDynamicMaskDataProcessor: {disable_nsp: true} => @.disable_nsp must be as in the model (false), got true
BertHDF5DataProcessor: {data_subset: 0.0-0.5} => not supported: @.data_subset: 0.0-0.5\nhint: leave it out
BertHDF5DataProcessor: {mixture: [{}]} => not supported: @.mixture\nhint: leave it out
BertHDF5DataProcessor: {num_samples: 5} => not supported: @.num_samples: 5\nhint: leave it out
BertHDF5DataProcessor: {pad_last: true} => not supported: @.pad_last: true\nhint: leave it out
T5DynamicDataProcessor: {tgt_max_sequence_length: null} => @.tgt_max_sequence_length is missing
T5DynamicDataProcessor: {src_vocab_file: null} => @.src_vocab_file is missing
T5DynamicDataProcessor: {src_data_dir: [a, 5]} => @.src_data_dir must be a folder or a list of folders, got ['a', 5]
T5DynamicDataProcessor: {input_pad_id: "<pad>"} => @.input_pad_id must be a whole number, got '<pad>'
T5DynamicDataProcessor: {src_max_sequence_lenght: 5} => @.src_max_sequence_lenght is not a known key
    hint: did you mean src_max_sequence_length?
TransformerDynamicDataProcessor: {extra_ids: 5} => not supported: @.extra_ids: 5\nhint: supported: 0
TransformerDynamicDataProcessor: {pack_sequences: true} => not supported: @.pack_sequences: true\nhint: leave it out
T5HDF5DataProcessor: {use_vsl: true} => not supported: @.use_vsl: true\nhint: leave it out
""")
def test_a_section_that_makes_no_sense_is_an_error(fault, written, message):
    [(name, keys)] = written.items()
    assert fault(section(name, **keys)) == told(message, f"trainer.{TRAIN}")


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
def test_packed_texts_are_for_encoders_whose_positions_can_begin_anew(loader, fault, model, request):
    assert loader("BertHDF5DataProcessor", {"position_embedding_type": "learned"}, use_vsl=True).is_packed
    changes = section("BertHDF5DataProcessor", use_vsl=True)
    changes["init.model"] = {**changes["init.model"], **model}
    what = request.node.callspec.id
    message = f"must be false with {what}: positions begin anew with each text, got true"
    assert fault(changes) == f"trainer.{TRAIN}.use_vsl {message}"
