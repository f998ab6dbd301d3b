"""Which model a checkpoint is of, as a params file says it, a config.json beside the weights, or the checkpoint."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cstool.convert.gguf_reader import GgufReader
from cstool.convert.gguf_source import gguf_config
from cstool.convert.hf_config import (
    check_config,
    config_family,
    dpr_parts,
    family_of,
    keys_without_effect,
    make_dpr,
    make_model,
    model_section,
)
from cstool.convert.hf_encoders import DPR, FOLDERS, check_class, is_dpr_folder
from cstool.convert.hf_family import Family, HfModel, HfPart
from cstool.convert.hf_source import config_path
from cstool.convert.safetensors_reader import read_json
from cstool.convert.vendor_reader import VendorReader
from cstool.foundation.errors import CheckpointError, ParamsError
from cstool.model.graphs import SampleForm, build_graph
from cstool.model.ir import Graph
from cstool.model.params import DpoParams, DprParams, EncoderDecoderParams, ModelParams, Params, parse_params
from cstool.model.params.sections.model import model_of
from cstool.training.store import CheckpointReader


@dataclass(frozen=True)
class Described:
    """A model, and the source of its description.

    Args:
        model: its section of the params
        place: of the file that has it, for messages
        document: the params that a checkpoint keeps
        is_new: whether no params file says it yet
        data_folders: of the data sets of its run, as far as they are known
        family: that its config.json names; None where it has none
        notes: ignored entries of its config.json
    """

    model: ModelParams
    place: str
    document: Mapping[str, Any]
    is_new: bool = False
    data_folders: tuple[Path, ...] = ()
    family: Family | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def graph(self) -> Graph:
        """The graph; its weights do not depend on the length of samples."""
        if isinstance(self.model, EncoderDecoderParams):
            return build_graph(self.model, SampleForm(1, targets=1))
        return build_graph(self.model, SampleForm(getattr(self.model, "max_position_embeddings", None), 1))

    def as_hf(self, named: str | None = None) -> tuple[Family, HfModel]:
        """Return the family of the model at Hugging Face, and its section of the params, or raise CheckpointError.

        Args:
            named: model_type that the family must have; None for the type in its config.json, or the first that fits
        """
        family = self.family if named is None else None
        if family is None:
            family = family_of(self.place, self.model, named)
        assert isinstance(self.model, HfModel)
        return family, self.model

    def parts(self, named: str | None = None) -> tuple[HfPart, ...]:
        """Return the model as one or several models of Hugging Face, or raise CheckpointError; see `as_hf`."""
        if isinstance(self.model, DprParams):
            return dpr_parts(self.place, self.model, named)
        return (HfPart("", *self.as_hf(named), self.graph),)

    def of_policy(self, is_new: bool) -> "Described":
        """Return the policy of DPO as a model of its own; any other model as it is.

        Args:
            is_new: whether no params file says it yet
        """
        if not isinstance(self.model, DpoParams):
            return self
        policy, place = self.model.policy_model, f"{self.place}: policy_model"
        document = {"trainer": {"init": {"model": policy.dump()}}}
        return replace(self, model=policy, place=place, document=document, is_new=is_new)


def describe(path: Path, source_format: str, params: Params | None) -> Described:
    """Return the model of a checkpoint, as `params` say it, or itself where there are none.

    Raises:
        CheckpointError: no file describes the model, or two descriptions contradict each other
    """
    if source_format == "hf" and is_dpr_folder(path):
        return _described_dpr(path, params)
    beside = path if source_format == "gguf" else config_path(path)
    has_config = source_format == "gguf" or (source_format == "hf" and os.path.lexists(beside))
    config = (_config_in(path) if source_format == "gguf" else read_json(beside)) if has_config else {}
    family = config_family(beside, config) if has_config else None
    if family is not None and family.model_type == DPR:
        names = " and ".join(FOLDERS.values())
        raise CheckpointError(
            f"{beside}: must be of a whole model, got one encoder of a DPR",
            f"the folder in which both are, {names}, is what can be converted",
        )
    if params is not None:
        if has_config:
            trained = params.model.policy_model if isinstance(params.model, DpoParams) else params.model
            check_config(beside, config, params.path, trained)
        return Described(
            params.model, str(params.path), params.resolved(), data_folders=params.data_folders, family=family
        )
    if has_config:
        section = model_section(beside, config)
        document = {"trainer": {"init": {"model": section}}}
        notes = _notes(beside.name, beside, config)
        model = make_model(beside, section)
        return Described(model, str(beside), document, is_new=True, family=family, notes=notes)
    if source_format == "cstool":
        return _described_by_itself(path)
    if source_format == "vendor" and (found := _described_by_vendor(path)) is not None:
        return found
    where = "in" if path.is_dir() else "beside"
    why = f"there is no {beside.name} {where} {path}" if source_format == "hf" else "the checkpoint does not"
    raise CheckpointError(f"--params: must be given, since it says which model this is, and {why}")


def _config_in(path: Path) -> dict[str, Any]:
    """Return the metadata of a GGUF file as a config.json, or raise CheckpointError."""
    with GgufReader(path) as reader:
        return gguf_config(reader)


def _described_dpr(path: Path, params: Params | None) -> Described:
    """Return the model of a folder with two encoders; arguments and errors as of `describe`."""
    for name in FOLDERS.values():
        if not (path / name).is_dir():
            raise CheckpointError(f"{path}: must have the encoders {' and '.join(FOLDERS.values())}, lacks {name}")
    configs = {name: read_json(path / name / "config.json") for name in FOLDERS.values()}
    for name, config in configs.items():
        check_class(path / name / "config.json", name, config.get("architectures"))
    if params is None:
        section, model = make_dpr(path, configs)
        beside = {name: path / name / "config.json" for name in configs}
        notes = tuple(note for name, of in configs.items() for note in _notes(f"{name}/config.json", beside[name], of))
        return Described(model, str(path), {"trainer": {"init": {"model": section}}}, is_new=True, notes=notes)
    if not isinstance(params.model, DprParams):
        raise CheckpointError(f"{path}: must be of the model of {params.path}, {params.model.name}, got dpr")
    encoders = (params.model.questions, params.model.contexts)
    for (name, config), encoder in zip(configs.items(), encoders, strict=True):
        check_config(path / name / "config.json", config, params.path, encoder)
    return Described(params.model, str(params.path), params.resolved(), data_folders=params.data_folders)


def _notes(name: str, path: Path, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the notes on a config that is accepted."""
    idle = keys_without_effect(path, config)
    return (f"{name} has keys without effect at their values: {', '.join(idle)}",) if idle else ()


