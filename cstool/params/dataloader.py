"""The sections that say what data is read, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_serializer, field_validator

from cstool.params.paths import ResolvedPath, resolve_path
from cstool.params.section import Count, Section, Whole, rule_error


class DataloaderParams(Section):
    """A data set and the order in which it is read. `batch_size` is the global batch."""

    data_processor: Literal["GptHDF5MapDataProcessor", "GptHDF5DataProcessor", "MNISTDataProcessor"]
    folders: tuple[ResolvedPath, ...] = Field(alias="data_dir", min_length=1)
    batch_size: Count
    shuffle: bool = False
    shuffle_seed: Whole = 1
    drop_last: bool = True
    split: Literal["train", "val"]
    max_sequence_length: Count | None = None

    other_names: ClassVar[dict[str, str]] = {"drop_last_batch": "drop_last"}
    without_effect: ClassVar[frozenset[str]] = frozenset(
        {
            "micro_batch_size",
            "num_samples",
            "num_workers",
            "persistent_workers",
            "pin_memory",
            "prefetch_factor",
            "to_float16",
            "use_worker_cache",
        }
    )
    supported: ClassVar[dict[str, tuple[Any, ...]]] = {
        "dataset_map_fn": (),
        "mixture": (),
        "sampler": (),
        "use_fake_data": (),
        "use_vsl": (),
    }

    @field_validator("folders", mode="before")
    @classmethod
    def _resolve(cls, written: Any, info: ValidationInfo) -> Any:
        folders = written if isinstance(written, list) else [written]
        if not all(isinstance(folder, str) and folder for folder in folders):
            raise rule_error("must be a folder or a list of folders")
        return tuple(resolve_path(folder, (info.context or {})["folder"]) for folder in folders)

    @field_serializer("folders")
    def _write_folders(self, folders: tuple[ResolvedPath, ...]) -> list[str]:
        return [str(folder.path) for folder in folders]

    @property
    def data_dir(self) -> tuple[Path, ...]:
        """The folders, absolute."""
        return tuple(folder.path for folder in self.folders)

    @property
    def tried(self) -> str:
        """All places where the folders were looked for, for messages."""
        return ", ".join(str(path) for folder in self.folders for path in folder.tried)
