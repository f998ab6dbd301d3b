"""From sections about data to `DataloaderParams`, with the settings that follow from the model and the seed."""

from dataclasses import dataclass
from typing import Any

from cstool.foundation.words import did_you_mean
from cstool.foundation.yaml_lines.document import Key
from cstool.foundation.yaml_lines.problems import Problems
from cstool.model.params.micro_batch import MicroBatchChoice
from cstool.model.params.paths import ResolvedPath
from cstool.model.params.sections.dataloader import (
    DataloaderParams,
    MixturePartParams,
    SinkTokensParams,
    StockLoaderParams,
)
from cstool.model.params.sections.encoder_decoder import EncoderDecoderParams
from cstool.model.params.sections.loaders import LOADERS
from cstool.model.params.sections.model import FcMnistParams, ImageModelParams, ModelParams
from cstool.model.params.sections.vision_loaders import OTHER_TRANSFORMS, TRANSFORMS, TransformParams

_OF_MODEL = ("disable_nsp", "include_padding_in_loss", "label_vocab_file", "vocab_file")
"""keys that the vendor takes from the model section, where that has them"""


@dataclass
class DataloaderCheck:
    """Checks dataloaders one by one.

    Args:
        micro_batch: takes the setting in the training data
        model: None if it is wrong, or not there
        seed: of the run; it orders data without a seed of their own
    """

    problems: Problems
    micro_batch: MicroBatchChoice
    model: ModelParams | None
    seed: int

    def training(self, raw: Any, key: Key) -> DataloaderParams | None:
        """Return the dataloader of the training data; None if there is none, or it is wrong."""
        return self._dataloader(raw, key, "train")

    def held_out(self, raw: Any, key: Key) -> tuple[DataloaderParams, ...]:
        """Return one dataloader or several, the valid ones."""
        if not isinstance(raw, list):
            raw, keys = [raw], [key]
        else:
            keys = [(*key, index) for index in range(len(raw))]
            if not raw:
                self.problems.add(key, "must hold at least one dataloader", raw)
        loaders = [self._dataloader(part, below, "val") for part, below in zip(raw, keys, strict=True)]
        return tuple(loader for loader in loaders if loader is not None)

    def _dataloader(self, raw: Any, key: Key, split: str) -> DataloaderParams | None:
        if raw is None:
            return None
        if isinstance(raw, dict):
            if split == "train":
                raw = self.micro_batch.take_from_loader(raw, key)
            defaults: dict[str, Any] = {"split": split, "shuffle_seed": self.seed}
            if isinstance(self.model, FcMnistParams):
                # Old files leave out what can only be one.
                defaults["data_processor"] = "MNISTDataProcessor"
            raw = {**raw, **{name: value for name, value in defaults.items() if raw.get(name) is None}}
            if isinstance(transforms := raw.get("data_transforms"), list):
                below: Key = (*key, "data_transforms")
                checked = [self._sink_tokens(each, (*below, index)) for index, each in enumerate(transforms)]
                raw["data_transforms"] = [each for each in checked if each is not None]
            raw = self._with_mixture(raw, key)
            if isinstance(transforms := raw.get("transforms"), list):
                steps = [self._transform(each, (*key, "transforms", index)) for index, each in enumerate(transforms)]
                if None in steps:  # what is said of it says more than the rules about their order
                    return None
                raw["transforms"] = steps
        section: type[DataloaderParams] = StockLoaderParams
        if isinstance(raw, dict) and isinstance(name := raw.get("data_processor"), str):
            if name not in LOADERS:
                rule = f"must be one of {', '.join(LOADERS)}"
                self.problems.add((*key, "data_processor"), rule, name, did_you_mean(name, LOADERS))
                return None
            section = LOADERS[name]
            raw = self._with_model(section, raw, key)
        return self._fitting(self.problems.check(section, raw, key), key)

    def _with_mixture(self, raw: dict[str, Any], key: Key) -> dict[str, Any]:
        """Return a section with the folders of its mixture, if it has one."""
        name = raw.get("data_processor")
        if (
            not isinstance(mixture := raw.get("mixture"), list)
            or LOADERS.get(str(name), StockLoaderParams) is not StockLoaderParams
        ):
            return raw
        if raw.get("data_dir") is not None:
            self.problems.add((*key, "mixture"), "cannot stand beside data_dir", hint="keep one of the two")
        if not mixture:
            self.problems.add((*key, "mixture"), "must hold at least one data set", mixture)
        checked = [
            self.problems.check(MixturePartParams, part if part is not None else [], (*key, "mixture", index))
            for index, part in enumerate(mixture)
        ]
        parts = [part for part in checked if part is not None]
        folders = [folder for part in parts for folder in part.folders]
        if len(parts) < len(checked) or not parts:
            # What is wrong is told; the rest of the section is looked at all the same.
            return {**raw, "mixture": None, "data_dir": raw.get("data_dir") or "."}
        return {**raw, "mixture": parts, "data_dir": [str(folder.path) for folder in folders]}

    def _with_model(self, section: type[DataloaderParams], raw: dict[str, Any], key: Key) -> dict[str, Any]:
        """Return a section with the model's settings of its data."""
        found = dict(raw)
        for name in _OF_MODEL:
            value = getattr(self.model, name, None)
            if value is None or name not in section.model_fields:
                continue
            if isinstance(value, ResolvedPath):
                if raw.get(name) is None:
                    found[name] = str(value.path)
            elif raw.get(name) in (None, value):
                found[name] = value
            else:
                self.problems.add((*key, name), f"must be as in the model ({str(value).lower()})", raw[name])
        return found

    def _fitting(self, loader: DataloaderParams | None, key: Key) -> DataloaderParams | None:
        """Check that the samples of a dataloader fit the positions of the model."""
        if loader is None or self.model is None or isinstance(self.model, ImageModelParams):
            return loader
        if isinstance(self.model, EncoderDecoderParams):
            lengths = loader.sample_length, loader.target_length
            for side, length, most in zip(("src", "tgt"), lengths, self.model.most_tokens, strict=True):
                if length is not None and most is not None and length > most:
                    rule = f"must be at most the {side}_max_position_embeddings of the model ({most})"
                    self.problems.add((*key, f"{side}_max_sequence_length"), rule, length)
            return loader
        positions = self.model.max_position_embeddings
        added = loader.added_tokens if isinstance(loader, StockLoaderParams) else 0
        longest, asked = positions - added, getattr(loader, "max_sequence_length", None)
        sinks = f" less {added} sink tokens" if added else ""
        if asked is not None and asked > longest:
            rule = f"must be at most the max_position_embeddings of the model ({positions}){sinks}"
            self.problems.add((*key, "max_sequence_length"), rule, asked)
        elif longest < 1:
            rule = f"must leave tokens of the max_position_embeddings of the model ({positions}), and add"
            self.problems.add((*key, "data_transforms"), f"{rule} {added}")
        if loader.is_packed:
            from_the_begin = {
                "position_embedding_type: fixed": getattr(self.model, "position_embedding_type", None) == "fixed",
                # There the vendor takes the rows of padding for the first positions.
                "mask_padding_in_positional_embed": getattr(self.model, "mask_padding_in_positional_embed", False),
                "attention sinks, chunks or columns": self.model.sees_by_place,
            }
            for what in (what for what, counts in from_the_begin.items() if counts):
                rule = f"must be false with {what}: positions begin anew with each text"
                self.problems.add((*key, "use_vsl"), rule, True)
        return loader

    def _sink_tokens(self, raw: Any, key: Key) -> SinkTokensParams | None:
        sinks = self.problems.check(SinkTokensParams, raw if raw is not None else [], key)
        vocab_size = getattr(self.model, "vocab_size", None)
        if sinks is not None and vocab_size is not None and sinks.sink_token_id >= vocab_size:
            rule = f"must be less than the vocab_size of the model ({vocab_size})"
            self.problems.add((*key, "sink_token_id"), rule, sinks.sink_token_id)
        return sinks

    def _transform(self, raw: Any, key: Key) -> TransformParams | None:
        """Check a transform of images, which the vendor finds by its name in lower case."""
        if not isinstance(raw, dict):
            self.problems.add(key, "must be a mapping", raw)
            return None
        name = str(raw.get("name", "")).lower()
        if name in TRANSFORMS:
            return self.problems.check(TRANSFORMS[name], {**raw, "name": name}, key)
        rule = f"must be one of {', '.join(TRANSFORMS)}"
        hint = "it cannot be had; leave it out" if name in OTHER_TRANSFORMS else did_you_mean(name, TRANSFORMS)
        if raw.get("name") is None:
            self.problems.add((*key, "name"), "is missing", hint=f"the names are {', '.join(TRANSFORMS)}")
        else:
            self.problems.add((*key, "name"), rule, raw["name"], hint)
        return None
