"""The data sets of a run: opened, and held against the model and against each other."""

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from cstool.foundation.errors import DataError
from cstool.model.graphs import GATHERED, TARGETS, SampleForm, build_graph, trained_graph
from cstool.model.ir import Graph
from cstool.model.params import (
    BertClassifierParams,
    BertParams,
    BertSummarizationParams,
    BertTokenClassifierParams,
    DataloaderParams,
    DecoderClassifierParams,
    DecoderParams,
    DpoParams,
    DprParams,
    DrawnMasksParams,
    EncoderDecoderParams,
    Esm2Params,
    FcMnistParams,
    Hdf5MasksParams,
    ImageModelParams,
    ModelParams,
    ParallelDecoderParams,
    Params,
    StockLoaderParams,
    VisionTransformerParams,
    data_set_names,
)
from cstool.model.params.sections.preference import KTO, ORPO
from cstool.model.sparsity import assign_groups
from cstool.training.data import (
    HDF5_TEXT_PROCESSORS,
    MNIST_PROCESSOR,
    ChosenTextsDataset,
    Dataset,
    OneSequenceDataset,
    PatchesDataset,
    PreferenceDataset,
    SinkTokensDataset,
    batches_per_epoch,
    has_images,
    open_loader,
)
from cstool.training.machine.grains import check_grains, check_ranks, check_systems, grain_count

_PROCESSORS: Mapping[type[ModelParams], str] = {
    FcMnistParams: MNIST_PROCESSOR,
    DecoderParams: HDF5_TEXT_PROCESSORS[0],
    ParallelDecoderParams: HDF5_TEXT_PROCESSORS[0],
    DecoderClassifierParams: "SST2DataProcessor",
    BertParams: "BertCSVDynamicMaskDataProcessor",
    EncoderDecoderParams: "T5DynamicDataProcessor",
    Esm2Params: "BertHDF5DataProcessor",
    BertClassifierParams: "SST2DataProcessor",
    BertTokenClassifierParams: "BertTokenClassifierDataProcessor",
    BertSummarizationParams: "BertSumCSVDataProcessor",
    VisionTransformerParams: "ImageNet1KProcessor",
    DpoParams: "DpoHDF5DataProcessor",
    DprParams: "DPRHDF5DataProcessor",
}
"""model params -> the default processor, which delivers the fields of that model"""


@dataclass(frozen=True)
class DataSet:
    """A data set that is open.

    Args:
        name: among the evaluated data sets
        where: file and key of its dataloader
    """

    name: str
    where: str
    loader: DataloaderParams
    samples: Dataset


@dataclass(frozen=True)
class DataSets:
    """All data sets of a run.

    Args:
        train: None for a run that only evaluates
        held_out: the evaluated data sets; none for a run that only trains
        form: of their samples
    """

    train: DataSet | None
    held_out: tuple[DataSet, ...]
    form: SampleForm

    @property
    def all(self) -> tuple[DataSet, ...]:
        """All data sets, the one of training first."""
        return self.held_out if self.train is None else (self.train, *self.held_out)


def check_data(params: Params, mode: str, ranks: int = 1) -> Graph:
    """Check the data of a run, as far as that goes without reading samples, and return the model for it.

    The systems must share its batches evenly, and each rank must have a part of the training batches.

    Raises:
        CstoolError: an error that the user can act on
    """
    with ExitStack() as stack:
        data = open_data_sets(params, mode, stack)
    graph = trained_graph(params, data.form)
    for found in data.all:
        check_systems(params.num_csx, found.loader.batch_size, found.where)
    check_ranks(ranks, params.num_csx)
    if data.train is not None:
        check_grains(ranks, grain_count(graph, data.train.loader.batch_size), data.train.where)
    assign_groups(params.sparsity, graph, params.sparsity_place)
    return graph


def most_ranks(params: Params, mode: str) -> int:
    """The largest number of ranks that each have a system, and a grain of each batch that is trained on.

    Raises:
        CstoolError: an error that the user can act on
    """
    with ExitStack() as stack:
        data = open_data_sets(params, mode, stack)
    if data.train is None:
        return params.num_csx
    graph = trained_graph(params, data.form)
    return min(params.num_csx, grain_count(graph, data.train.loader.batch_size))


