"""The dataloader sections."""

from cstool.model.params import data_set_names, load_params
from tests.unit.model.params.conftest import VAL, each_meaning, each_message, told

TRAIN = "fit.train_dataloader"


@each_meaning("""\
{} => train_dataloader: {data_processor: GptHDF5MapDataProcessor, data_dir: [DIR/data/train], batch_size: 8,
    shuffle: false, shuffle_seed: 1, drop_last: true, split: train, use_vsl: false}
fit.train_dataloader.data_dir: [b, a] => train_dataloader.data_dir: [DIR/b, DIR/a]
init.seed: 7 => train_dataloader.shuffle_seed: 7
{init.seed: 7, fit.train_dataloader.shuffle_seed: 0} => train_dataloader.shuffle_seed: 0
fit.train_dataloader.drop_last_batch: false => train_dataloader.drop_last: false
{fit.train_dataloader.num_workers: 8, fit.train_dataloader.prefetch_factor: 10,
    fit.train_dataloader.persistent_workers: true, fit.train_dataloader.to_float16: true} =>
    no_effect: [fit.train_dataloader.num_workers, fit.train_dataloader.prefetch_factor,
        fit.train_dataloader.persistent_workers, fit.train_dataloader.to_float16]
{init.model.vocab_size: 256, fit.train_dataloader.vocab_size: 257} => no_effect: [fit.train_dataloader.vocab_size]
{init.model.vocab_size: 256, fit.train_dataloader.vocab_size: any} => no_effect: [fit.train_dataloader.vocab_size]
fit.train_dataloader.data_transforms: [{name: add_sink_tokens}] =>
    train_dataloader.data_transforms: [{name: add_sink_tokens, sink_token_id: 0, num_sink_tokens: 1,
        sink_token_start_pos: 0, truncate_to_original_length: false}]
{init.model: {name: fc_mnist}, fit.train_dataloader.data_processor: null} =>
    train_dataloader.data_processor: MNISTDataProcessor
fit.train_dataloader.use_vsl: true => train_dataloader.is_packed: true
fit.train_dataloader.num_samples: 5 => train_dataloader.epoch_samples: 5
{} => train_dataloader.epoch_samples: null
""")
def test_a_dataloader_has_defaults_and_what_it_is_told(means, written, expected):
    means(written, expected)


def test_all_places_where_a_folder_was_looked_for_can_be_shown(load, folder, monkeypatch):
    load({})
    (folder / "work").mkdir()
    monkeypatch.chdir(folder / "work")
    dataloader = load_params(folder / "x.yaml").dataloaders("train")[0]
    assert dataloader.tried == f"{folder}/data/train, {folder}/work/data/train"


def test_held_out_data_is_the_split_val_unless_said_otherwise(load):
    val = {"data_processor": "MNISTDataProcessor", "data_dir": "mnist", "batch_size": 1}
    assert load({"fit.val_dataloader": val}).dataloaders("val")[0].split == "val"


T = f"trainer.{TRAIN}"


@each_message("""\
batch_size: null => 16: @.batch_size is missing
data_dir: [] => 15: @.data_dir must hold at least 1, got []
data_dir: [a, ''] => 15: @.data_dir must be a folder or a list of folders, got ['a', '']
data_processor: GptHDF5MapDataProcesor =>
    14: @.data_processor must be one of GptHDF5MapDataProcessor, GptHDF5DataProcessor, MNISTDataProcessor,
        BertCSVDynamicMaskDataProcessor, BertCSVDataProcessor, BertHDF5DataProcessor, MNLIDataProcessor,
        SST2DataProcessor, BertTokenClassifierDataProcessor, BertSumCSVDataProcessor, DPRHDF5DataProcessor,
        T5DynamicDataProcessor, TransformerDynamicDataProcessor, T5HDF5DataProcessor, ImageNet1KProcessor,
        CIFAR10Processor, CIFAR100Processor, DpoHDF5DataProcessor, KtoHDF5DataProcessor, got 'GptHDF5MapDataProcesor'
    hint: did you mean GptHDF5MapDataProcessor?
data_processor: 5 =>
    14: @.data_processor must be GptHDF5MapDataProcessor or GptHDF5DataProcessor, got 5
split: test => 17: @.split must be train or val, got 'test'
sort_files: false => 17: not supported: @.sort_files: false\nhint: supported: true
data_transforms: 5 => 17: @.data_transforms must be a list, got 5
""")
def test_a_dataloader_that_makes_no_sense_is_an_error(failure, written, message):
    assert failure({f"{TRAIN}.{key}": value for key, value in written.items()}) == told(message, T)


@each_meaning("""\
fit.val_dataloader: val => fit.val_dataloader
fit.val_dataloader: eval => fit.val_dataloader
fit.val_dataloader: eval_all => fit.val_dataloader
validate.val_dataloader: eval => validate.val_dataloader
validate_all.val_dataloaders: eval_all => validate_all.val_dataloaders
""")
def test_every_one_of_several_dataloaders_counts(load, folder, written, expected):
    [(key, purpose)] = written.items()
    params = load({key: [VAL, {**VAL, "data_dir": "test"}]})
    loaders = params.dataloaders(purpose)
    assert [loader.data_dir for loader in loaders] == [(folder / "data/val",), (folder / "test",)]
    assert [params.place_of(loaders, index) for index in (0, 1)] == [f"x.yaml: trainer.{expected}.{n}" for n in (0, 1)]
    assert params.notes == ()


