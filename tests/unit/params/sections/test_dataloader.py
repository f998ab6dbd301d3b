"""The dataloader sections."""

import re

import pytest

from cstool.params import data_set_names, load_params
from tests.unit.params.conftest import cases, told

TRAIN = "fit.train_dataloader"


def test_a_dataloader_has_defaults(load, folder):
    assert load({}).dataloaders("train")[0].dump() == {
        "data_processor": "GptHDF5MapDataProcessor",
        "data_dir": [str(folder / "data/train")],
        "batch_size": 8,
        "shuffle": False,
        "shuffle_seed": 1,
        "drop_last": True,
        "split": "train",
        "use_vsl": False,
    }


def test_a_list_of_folders_is_kept_in_order(load, folder):
    assert load({f"{TRAIN}.data_dir": ["b", "a"]}).dataloaders("train")[0].data_dir == (folder / "b", folder / "a")


def test_all_places_where_a_folder_was_looked_for_can_be_shown(load, folder, monkeypatch):
    load({})
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    dataloader = load_params(folder / "x.yaml").dataloaders("train")[0]
    assert dataloader.tried == f"{folder}/data/train, {folder}/work/data/train"


def test_the_seed_of_the_shuffle_is_that_of_the_run_unless_given(load):
    assert load({"init.seed": 7}).dataloaders("train")[0].shuffle_seed == 7


def test_the_seed_of_the_shuffle_can_be_given(load):
    assert load({"init.seed": 7, f"{TRAIN}.shuffle_seed": 0}).dataloaders("train")[0].shuffle_seed == 0


def test_drop_last_batch_is_another_name_of_drop_last(load):
    assert load({f"{TRAIN}.drop_last_batch": False}).dataloaders("train")[0].drop_last is False


def test_held_out_data_is_the_split_val_unless_said_otherwise(load):
    val = {"data_processor": "MNISTDataProcessor", "data_dir": "mnist", "batch_size": 1}
    assert load({"fit.val_dataloader": val}).dataloaders("val")[0].split == "val"


def test_keys_about_worker_processes_are_noted(load):
    keys = {"num_workers": 8, "prefetch_factor": 10, "persistent_workers": True, "to_float16": True}
    assert load({f"{TRAIN}.{key}": value for key, value in keys.items()}).notes == tuple(
        f"trainer.fit.train_dataloader.{key}: accepted, no effect" for key in keys
    )


T = f"trainer.{TRAIN}"


REFUSED = cases("""\
batch_size: 0 => 16: @.batch_size must be at least 1, got 0
batch_size: null => 16: @.batch_size is missing
data_dir: [] => 15: @.data_dir must hold at least 1, got []
data_dir: 5 => 15: @.data_dir must be a folder or a list of folders, got 5
data_dir: [a, ''] => 15: @.data_dir must be a folder or a list of folders, got ['a', '']
data_processor: GptHDF5MapDataProcesor =>
    14: @.data_processor must be one of GptHDF5MapDataProcessor, GptHDF5DataProcessor, MNISTDataProcessor,
        BertCSVDynamicMaskDataProcessor, BertCSVDataProcessor, BertHDF5DataProcessor, MNLIDataProcessor,
        SST2DataProcessor, BertTokenClassifierDataProcessor, BertSumCSVDataProcessor, DPRHDF5DataProcessor,
        T5DynamicDataProcessor, TransformerDynamicDataProcessor, T5HDF5DataProcessor, ImageNet1KProcessor,
        CIFAR10Processor, CIFAR100Processor, DpoHDF5DataProcessor, got 'GptHDF5MapDataProcesor'
    hint: did you mean GptHDF5MapDataProcessor?
data_processor: 5 =>
    14: @.data_processor must be GptHDF5MapDataProcessor or GptHDF5DataProcessor, got 5
split: test => 17: @.split must be train or val, got 'test'
max_sequence_length: 0 => 17: @.max_sequence_length must be at least 1, got 0
shuffle_seed: -1 => 17: @.shuffle_seed must be at least 0, got -1
batchsize: 3 => 17: @.batchsize is not a known key\nhint: did you mean batch_size?
num_samples: 5 => 17: not supported: @.num_samples: 5\nhint: leave it out
sort_files: false => 17: not supported: @.sort_files: false\nhint: supported: true
data_transforms: 5 => 17: @.data_transforms must be a list, got 5
use_vsl: 5 => 17: @.use_vsl must be true or false, got 5
""")


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_a_dataloader_that_makes_no_sense_is_an_error(failure, keys, message):
    assert failure({f"{TRAIN}.{key}": value for key, value in keys.items()}) == told(message, T)