def open_data_sets(params: Params, mode: str, stack: ExitStack) -> DataSets:
    """Open the data sets of a mode; the stack closes them.

    Raises:
        ParamsError: the file has none for it
        DataError: one cannot be read, or is not for this model, or they differ in length
    """
    train = None
    if not mode.startswith("eval"):
        [loader] = params.dataloaders("train")
        where = f"{params.path}: trainer.fit.train_dataloader"
        train = DataSet("train", where, loader, open_samples(params, loader, stack))
        count = loader.epoch_samples or train.samples.sample_count
        batches_per_epoch(count, loader.batch_size, loader.drop_last, f"{where}.batch_size")
    held_out: tuple[DataSet, ...] = ()
    if mode != "train":
        loaders = params.dataloaders(mode if train is None else "val")
        held_out = tuple(
            DataSet(name, params.place_of(loaders, index), loader, open_samples(params, loader, stack))
            for index, (name, loader) in enumerate(zip(data_set_names(loaders), loaders, strict=True))
        )
    found = DataSets(train, held_out, SampleForm(None))
    form = _form(params, found.all)
    if train is not None and train.loader.batch_size * (form.contexts or 2) == 1:
        raise DataError(
            f"{train.where}.batch_size: must be at least 2 where a sample has no context but the right one, got 1",
            "a question is told what does not answer it by the contexts of others; alone it learns nothing",
        )
    return replace(found, form=form)


def open_samples(params: Params, loader: DataloaderParams, stack: ExitStack) -> Dataset:
    """Open the data set of a dataloader, with its transforms; the stack closes it."""
    model = params.model
    classes = getattr(model, "num_labels", getattr(model, "num_classes", None))
    dataset = open_loader(loader, vocab_size=getattr(model, "vocab_size", None), classes=classes)
    stack.callback(dataset.close)
    if isinstance(model, VisionTransformerParams) and has_images(dataset):
        by_channel = model.use_conv_patchified_embedding
        return PatchesDataset(dataset, (model.num_channels, *model.image_size), model.patch_size, by_channel)
    if isinstance(model, DpoParams) and model.dpo.loss_type == ORPO and isinstance(dataset, PreferenceDataset):
        return ChosenTextsDataset(dataset)
    # A graph of packed samples reads where each sequence begins, of others, too.
    if _packs(params) and not loader.is_packed and "input_ids" in dataset.fields:
        dataset = OneSequenceDataset(dataset)
    for sinks in loader.data_transforms if isinstance(loader, StockLoaderParams) else ():
        dataset = SinkTokensDataset(
            dataset,
            token=sinks.sink_token_id,
            count=sinks.num_sink_tokens,
            position=sinks.sink_token_start_pos,
            keep_length=sinks.truncate_to_original_length,
        )
    return dataset


def _packs(params: Params) -> bool:
    """Tell whether samples of a data set of a run are several sequences each."""
    train = () if params.train_dataloader is None else (params.train_dataloader,)
    held_out = (*params.val_dataloaders, *params.eval_dataloaders, *params.eval_all_dataloaders)
    return any(loader.is_packed for loader in (*train, *held_out))


def _form(params: Params, data: Sequence[DataSet]) -> SampleForm:
    """The form of the samples of all data sets.

    Raises:
        DataError: a data set is for another kind of model, too long for it, or two differ in length
    """
    model = params.model
    forms = []
    for found in data:
        form = _form_of(found)
        _check_fields(found, model, form)
        forms.append(form)
        if isinstance(model, ImageModelParams):
            continue
        if isinstance(model, EncoderDecoderParams):
            _check_sides(found, form, data[0], forms[0], model)
            continue
        length = max(form.tokens or 1, form.context_tokens or 1)
        if length > model.max_position_embeddings:
            sinks = (each.samples for each in data if isinstance(each.samples, SinkTokensDataset))
            most = model.max_position_embeddings - max((samples.added_tokens for samples in sinks), default=0)
            raise DataError(
                f"{found.where}: the samples must have at most max_position_embeddings "
                f"({model.max_position_embeddings}) tokens, got {length}",
                _shorter(found.loader, form, most),
            )
        if (form.contexts, form.context_tokens) != (forms[0].contexts, forms[0].context_tokens):
            of_first = f"{forms[0].contexts} of {forms[0].context_tokens} tokens"
            got = f"{form.contexts} of {form.context_tokens}"
            raise _unlike(found, data[0], "samples must have contexts", of_first, got)
        if (form.tokens or 1) != forms[0].tokens:
            way_on = f"max_sequence_length: {min(length, forms[0].tokens or 1)} in every dataloader makes them alike"
            raise _unlike(found, data[0], "samples must have as many tokens", forms[0].tokens, length, way_on)
        if form.predictions != forms[0].predictions:
            way_on = "the same max_predictions_per_seq, or max_cls_tokens, in every dataloader"
            rule = "samples must have places for as many labels"
            raise _unlike(found, data[0], rule, forms[0].predictions, form.predictions, way_on)
    return replace(forms[0], has_halves=all(form.has_halves for form in forms))


