"""All sections about data, by the vendor's names of data processors."""

from typing import get_args

from cstool.model.params.sections.dataloader import (
    DataloaderParams,
    LabelledParams,
    PreferencesParams,
    StockLoaderParams,
)
from cstool.model.params.sections.encoder_decoder_loaders import Hdf5PairsParams, TextSpansParams, TranslationsParams
from cstool.model.params.sections.encoder_loaders import (
    DprLoaderParams,
    DrawnMasksParams,
    Hdf5MasksParams,
    MaskedTextParams,
    SentencesParams,
    SummariesParams,
    TokenClassesParams,
)
from cstool.model.params.sections.vision_loaders import DigitsParams, PhotosParams

LOADER_SECTIONS = (
    StockLoaderParams,
    DigitsParams,
    MaskedTextParams,
    DrawnMasksParams,
    Hdf5MasksParams,
    SentencesParams,
    TokenClassesParams,
    SummariesParams,
    DprLoaderParams,
    TextSpansParams,
    TranslationsParams,
    Hdf5PairsParams,
    PhotosParams,
    PreferencesParams,
    LabelledParams,
)
LOADERS: dict[str, type[DataloaderParams]] = {
    name: section for section in LOADER_SECTIONS for name in get_args(section.model_fields["data_processor"].annotation)
}
"""name of a data processor -> its section"""
