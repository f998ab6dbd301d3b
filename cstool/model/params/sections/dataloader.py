"""The sections about data sets and their reading."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from cstool.foundation.yaml_lines.section import Count, List, NotNegative, Section, Whole, not_beside, rule_error
from cstool.model.params.paths import WrittenPath


def _one_or_several(written: Any) -> Any:
    folders = written if isinstance(written, list) else [written]
    if not all(isinstance(folder, str) and folder for folder in folders):
        raise rule_error("must be a folder or a list of folders")
    return tuple(folders)


Folders = Annotated[tuple[WrittenPath, ...], BeforeValidator(_one_or_several), Field(min_length=1)]
"""a folder or a list of folders"""


def _has_weight(parts: "tuple[MixturePartParams, ...]") -> "tuple[MixturePartParams, ...]":
    if parts and not any(part.weight > 0 for part in parts):
        raise rule_error("must have a weight above 0")
    return parts


class SinkTokensParams(Section):
    """Tokens put into every sample for later ones to attend to."""

    name: Literal["add_sink_tokens"]
    sink_token_id: Whole = 0
    num_sink_tokens: Count = 1
    sink_token_start_pos: Whole = 0
    truncate_to_original_length: bool = False

    supported = {"name": ("add_sink_tokens",), "use_vsl": ()}


class MixturePartParams(Section):
    """A data set of a mixture; its share of the samples is its weight, divided by the sum of all."""

    folders: Folders = Field(alias="data_dir")
    weight: NotNegative

    supported = {"data_subset": ()}


class DataloaderParams(Section):
    """A data set of any kind, and the order in which it is read. `batch_size` is the global batch."""

    data_processor: str
    folders: Folders = Field(alias="data_dir")
    batch_size: Count
    shuffle: bool = False
    shuffle_seed: Whole = 1
    drop_last: bool = True
    split: Literal["train", "val"]

    other_names = {"drop_last_batch": "drop_last"}
    without_effect = frozenset(
        "micro_batch_size mixed_precision num_examples num_workers persistent_workers pin_memory prefetch_factor "
        "to_float16 use_multiple_workers vocab_size".split()
    )

    def dump(self) -> dict[str, Any]:
        """Return the section as plain YAML data, defaults filled in, null or empty keys left out."""
        return {name: value for name, value in super().dump().items() if value != []}

    @property
    def data_dir(self) -> tuple[Path, ...]:
        """The folders, absolute."""
        return tuple(folder.path for folder in self.folders)

    def _count(self, *keys: str) -> int | None:
        """The value of the first of some keys that the section has."""
        found: int | None = next((getattr(self, key) for key in keys if key in type(self).model_fields), None)
        return found

    @property
    def epoch_samples(self) -> int | None:
        """How many samples an epoch has; None for all of the data set once."""
        return self._count("num_samples")

    @property
    def sample_length(self) -> int | None:
        """S, tokens of a sample, of its source or of each of its texts, as far as the file says it."""
        return self._count("max_sequence_length", "src_max_sequence_length")

    @property
    def target_length(self) -> int | None:
        """T, tokens that the decoder of an encoder-decoder tells, as far as the file says it."""
        return self._count("tgt_max_sequence_length")

    @property
    def predictions(self) -> int | None:
        """Places for labels of a sample, where these are gathered: M masked tokens, or C sentences.

        None where the files say it, and where no labels are gathered.
        """
        return self._count("max_predictions_per_seq", "max_cls_tokens")

    @property
    def has_pairs(self) -> bool:
        """Whether samples of masked text say if its second part follows the first: next sentence prediction."""
        return not getattr(self, "disable_nsp", True)

    @property
    def is_packed(self) -> bool:
        """Whether a sample is several texts that do not see each other."""
        return bool(getattr(self, "use_vsl", False))

    @property
    def has_halves(self) -> bool:
        """Whether samples say which half of the held-out data they belong to: like the training data, or unlike."""
        return False

    @property
    def scales_by_predictions(self) -> bool:
        """Whether the loss of masked tokens is their mean over the batch, and its weight in the model is not applied.

        Likewise of the tokens that a decoder tells. Else it is their sum over the batch, divided by the samples, times
        that weight.
        """
        return bool(self._count("dynamic_mlm_scale", "dynamic_loss_weight"))

    @property
    def tried(self) -> str:
        """All places where the folders were looked for, for messages."""
        return ", ".join(str(path) for folder in self.folders for path in folder.tried)


class StockLoaderParams(DataloaderParams):
    """A data set of text for a decoder."""

    data_processor: Literal["GptHDF5MapDataProcessor", "GptHDF5DataProcessor"]
    max_sequence_length: Count | None = None
    mixture: Annotated[tuple[MixturePartParams, ...], List, AfterValidator(_has_weight)] = ()
    num_samples: Count | None = None
    use_vsl: bool = False
    data_transforms: Annotated[tuple[SinkTokensParams, ...], List, not_beside("use_vsl")] = ()

    without_effect = DataloaderParams.without_effect | frozenset("fake_data_seed repeat use_worker_cache".split())
    supported = {
        **dict.fromkeys("data_subset dataset_map_fn pad_last sampler use_fake_data".split(), ()),
        "features_list": (["input_ids", "attention_mask", "labels"],),
        "sort_files": (True,),
    }

    def dump(self) -> dict[str, Any]:
        """Return the section as plain YAML data; of a mixture, without the folders, which are in its parts."""
        found = super().dump()
        return {name: value for name, value in found.items() if name != "data_dir"} if self.mixture else found

    @property
    def added_tokens(self) -> int:
        """Number of tokens that sinks add to a sample."""
        return sum(0 if sinks.truncate_to_original_length else sinks.num_sink_tokens for sinks in self.data_transforms)

    @property
    def sample_length(self) -> int | None:
        """S, tokens of a sample, sinks included, as far as the file says it."""
        return None if self.max_sequence_length is None else self.max_sequence_length + self.added_tokens


_PREFERENCES = [
    f"{text}_{feature}" for text in ("chosen", "rejected") for feature in ("input_ids", "attention_mask", "labels")
]


class PreferencesParams(DataloaderParams):
    """Pairs of a chosen and a rejected text, which DPO reads. Source: Cerebras Model Zoo 2.10.0, data/nlp/dpo."""

    data_processor: Literal["DpoHDF5DataProcessor"]
    max_sequence_length: Count | None = None

    without_effect = DataloaderParams.without_effect | {"use_worker_cache"}
    supported = {
        **dict.fromkeys("data_subset dataset_map_fn mixture num_samples pad_last sampler use_vsl".split(), ()),
        "features_list": (_PREFERENCES,),
        "sort_files": (True,),
    }


class LabelledParams(DataloaderParams):
    """Answers that are desirable or not, which KTO reads; of `cstool data prepare preferences`, the vendor has none."""

    data_processor: Literal["KtoHDF5DataProcessor"]
    max_sequence_length: Count | None = None


def data_set_names(loaders: Sequence[DataloaderParams]) -> tuple[str, ...]:
    """Return a name for each data set of a list: its first folder's, with as much before it as tells them apart.

    Characters other than letters, digits, dots and dashes become underscores, so that a name can be part of a metric's.
    Data sets of the same folder are numbered.
    """
    parts = [loader.folders[0].path.parts for loader in loaders]
    found: list[str] = []
    for own in parts:
        depths = range(1, len(own))
        depth = next((d for d in depths if all(own == other or own[-d:] != other[-d:] for other in parts)), 1)
        name = re.sub(r"[^\w.-]", "_", "_".join(own[-depth:]))
        numbered = (name if number == 1 else f"{name}_{number}" for number in itertools.count(1))
        found.append(next(free for free in numbered if free not in found))
    return tuple(found)