def _unlike(found: DataSet, first: DataSet, rule: str, of_first: object, got: object, way_on: str = "") -> DataError:
    """The error of a data set that is not like the first one."""
    like = f"as those of {first.where.rpartition(' ')[2]} ({of_first})"
    return DataError(f"{found.where}: the {rule} {like}, got {got}", way_on or None)


def _shorter(loader: DataloaderParams, form: SampleForm, most: int) -> str | None:
    """Advice on a way to samples of at most `most` tokens; None if there is none."""
    if form.contexts:
        return None
    if most <= 0:
        return "the positions must suffice for the sink tokens, too"
    if isinstance(loader, DrawnMasksParams | Hdf5MasksParams):
        return "masks that are drawn are not cut: prepare shorter samples, or give the model more positions"
    return f"max_sequence_length: {most} in the dataloader cuts them"


def _check_sides(
    found: DataSet, form: SampleForm, first: DataSet, form_of_first: SampleForm, model: EncoderDecoderParams
) -> None:
    """Check the lengths of sources and targets against the model, and against the lengths of the first data set.

    Raises:
        DataError: one is too long, or they differ
    """
    lengths = (form.tokens, form.targets), (form_of_first.tokens, form_of_first.targets)
    sides = zip(("src", "tgt"), ("sources", "targets"), *lengths, model.most_tokens, strict=True)
    for side, what, length, of_first, most in sides:
        if most is not None and length is not None and length > most:
            raise DataError(
                f"{found.where}: the {what} must have at most {side}_max_position_embeddings ({most}) tokens, "
                f"got {length}",
                f"{side}_max_sequence_length: {most} in the dataloader cuts them",
            )
        if length != of_first:
            way_on = f"the same {side}_max_sequence_length in every dataloader"
            raise _unlike(found, first, f"{what} must have as many tokens", of_first, length, way_on)


def _form_of(data: DataSet) -> SampleForm:
    """The form of a data set's samples, as its fields say it."""
    fields = data.samples.fields
    if "ctx_input_ids" in fields:
        contexts, length = fields["ctx_input_ids"].shape
        [asked] = fields["questions_input_ids"].shape
        return SampleForm(asked, contexts=contexts, context_tokens=length)
    tokens = fields["input_ids"].shape[0] if "input_ids" in fields else None
    if isinstance(data.samples, PreferenceDataset | ChosenTextsDataset):
        tokens = tokens // 2 if tokens else None
    gathered = next((fields[name] for name in GATHERED if name in fields), None)
    predictions = None if gathered is None else gathered.shape[0]
    targets = fields[TARGETS].shape[0] if TARGETS in fields else None
    scales, has_halves = data.loader.scales_by_predictions, data.loader.has_halves
    return SampleForm(tokens, predictions, scales, "segments" in fields, targets, has_halves=has_halves)


def _check_fields(data: DataSet, model: ModelParams, form: SampleForm) -> None:
    """Check that a data set has the fields that a model reads.

    Raises:
        DataError: it has not, or not as many of something
    """
    least = replace(form, tokens=form.tokens or 1, predictions=form.predictions or 1, targets=form.targets or 1)
    inputs = build_graph(model, least).inputs
    fields = data.samples.fields
    sizes = {tensor.name: math.prod(tensor.shape) for tensor in inputs}
    found = {name: math.prod(field.shape) for name, field in fields.items()}
    if all(found.get(name) == size for name, size in sizes.items()):
        return
    raise DataError(
        f"{data.where}.data_processor must deliver {', '.join(sizes)} for the model {model.name}, got one with "
        f"{', '.join(fields)}",
        f"{_processor_of(model)} does",
    )


def _processor_of(model: ModelParams) -> str:
    is_of_answers = isinstance(model, DpoParams) and model.dpo.loss_type == KTO
    return "KtoHDF5DataProcessor" if is_of_answers else _PROCESSORS[type(model)]
