"""The data set that a dataloader section asks for."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cstool.foundation.errors import DataError
from cstool.model.params import (
    DataloaderParams,
    DigitsParams,
    DprLoaderParams,
    DrawnMasksParams,
    Hdf5MasksParams,
    Hdf5PairsParams,
    LabelledParams,
    MaskedTextParams,
    PhotosParams,
    PreferencesParams,
    SentencesParams,
    StockLoaderParams,
    SummariesParams,
    TextSpansParams,
    TokenClassesParams,
    TranslationsParams,
)
from cstool.model.params.paths import ResolvedPath
from cstool.training.data.cifar import CIFAR10, CIFAR100, open_cifar
from cstool.training.data.dataset import Dataset, ModelSize
from cstool.training.data.drawn_masks import DrawnMasksDataset
from cstool.training.data.hdf5_contexts import Hdf5ContextsDataset
from cstool.training.data.hdf5_masks import Hdf5MasksDataset
from cstool.training.data.hdf5_pairs import Hdf5PairsDataset
from cstool.training.data.image_folder import open_image_folder
from cstool.training.data.image_steps import ImageSteps
from cstool.training.data.masked_text import MaskedTextDataset
from cstool.training.data.mixture import MixtureDataset
from cstool.training.data.mnist import open_mnist
from cstool.training.data.parts import open_dataset
from cstool.training.data.preferences import LabelledDataset, PreferenceDataset
from cstool.training.data.record import read_record
from cstool.training.data.sentences import SentencesDataset
from cstool.training.data.summaries import SummariesDataset
from cstool.training.data.text_spans import TextSpansDataset
from cstool.training.data.token_classes import TokenClassesDataset
from cstool.training.data.translations import TranslationsDataset


def open_loader(loader: DataloaderParams, *, vocab_size: int | None = None, classes: int | None = None) -> Dataset:
    """Open the data set of a dataloader, without its transforms.

    Args:
        loader: checked
        vocab_size: number of tokens of the model; None for no limit
        classes: number of classes of the model; None for a model without classes

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    return _OPENERS[type(loader)](loader, ModelSize(vocab_size, classes))


def _digits(loader: DigitsParams, _model: ModelSize) -> Dataset:
    steps = ImageSteps(loader.transforms, loader.shuffle_seed) if loader.transforms else None
    return open_mnist(loader.data_dir, split=loader.split, tried=loader.tried, steps=steps)


def _photos(loader: PhotosParams, model: ModelSize) -> Dataset:
    steps, split, tried = ImageSteps(loader.steps, loader.shuffle_seed), loader.split, loader.tried
    if loader.data_processor == "ImageNet1KProcessor":
        return open_image_folder(loader.data_dir, steps, split=split, classes=model.classes, tried=tried)
    kind = CIFAR10 if loader.data_processor == "CIFAR10Processor" else CIFAR100
    return open_cifar(kind, loader.data_dir, steps, split=split, classes=model.classes, tried=tried)


def _stock(loader: StockLoaderParams, model: ModelSize) -> Dataset:
    def opened(folders: Sequence[ResolvedPath]) -> Dataset:
        for folder in () if loader.is_packed else folders:
            _refuse_packed(folder.path)
        return open_dataset(
            loader.data_processor,
            [folder.path for folder in folders],
            split=loader.split,
            max_sequence_length=loader.max_sequence_length,
            vocab_size=model.vocab_size,
            tried=", ".join(str(path) for folder in folders for path in folder.tried),
            is_packed=loader.is_packed,
        )

    parts = [part for part in loader.mixture if part.weight > 0]
    if not parts:
        return opened(loader.folders)
    with ExitStack() as stack:
        datasets = []
        for part in parts:
            datasets.append(opened(part.folders))
            stack.callback(datasets[-1].close)
        seed = None if loader.shuffle else loader.shuffle_seed
        mixture = MixtureDataset(datasets, [part.weight for part in parts], seed)
        stack.pop_all()
    return mixture


def _refuse_packed(folder: Path) -> None:
    """Refuse rows of conversations, which would see each other without use_vsl; of other programs no record says so."""
    record = read_record(folder.parent) or {}
    if "forms" in record and folder.name in record["parts"] and record["packing"] != "none":
        raise DataError(
            f"{folder}: rows of several conversations need use_vsl: true in the dataloader, got false",
            "conversations would see each other; `cstool data prepare instruct --packing none` makes rows of one each",
        )


_OPENERS: Mapping[type[DataloaderParams], Callable[[Any, ModelSize], Dataset]] = {
    StockLoaderParams: _stock,
    MaskedTextParams: MaskedTextDataset,
    DrawnMasksParams: DrawnMasksDataset,
    Hdf5MasksParams: Hdf5MasksDataset,
    SentencesParams: SentencesDataset,
    TokenClassesParams: TokenClassesDataset,
    SummariesParams: SummariesDataset,
    DprLoaderParams: Hdf5ContextsDataset,
    TextSpansParams: TextSpansDataset,
    TranslationsParams: TranslationsDataset,
    Hdf5PairsParams: Hdf5PairsDataset,
    PreferencesParams: PreferenceDataset,
    LabelledParams: LabelledDataset,
    DigitsParams: _digits,
    PhotosParams: _photos,
}