VAL = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "val", "batch_size": 4}


@pytest.mark.parametrize(
    ("key", "purpose", "place"),
    [
        ("fit.val_dataloader", "val", "trainer.fit.val_dataloader"),
        ("fit.val_dataloader", "eval", "trainer.fit.val_dataloader"),
        ("fit.val_dataloader", "eval_all", "trainer.fit.val_dataloader"),
        ("validate.val_dataloader", "eval", "trainer.validate.val_dataloader"),
        ("validate_all.val_dataloaders", "eval_all", "trainer.validate_all.val_dataloaders"),
    ],
)
def test_every_one_of_several_dataloaders_counts(load, folder, key, purpose, place):
    params = load({key: [VAL, {**VAL, "data_dir": "test"}]})
    loaders = params.dataloaders(purpose)
    assert [loader.data_dir for loader in loaders] == [(folder / "val",), (folder / "test",)]
    assert [params.place_of(loaders, index) for index in (0, 1)] == [f"x.yaml: {place}.0", f"x.yaml: {place}.1"]
    assert params.notes == ()


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["wiki/val"], ["val"]),
        (["wiki", "books"], ["wiki", "books"]),
        (["wiki/val", "books/val"], ["wiki_val", "books_val"]),
        (["wiki/val", "books/val", "code"], ["wiki_val", "books_val", "code"]),
        (["a/x/val", "b/x/val", "b/y/val"], ["a_x_val", "b_x_val", "y_val"]),
        (["val", "val", "val"], ["val", "val_2", "val_3"]),
        (["val", "val", "val_2"], ["val", "val_2", "val_2_2"]),
        (["my data (2024)", "é-1.5"], ["my_data__2024_", "é-1.5"]),
    ],
)
def test_data_sets_are_named_by_their_folders(load, folders, names):
    loaders = load({"fit.val_dataloader": [{**VAL, "data_dir": folder} for folder in folders]}).val_dataloaders
    assert data_set_names(loaders) == tuple(names)


def test_every_one_of_several_dataloaders_is_checked(failure):
    assert failure({"fit.val_dataloader": [VAL, {**VAL, "batch_size": 0}]}) == (
        "x.yaml:23: trainer.fit.val_dataloader.1.batch_size must be at least 1, got 0"
    )


def test_an_empty_list_of_dataloaders_is_an_error(failure):
    assert failure({"fit.val_dataloader": []}) == (
        "x.yaml:17: trainer.fit.val_dataloader must hold at least one dataloader, got []"
    )


@pytest.mark.parametrize("size", [256, 257, "any"])
def test_the_vocab_size_is_that_of_the_model_whatever_is_said_here(load, size):
    """As with the vendor, whose data processors leave the key alone."""
    changes = {"init.model.vocab_size": 256, f"{TRAIN}.vocab_size": size}
    assert load(changes).notes == ("trainer.fit.train_dataloader.vocab_size: accepted, no effect",)


def test_sink_tokens_have_defaults(load):
    [sinks] = load({f"{TRAIN}.data_transforms": [{"name": "add_sink_tokens"}]}).dataloaders("train")[0].data_transforms
    assert sinks.dump() == {
        "name": "add_sink_tokens",
        "sink_token_id": 0,
        "num_sink_tokens": 1,
        "sink_token_start_pos": 0,
        "truncate_to_original_length": False,
    }


NO_TRANSFORMS = cases("""\
name: add_memory_tokens => not supported: {}.name: add_memory_tokens\nhint: did you mean add_sink_tokens?
{name: add_sink_tokens, num_sink_tokens: 0} => {}.num_sink_tokens must be at least 1, got 0
{name: add_sink_tokens, sink_token_id: 50257} =>
    {}.sink_token_id must be less than the vocab_size of the model (50257), got 50257
{name: add_sink_tokens, sink_tokens: 1} => {}.sink_tokens is not a known key\nhint: did you mean num_sink_tokens?
5 => {} must be a mapping, got 5
null => {} must be a mapping, got []
""")


@pytest.mark.parametrize(("transform", "message"), NO_TRANSFORMS)
def test_a_data_transform_that_makes_no_sense_is_an_error(failure, transform, message):
    found = failure({f"{TRAIN}.data_transforms": [transform]})
    assert found.split(": ", 1)[1] == message.format(f"{T}.data_transforms.0")


