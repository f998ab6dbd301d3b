"""The data set that a dataloader section asks for."""

from collections.abc import Sequence
from contextlib import ExitStack

from cstool.model.params import (
    DataloaderParams,
    DigitsParams,
    DprLoaderParams,
    DrawnMasksParams,
    Hdf5MasksParams,
    Hdf5PairsParams,
    MaskedTextParams,
    PhotosParams,
    PreferencesParams,
    SentencesParams,
    StockLoaderParams,
    SummariesParams,
    TextSpansParams,
    TokenClassesParams,
    TokenLinesParams,
    TranslationsParams,
)
from cstool.model.params.paths import ResolvedPath
from cstool.training.data.cifar import CIFAR10, CIFAR100, open_cifar
from cstool.training.data.dataset import Dataset
from cstool.training.data.drawn_masks import open_drawn_masks
from cstool.training.data.hdf5_contexts import open_hdf5_contexts
from cstool.training.data.hdf5_masks import open_hdf5_masks
from cstool.training.data.hdf5_pairs import open_hdf5_pairs
from cstool.training.data.image_folder import open_image_folder
from cstool.training.data.image_steps import ImageSteps
from cstool.training.data.masked_text import MaskedTextRequest, open_masked_text
from cstool.training.data.mixture import MixtureDataset
from cstool.training.data.mnist import open_mnist
from cstool.training.data.parts import open_dataset
from cstool.training.data.preferences import open_preferences
from cstool.training.data.sentences import MNLI, SST2, open_sentences
from cstool.training.data.sequence_pairs import PairRequest
from cstool.training.data.summaries import open_summaries
from cstool.training.data.text_spans import open_text_spans
from cstool.training.data.token_classes import open_token_classes
from cstool.training.data.translations import open_translations


def open_loader(loader: DataloaderParams, *, vocab_size: int | None = None, classes: int | None = None) -> Dataset:
    """Open the data set of a dataloader, without its transforms.

    Args:
        loader: checked
        vocab_size: number of tokens of the model; None for no limit
        classes: number of classes of the model; None for a model without classes

    Raises:
        DataError: files are missing, damaged or do not fit.
    """
    folders, tried = loader.data_dir, loader.tried
    match loader:
        case MaskedTextParams():
            request = MaskedTextRequest(
                sequence_length=loader.max_sequence_length,
                predictions=loader.max_predictions_per_seq,
                has_pairs=loader.has_pairs,
                probability=loader.masked_lm_prob,
                whole_words=loader.mask_whole_word,
                mask=loader.mask_token,
                unknown=loader.oov_token,
                excluded=loader.exclude_from_masking,
                padding=loader.input_pad_id,
                seed=loader.shuffle_seed,
            )
            return open_masked_text(
                folders,
                request,
                loader.vocab_file.path,
                do_lower=loader.do_lower,
                vocab_size=vocab_size,
                tried=tried,
            )
        case DrawnMasksParams():
            return open_drawn_masks(
                folders,
                has_pairs=loader.has_pairs,
                max_sequence_length=loader.max_sequence_length,
                predictions=loader.predictions,
                vocab_size=vocab_size,
                tried=tried,
            )
        case Hdf5MasksParams():
            return open_hdf5_masks(
                folders,
                is_packed=loader.is_packed,
                max_sequence_length=loader.max_sequence_length,
                predictions=loader.predictions,
                vocab_size=vocab_size,
                tried=tried,
            )
        case SentencesParams():
            return open_sentences(
                folders,
                MNLI if loader.data_processor == "MNLIDataProcessor" else SST2,
                loader.vocab_file.path,
                split=loader.part,
                max_sequence_length=loader.max_sequence_length,
                do_lower=loader.do_lower,
                padding=loader.input_pad_id,
                classes=classes,
                vocab_size=vocab_size,
                tried=tried,
            )
        case TokenClassesParams():
            return open_token_classes(
                folders,
                loader.vocab_file.path,
                loader.label_vocab_file.path,
                max_sequence_length=loader.max_sequence_length,
                do_lower=loader.do_lower,
                padding=loader.input_pad_id,
                label_padding=loader.labels_pad_id,
                counts_padding=loader.include_padding_in_loss,
                classes=classes,
                vocab_size=vocab_size,
                tried=tried,
            )
        case DprLoaderParams():
            return open_hdf5_contexts(folders, vocab_size=vocab_size, tried=tried)
        case SummariesParams():
            return open_summaries(
                folders,
                max_sequence_length=loader.max_sequence_length,
                sentences=loader.max_cls_tokens,
                vocabulary=None if loader.vocab_file is None else loader.vocab_file.path,
                do_lower=loader.do_lower,
                padding=loader.pad_id,
                vocab_size=vocab_size,
                tried=tried,
            )
        case TextSpansParams():
            return open_text_spans(
                folders,
                _pair_request(loader),
                loader.src_vocab_file.path,
                sentinels=loader.extra_ids,
                documents=loader.documents,
                seed=loader.shuffle_seed,
                vocab_size=vocab_size,
                tried=tried,
            )
        case TranslationsParams():
            return open_translations(
                folders, _pair_request(loader), loader.src_vocab_file.path, vocab_size=vocab_size, tried=tried
            )
        case Hdf5PairsParams():
            return open_hdf5_pairs(folders, features=loader.features_list, vocab_size=vocab_size, tried=tried)
        case DigitsParams():
            steps = ImageSteps(loader.transforms, loader.shuffle_seed) if loader.transforms else None
            return open_mnist(folders, split=loader.split, tried=tried, steps=steps)
        case PhotosParams():
            steps = ImageSteps(loader.steps, loader.shuffle_seed)
            if loader.data_processor == "ImageNet1KProcessor":
                return open_image_folder(folders, steps, split=loader.split, classes=classes, tried=tried)
            kind = CIFAR10 if loader.data_processor == "CIFAR10Processor" else CIFAR100
            return open_cifar(kind, folders, steps, split=loader.split, classes=classes, tried=tried)
        case PreferencesParams():
            return open_preferences(
                folders, max_sequence_length=loader.max_sequence_length, vocab_size=vocab_size, tried=tried
            )
    assert isinstance(loader, StockLoaderParams)
    parts = [part for part in loader.mixture if part.weight > 0]
    if not parts:
        return _open_stock(loader, loader.folders, vocab_size)
    with ExitStack() as opened:
        datasets = []
        for part in parts:
            datasets.append(_open_stock(loader, part.folders, vocab_size))
            opened.callback(datasets[-1].close)
        seed = None if loader.shuffle else loader.shuffle_seed
        mixture = MixtureDataset(datasets, [part.weight for part in parts], seed)
        opened.pop_all()
    return mixture


def _open_stock(loader: StockLoaderParams, folders: Sequence[ResolvedPath], vocab_size: int | None) -> Dataset:
    return open_dataset(
        loader.data_processor,
        [folder.path for folder in folders],
        split=loader.split,
        max_sequence_length=loader.max_sequence_length,
        vocab_size=vocab_size,
        tried=", ".join(str(path) for folder in folders for path in folder.tried),
        is_packed=loader.is_packed,
    )


def _pair_request(loader: TokenLinesParams) -> PairRequest:
    return PairRequest(
        loader.src_max_sequence_length,
        loader.tgt_max_sequence_length,
        do_lower=loader.do_lower,
        unknown=loader.oov_token,
        begin=loader.sos_token,
        end=loader.eos_token,
        padding=loader.pad_token,
        input_padding=loader.input_pad_id,
        label_padding=loader.labels_pad_id,
    )