@each_meaning("""\
[wiki/val] => [val]
[wiki, books] => [wiki, books]
[wiki/val, books/val] => [wiki_val, books_val]
[wiki/val, books/val, code] => [wiki_val, books_val, code]
[a/x/val, b/x/val, b/y/val] => [a_x_val, b_x_val, y_val]
[val, val, val] => [val, val_2, val_3]
[val, val, val_2] => [val, val_2, val_2_2]
[my data (2024), é-1.5] => [my_data__2024_, é-1.5]
""")
def test_data_sets_are_named_by_their_folders(load, written, expected):
    loaders = load({"fit.val_dataloader": [{**VAL, "data_dir": folder} for folder in written]}).val_dataloaders
    assert data_set_names(loaders) == tuple(expected)


def test_every_one_of_several_dataloaders_is_checked_and_there_must_be_one(failure):
    empty = "x.yaml:17: trainer.fit.val_dataloader must hold at least one dataloader, got []"
    assert failure({"fit.val_dataloader": []}) == empty
    assert failure({"fit.val_dataloader": [VAL, {**VAL, "batch_size": 0}]}) == (
        "x.yaml:23: trainer.fit.val_dataloader.1.batch_size must be at least 1, got 0"
    )


@each_message("""\
name: add_memory_tokens => not supported: @.name: add_memory_tokens\nhint: did you mean add_sink_tokens?
{name: add_sink_tokens, sink_token_id: 50257} =>
    @.sink_token_id must be less than the vocab_size of the model (50257), got 50257
5 => @ must be a mapping, got 5
null => @ must be a mapping, got []
""")
def test_a_data_transform_that_makes_no_sense_is_an_error(fault, written, message):
    assert fault({f"{TRAIN}.data_transforms": [written]}) == told(message, f"{T}.data_transforms.0")


ENGLISH, SPANISH = {"data_dir": "english", "weight": 0.6}, {"data_dir": ["spanish", "latin"], "weight": 3}


def test_a_mixture_stands_in_the_place_of_folders(load, folder):
    data = {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 8, "mixture": [ENGLISH, SPANISH]}
    [loader] = load({TRAIN: data}).dataloaders("train")
    assert loader.data_dir == (folder / "english", folder / "spanish", folder / "latin")
    assert [(len(part.folders), part.weight) for part in loader.mixture] == [(1, 0.6), (2, 3)]
    dumped = loader.dump()
    assert "data_dir" not in dumped
    assert load({TRAIN: dumped}).dataloaders("train")[0].data_dir == loader.data_dir


@each_message("""\
mixture: [] => mixture must hold at least one data set, got []
mixture: [{data_dir: x, weight: 1}, {data_dir: y, weight: much}] => mixture.1.weight must be a number, got 'much'
mixture: [{data_dir: x, weight: .nan}] => mixture.0.weight must be a finite number, got nan
mixture: [{data_dir: x}] => mixture.0.weight is missing
mixture: [{data_dir: [], weight: 1}] => mixture.0.data_dir must hold at least 1, got []
mixture: [{data_dir: x, weight: 0}, {data_dir: y, weight: 0}] => mixture must have a weight above 0, got a list
mixture: [{data_dir: x, weight: 1, data_subset: 0.0-0.5}] => not supported: mixture.0.data_subset: 0.0-0.5
    hint: leave it out
{mixture: [{data_dir: x, weight: 1}], data_dir: x} => mixture cannot stand beside data_dir\nhint: keep one of the two
{mixture: [{data_dir: x, weight: 1}], data_processor: MNISTDataProcessor} => data_dir is missing
    not supported: mixture\nhint: leave it out
""")
def test_a_mixture_that_makes_no_sense_or_stands_beside_others_is_an_error(fault, written, message):
    changes = {TRAIN: {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 8, **written}}
    assert fault(changes).replace(f"{T}.", "") == message


@each_message("""\
fit.train_dataloader.data_transforms: [{name: add_sink_tokens}] =>
    data_transforms cannot stand beside use_vsl, got a list\nhint: keep one of the two
init.model.position_embedding_type: fixed =>
    use_vsl must be false with position_embedding_type: fixed: positions begin anew with each text, got true
{init.model.attention_chunk_size: 4, init.model.apply_attention_pattern: true} =>
    use_vsl must be false with attention sinks, chunks or columns: positions begin anew with each text, got true
fit.train_dataloader.data_processor: MNISTDataProcessor => not supported: use_vsl: true\nhint: leave it out
""")
def test_packed_texts_are_for_decoders_whose_positions_can_begin_anew(fault, written, message):
    assert fault({f"{TRAIN}.use_vsl": True, **written}).replace(f"{T}.", "") == message
