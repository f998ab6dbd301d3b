"""The sections about data of encoder-decoders: texts with spans taken out, and translations.

Missing keys have the vendor's defaults. Source: Cerebras Model Zoo 2.10.0, data/nlp/t5 and
data/nlp/transformer.
"""

from typing import Annotated, Literal

from pydantic import Field

from cstool.foundation.yaml_lines.section import Count, List, Whole
from cstool.model.params.paths import AliasedPath
from cstool.model.params.sections.dataloader import DataloaderParams, Folders

_Length = Annotated[int, Field(ge=4, le=2**20)]


class TokenLinesParams(DataloaderParams):
    """Files of text, a text on each line, cut into tokens with spaces between."""

    folders: Folders = Field(alias="src_data_dir")
    src_vocab_file: AliasedPath
    src_max_sequence_length: _Length
    tgt_max_sequence_length: _Length
    shuffle: bool = True
    do_lower: bool = False
    dynamic_loss_weight: bool = False
    oov_token: str = "<unk>"
    sos_token: str = "<s>"
    eos_token: str = "</s>"
    pad_token: str = "<pad>"
    input_pad_id: Whole | None = None
    labels_pad_id: Whole | None = None

    without_effect = DataloaderParams.without_effect | {"buckets", "shuffle_buffer", "tgt_data_dir", "tgt_vocab_file"}


class TextSpansParams(TokenLinesParams):
    """Texts of which spans are taken out as they are read, anew in every epoch: T5."""

    data_processor: Literal["T5DynamicDataProcessor"]
    extra_ids: Whole = 0
    pack_sequences: bool = False
    num_documents_to_concatenate: Count = 128

    @property
    def documents(self) -> int:
        """Number of lines that are put together before they are cut into samples."""
        return self.num_documents_to_concatenate if self.pack_sequences else 1


class TranslationsParams(TokenLinesParams):
    """Texts in pairs, such as a sentence and its translation."""

    data_processor: Literal["TransformerDynamicDataProcessor"]

    without_effect = TokenLinesParams.without_effect | {"num_documents_to_concatenate"}
    supported = {"extra_ids": (0,), "pack_sequences": ()}


class Hdf5PairsParams(DataloaderParams):
    """Samples for an encoder-decoder as they are in HDF5 files."""

    data_processor: Literal["T5HDF5DataProcessor"]
    features_list: Annotated[tuple[str, ...], List] | None = None

    without_effect = DataloaderParams.without_effect | {"shuffle_buffer"}
    supported = {"use_vsl": ()}