def test_the_model_names_its_only_data_processor(load):
    changes = {"init.model": {"name": "fc_mnist"}, f"{TRAIN}.data_processor": None}
    assert load(changes).dataloaders("train")[0].data_processor == "MNISTDataProcessor"


ENGLISH, SPANISH = {"data_dir": "english", "weight": 0.6}, {"data_dir": ["spanish", "latin"], "weight": 3}


def mixture_of(*parts, **keys):
    """Changes of the small file to data that are a mixture."""
    return {TRAIN: {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 8, "mixture": list(parts), **keys}}


def test_a_mixture_stands_in_the_place_of_folders(load, folder):
    [loader] = load(mixture_of(ENGLISH, SPANISH)).dataloaders("train")
    assert loader.data_dir == (folder / "english", folder / "spanish", folder / "latin")
    assert [(len(part.folders), part.weight) for part in loader.mixture] == [(1, 0.6), (2, 3)]
    dumped = loader.dump()
    assert "data_dir" not in dumped
    again = load(
        mixture_of(**{key: value for key, value in dumped.items() if key != "mixture"})
        | {f"{TRAIN}.mixture": dumped["mixture"]}
    )
    assert again.dataloaders("train")[0].data_dir == loader.data_dir


MIXTURES = [
    ([], "mixture must hold at least one data set, got []"),
    ([{**ENGLISH, "weight": -1}], "mixture.0.weight must be at least 0, got -1"),
    ([ENGLISH, {**SPANISH, "weight": "much"}], "mixture.1.weight must be a number, got 'much'"),
    ([{**ENGLISH, "weight": float("nan")}], "mixture.0.weight must be a finite number, got nan"),
    ([{"data_dir": "x"}], "mixture.0.weight is missing"),
    ([{"weight": 1}], "mixture.0.data_dir is missing"),
    ([{**ENGLISH, "data_dir": []}], "mixture.0.data_dir must hold at least 1, got []"),
    ([{**ENGLISH, "weight": 0}, {**SPANISH, "weight": 0}], "mixture must have a weight above 0, got a list"),
    ([{**ENGLISH, "data_subset": "0.0-0.5"}], "not supported: mixture.0.data_subset: 0.0-0.5\nhint: leave it out"),
    ([{**ENGLISH, "wieght": 2}], "mixture.0.wieght is not a known key\nhint: did you mean weight?"),
]


@pytest.mark.parametrize(("parts", "message"), MIXTURES)
def test_a_mixture_that_makes_no_sense_is_an_error(failure, parts, message):
    found = re.sub(r"x.yaml:\d+: ", "", failure(mixture_of(*parts))).replace(f"{T}.", "")
    assert found == message


def test_a_mixture_stands_alone(failure):
    found = re.sub(r"x.yaml:\d+: ", "", failure(mixture_of(ENGLISH, data_dir="x"))).replace(f"{T}.", "")
    assert found == "mixture cannot stand beside data_dir\nhint: keep one of the two"
    found = re.sub(r"x.yaml:\d+: ", "", failure(mixture_of(ENGLISH, data_processor="MNISTDataProcessor")))
    assert found.replace(f"{T}.", "") == "data_dir is missing\nnot supported: mixture\nhint: leave it out"


def test_packed_texts_are_for_decoders_whose_positions_can_begin_anew(load, failure):
    assert load({f"{TRAIN}.use_vsl": True}).dataloaders("train")[0].is_packed
    sinks = [{"name": "add_sink_tokens"}]
    told_of = {
        "data_transforms cannot stand beside use_vsl, got a list\nhint: keep one of the two": {
            f"{TRAIN}.data_transforms": sinks
        },
        "use_vsl must be false with position_embedding_type: fixed: positions begin anew with each text, got true": {
            "init.model.position_embedding_type": "fixed"
        },
        "use_vsl must be false with attention sinks, chunks or columns: positions begin anew with each text, "
        "got true": {
            "init.model.attention_chunk_size": 4,
            "init.model.apply_attention_pattern": True,
        },
        "not supported: use_vsl: true\nhint: leave it out": {f"{TRAIN}.data_processor": "MNISTDataProcessor"},
    }
    for message, changes in told_of.items():
        found = re.sub(r"x.yaml:\d+: ", "", failure({f"{TRAIN}.use_vsl": True, **changes})).replace(f"{T}.", "")
        assert found == message
