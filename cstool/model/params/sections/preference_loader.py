"""The section that says which pairs of texts DPO reads. Source: Cerebras Model Zoo 2.10.0, data/nlp/dpo."""

from typing import Any, ClassVar, Literal

from cstool.foundation.yaml_lines.section import Count
from cstool.model.params.sections.dataloader import DataloaderParams


class PreferencesParams(DataloaderParams):
    """Pairs of a chosen and a rejected text."""

    data_processor: Literal["DpoHDF5DataProcessor"]
    max_sequence_length: Count | None = None

    without_effect: ClassVar[frozenset[str]] = DataloaderParams.without_effect | {"use_worker_cache"}
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {
        **dict.fromkeys("data_subset dataset_map_fn mixture num_samples pad_last sampler use_vsl".split(), ()),
        "features_list": (
            [
                f"{text}_{feature}"
                for text in ("chosen", "rejected")
                for feature in ("input_ids", "attention_mask", "labels")
            ],
        ),
        "sort_files": (True,),
    }

    @property
    def sample_length(self) -> int | None:
        """S, tokens of a text."""
        return self.max_sequence_length