def _described_by_vendor(path: Path) -> Described | None:
    """Return the model of a checkpoint of the vendor's that kept the params of its run; None of one that did not."""
    with VendorReader(path) as reader:
        params: Any = reader.params()
    try:
        section = params["trainer"]["init"]["model"]
    except (LookupError, TypeError):
        return None
    # Of the rest, which may name data and callbacks of another machine, a checkpoint of weights needs nothing.
    text = yaml.safe_dump({"trainer": {"init": {"model": section}}}, sort_keys=False)
    model = parse_params(text, str(path), has_lines=False).model
    return Described(model, str(path), {"trainer": {"init": {"model": model.dump()}}}, is_new=True)


def _described_by_itself(path: Path) -> Described:
    with CheckpointReader(path) as reader:
        metadata: Any = reader.values().get("__metadata__")
    try:
        document = metadata[-1]["params"]
        section = document["trainer"]["init"]["model"]
        model = model_of(section)
    except (LookupError, TypeError, ValidationError) as error:
        raise CheckpointError(
            f"{path}: must say which model it is of, it does not", "--params names the file of the model"
        ) from error
    try:
        text = yaml.safe_dump(document, sort_keys=False)
        folders = parse_params(text, str(path), has_lines=False).data_folders
    except ParamsError:  # of another release; the model is what counts
        folders = ()
    return Described(model, str(path), document, data_folders=folders)
