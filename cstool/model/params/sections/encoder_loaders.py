"""The sections about data of encoders: masked text, sentences, tokens with classes, texts to summarize.

Missing keys have the vendor's defaults. Source: Cerebras Model Zoo 2.10.0, data/nlp/bert and data/nlp/dpr.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from cstool.foundation.yaml_lines.section import Count, List, Whole, beside
from cstool.model.params.paths import AliasedPath
from cstool.model.params.sections.dataloader import DataloaderParams

_Length = Annotated[int, Field(ge=4, le=2**20)]
"""tokens of a sample: [CLS], two of text, [SEP]"""
_Predictions = Annotated[
    Count, beside("max_sequence_length", lambda most, length: length is None or most <= length, "must be at most {}")
]
_Texts = Annotated[tuple[str, ...], List]

_ORDER = frozenset({"shuffle_buffer"})
"""All samples are shuffled, not a buffer of them alone."""
_PADDING: Mapping[str, tuple[Any, ...]] = {"attn_mask_pad_id": (0,)}


class EncoderLoaderParams(DataloaderParams):
    """A data set for an encoder."""

    max_sequence_length: _Length | None = None
    shuffle: bool = True


class MaskedTextParams(EncoderLoaderParams):
    """Texts whose masks are drawn as they are read, anew in every epoch."""

    data_processor: Literal["BertCSVDynamicMaskDataProcessor"]
    max_sequence_length: _Length
    max_predictions_per_seq: _Predictions
    vocab_file: AliasedPath
    do_lower: bool = False
    disable_nsp: bool = False
    masked_lm_prob: Annotated[float, Field(gt=0, le=1)] = 0.15
    mask_whole_word: bool = False
    dynamic_mlm_scale: bool = False
    oov_token: str = "[UNK]"
    mask_token: str = "[MASK]"
    exclude_from_masking: _Texts = ("[CLS]", "[SEP]", "[PAD]", "[MASK]")
    input_pad_id: Whole = 0

    without_effect = (
        DataloaderParams.without_effect
        | _ORDER
        | {"buckets", "document_separator_token", "labels_pad_id", "steps", "whole_word_masking"}
    )
    supported = {
        **_PADDING,
        "gather_mlm_labels": (True,),
        "segment_pad_id": (0,),
    }


class DrawnMasksParams(EncoderLoaderParams):
    """Texts whose masks are drawn already, in files of CSV."""

    data_processor: Literal["BertCSVDataProcessor"]
    shuffle: bool = False
    max_predictions_per_seq: Count | None = None
    disable_nsp: bool = False
    dynamic_mlm_scale: bool = False

    without_effect = (
        DataloaderParams.without_effect
        | _ORDER
        | {"buckets", "do_lower", "masked_lm_prob", "max_position_embeddings", "vocab_file", "whole_word_masking"}
    )


class Hdf5MasksParams(EncoderLoaderParams):
    """Texts whose masks are drawn already, in HDF5 files; several may be packed into a sample."""

    data_processor: Literal["BertHDF5DataProcessor"]
    shuffle: bool = False
    max_predictions_per_seq: Count | None = None
    use_vsl: bool = False

    without_effect = DataloaderParams.without_effect | {"use_worker_cache"}
    supported = {
        **dict.fromkeys("data_subset dataset_map_fn mixture num_samples pad_last".split(), ()),
        "sort_files": (True,),
    }


class SentencesParams(EncoderLoaderParams):
    """Sentences, or pairs of them, with a class each: a task of GLUE."""

    data_processor: Literal["MNLIDataProcessor", "SST2DataProcessor"]
    max_sequence_length: _Length
    vocab_file: AliasedPath
    is_training: bool | None = None
    do_lower: bool = False
    input_pad_id: Whole = 0

    without_effect = DataloaderParams.without_effect | {"labels_pad_id"}
    supported = {**_PADDING}

    @property
    def has_halves(self) -> bool:
        """Whether samples say which half of the held-out data they belong to: samples of MNLI do."""
        return self.data_processor == "MNLIDataProcessor"

    @property
    def part(self) -> str:
        """The part that is read, train or val: by `is_training`, or `split` without it."""
        return self.split if self.is_training is None else ("val", "train")[self.is_training]


class TokenClassesParams(EncoderLoaderParams):
    """Texts with a class for each token."""

    data_processor: Literal["BertTokenClassifierDataProcessor"]
    max_sequence_length: _Length
    vocab_file: AliasedPath
    label_vocab_file: AliasedPath
    do_lower: bool = False
    include_padding_in_loss: bool = False
    labels_pad_id: Whole | None = None
    input_pad_id: Whole | None = None

    without_effect = DataloaderParams.without_effect | _ORDER | {"mask_whole_word"}
    supported = {**_PADDING}


class SummariesParams(EncoderLoaderParams):
    """Texts of which some sentences are to be taken into a summary."""

    data_processor: Literal["BertSumCSVDataProcessor"]
    max_sequence_length: _Length
    max_cls_tokens: Annotated[
        Count, beside("max_sequence_length", lambda most, length: most <= length, "must be at most {}")
    ]
    vocab_file: AliasedPath | None = None
    pad_id: Whole | None = None
    do_lower: bool = False

    without_effect = DataloaderParams.without_effect | _ORDER | {"mask_whole_word"}


class DprLoaderParams(EncoderLoaderParams):
    """Questions with their contexts, the right one first, in HDF5 files."""

    data_processor: Literal["DPRHDF5DataProcessor"]
    shuffle: bool = False

    without_effect = DataloaderParams.without_effect | _ORDER | {"features_list"}
    supported = dict.fromkeys(("max_sequence_length", "use_vsl"), ())


def usual_predictions(sequence_length: int) -> int:
    """Largest number of masked tokens of S, where it is not set: 15 %, rounded up."""
    return math.ceil(0.15 * sequence_length)
