"""The older layout (train_input, eval_input, model, optimizer, sparsity, runconfig), turned into the trainer layout.

Names are the vendor's. Source: the conversion of its 2.10 release; for names of older releases, its history.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cstool.foundation.errors import ParamsError
from cstool.foundation.yaml_lines.document import Document, Key
from cstool.foundation.yaml_lines.problems import Problems
from cstool.model.params import legacy_keys as keys
from cstool.model.params.micro_batch import MICRO_BATCH_FLAG
from cstool.model.params.sections.model import MODELS, OTHER_FAMILIES
from cstool.model.params.sections.optimizers import OPTIMIZERS, OTHER_OPTIMIZERS
from cstool.model.params.sections.schedules import OTHER_SCHEDULES, SCHEDULES

_INIT: Key = ("trainer", "init")
_INIT_ORDER = (
    "backend model_dir seed model optimizer schedulers precision sparsity loop checkpoint logging callbacks loggers"
).split()


def is_legacy(data: Any) -> bool:
    """Whether the data of a file is in the older layout."""
    return isinstance(data, dict) and "trainer" not in data and any(name in data for name in keys.SECTIONS)


def convert_legacy_data(data: Mapping[str, Any], path: Path | None = None) -> dict[str, Any]:
    """Return data of the older layout in the trainer layout, with no defaults filled in that change the training.

    The device, which the vendor's trainer asks for, is CSX. The model's name, which older files may leave out, is taken
    from `path` (`.../gptj/configs/...`) or the keys.

    Raises:
        ParamsError: it is not in the older layout, or has a key that it does not know.
    """
    document = Document(str(path) if path else "the file", "", dict(data))
    if not is_legacy(document.data):
        raise ParamsError([(f"{document.name}: must have one of {', '.join(keys.SECTIONS)}, and no trainer", None)])
    conversion = LegacyConversion(document.data, path)
    problems = Problems(document, Path())
    conversion.check_keys(problems)
    problems.raise_found()
    init = conversion.trainer["init"]
    device = {} if "backend_type" in init.get("backend", {}) else {"device": "CSX"}
    return {"trainer": {**conversion.trainer, "init": {**device, **init}}}


def convert_legacy(document: Document) -> tuple[Document, LegacyConversion]:
    """Return a document in the trainer layout whose values know their places in the older file, and the conversion."""
    conversion = LegacyConversion(document.data, Path(document.name))
    # Data for evaluation stands in two places, which must not change together. That validate_all has no effect is not
    # worth a note: nobody wrote it.
    parts = {name: copy.deepcopy(part) for name, part in conversion.trainer.items() if name != "validate_all"}
    moved, names = conversion.moved, conversion.names
    return Document(document.name, document.text, {"trainer": parts}, document.places, moved, names), conversion


class LegacyConversion:
    """Data of the older layout in the other one.

    Args:
        data: whose sections may hold anything; their mistakes show in the trainer layout, or in `check_keys`
        path: of the file; its folder may name the model

    Attributes:
        trainer: content of `trainer`
        moved, names: as in `Document`
    """

    def __init__(self, data: Mapping[str, Any], path: Path | None) -> None:
        self.trainer: dict[str, Any] = {}
        self.moved: dict[Key, Key] = {(*_INIT, name): (name,) for name in ("model", "optimizer", "sparsity")}
        self.moved |= {(*_INIT, *new): ("runconfig", old) for old, new in keys.RUNCONFIG.items()}
        self.names: dict[Key, Key] = {}
        self.named_by: str | None = None
        self._data = data
        self._init: dict[str, Any] = {}
        self._entries: dict[str, dict[str, Any]] = {"callbacks": {}, "loggers": {}}
        runconfig = data.get("runconfig")
        self._runconfig: Mapping[str, Any] = runconfig if isinstance(runconfig, dict) else {}
        self._path = path
        self._convert_runconfig()
        for name, convert in (("model", self._convert_model), ("optimizer", self._convert_optimizer)):
            if (section := data.get(name)) is not None:
                self._init[name] = convert(section) if isinstance(section, dict) else section
        self._convert_sparsity()
        self._convert_data()
        for name, entries in self._entries.items():
            if entries:
                self._init[name] = [{entry: value} for entry, value in entries.items()]
        self.trainer = {"init": {name: self._init[name] for name in _INIT_ORDER if name in self._init}, **self.trainer}

    def check_keys(self, problems: Problems) -> None:
        """Add a problem for each key that the older layout does not know, a note for each that can change nothing."""
        problems.check_keys(self._data, (), keys.SECTIONS, keys.OTHER_SECTIONS)
        if (runconfig := self._data.get("runconfig")) is not None:
            known = (*keys.RUNCONFIG, *keys.CALLBACKS, *keys.SWITCHES, *keys.LOGGERS, *keys.OTHER_RUNCONFIG)
            problems.check_keys(runconfig, ("runconfig",), known, keys.NO_EFFECT)
        model = self._data.get("model")
        for name in keys.MODEL_NO_EFFECT:
            if isinstance(model, dict) and name in model:
                problems.note(("model", name))
        if self.named_by is not None:
            problems.note_text(f"model.name: not given, taken to be {self._init['model']['name']} from {self.named_by}")

    def _put(self, new: tuple[str, ...], old: Key, value: Any) -> None:
        """Put a value at a key below trainer.init."""
        holder = self._init
        for part in new[:-1]:
            holder = holder.setdefault(part, {})
        holder[new[-1]] = value
        self.moved[(*_INIT, *new)] = old

    def _put_entry(self, entry: str, old: Key, value: Any, argument: str = "", kind: str = "callbacks") -> None:
        """Make a callback or logger with a value, or with an argument that has it, beside others."""
        entries = self._entries[kind]
        arguments = entries.setdefault(entry, {})
        below: Key = (*_INIT, kind, list(entries).index(entry), entry)
        self.moved.setdefault(below, old)
        if argument:
            self.moved[*below, argument] = old
            arguments[argument] = value
        else:
            entries[entry] = value

    def _rename(self, section: dict[str, Any], names: Mapping[str, str], new: Key, old: Key) -> dict[str, Any]:
        """Return a section, which moves from the key `old` to `new`, with keys by their newer names."""
        for name, now in names.items():
            if name in section and now not in section:
                section = {now if other == name else other: value for other, value in section.items()}
                self.moved[*new, now] = (*old, name)
        return section

    def _convert_runconfig(self) -> None:
        for name, value in self._runconfig.items():
            old: Key = ("runconfig", name)
            if value is None:
                continue
            if name in keys.RUNCONFIG:
                self._put(keys.RUNCONFIG[name], old, value)
            elif name in keys.CALLBACKS:
                callback, argument = keys.CALLBACKS[name]
                self._put_entry(callback, old, value, argument)
            elif name in keys.SWITCHES:
                self._put_entry(keys.SWITCHES[name], old, None if value is False else {})
            elif name in keys.LOGGERS:
                logger, argument = keys.LOGGERS[name]
                self._put_entry(logger, old, value, argument, "loggers")
            elif name == "op_profiler_config":
                self._put_entry("OpProfiler", old, value)

    def _convert_model(self, model: dict[str, Any]) -> dict[str, Any]:
        rest = dict(model)
        for name, new in keys.MODEL_PRECISION.items():
            if (value := rest.pop(name, None)) is not None:
                self._put(("precision", new), ("model", name), value)
        for name in keys.MODEL_NO_EFFECT:
            rest.pop(name, None)
        for name, (value, new, meant) in keys.MODEL_SWITCHES.items():
            if isinstance(rest.get(name), bool) and rest.pop(name) is value:
                rest[new] = meant
                self.moved[*_INIT, "model", new] = ("model", name)
        for name, callback, argument in keys.MODEL_CALLBACKS:
            if (value := rest.pop(name, None)) is not None:
                self._put_entry(callback, ("model", name), value, argument)
        is_named = rest.get("name") is not None or rest.get("model_name") is not None
        if not is_named and (found := find_model_name(rest, self._path)) is not None:
            name, self.named_by = found
            rest = {"name": name, **{key: value for key, value in rest.items() if key != "name"}}
        return rest

    def _convert_optimizer(self, optimizer: dict[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in optimizer.items() if value is not None}
        key: Key = ("optimizer",)
        kind = _name_of(rest.pop("optimizer_type", None), OPTIMIZERS, OTHER_OPTIMIZERS)
        below: Key = (*_INIT, "optimizer", kind)
        self.moved[below] = key
        self.names[below] = (*key, "optimizer_type")
        if "log_summaries" in rest:
            self._put_entry("ComputeNorm", (*key, "log_summaries"), None if rest["log_summaries"] is False else {})
        for name, new in keys.OPTIMIZER.items():
            if name in rest:
                self._put(new, (*key, name), rest.pop(name))
        rest = self._rename(rest, keys.RENAMED, below, key)
        if {"beta1", "beta2"} <= rest.keys() and "betas" not in rest:
            rest["betas"] = [rest.pop("beta1"), rest.pop("beta2")]
            self.moved[*below, "betas"] = key
            self.moved |= {(*below, "betas", index): (*key, f"beta{index + 1}") for index in (0, 1)}
        if "learning_rate" in rest:
            self._convert_learning_rate(rest)
        return {kind: rest}

    def _convert_learning_rate(self, optimizer: dict[str, Any]) -> None:
        rate, written = optimizer["learning_rate"], ("optimizer", "learning_rate")
        key: Key = (*_INIT, "schedulers")
        self.moved[key] = written
        key = (*key, 0)
        wraps = bool(optimizer.get("adjust_learning_rate"))
        if wraps:
            key = (*key, "ScalePerParamLR", "scheduler")
        if not isinstance(rate, list | dict):
            # Both places of the trainer layout show the rate; this one counts.
            schedule: Any = {"ConstantLR": {"learning_rate": rate}}
            self.moved[key] = written
            self.moved[*key, "ConstantLR", "learning_rate"] = written
        elif isinstance(rate, dict) or len(rate) == 1:
            del optimizer["learning_rate"]
            part = rate if isinstance(rate, dict) else rate[0]
            schedule = self._convert_schedule(part, key, written if isinstance(rate, dict) else (*written, 0))
        else:
            del optimizer["learning_rate"]
            kinds = [part.get("main_scheduler") if isinstance(part, dict) else None for part in rate]
            index = next((index for index, kind in enumerate(kinds) if kind is not None), None)
            kind = "SequentialLR" if index is None else _main_scheduler(kinds[index])
            self.moved[key] = written
            self.moved[*key, kind] = written
            if index is not None:
                self.names[*key, kind] = (*written, index, "main_scheduler")
            key = (*key, kind, "schedulers")
            self.moved[key] = written
            parts = [self._convert_schedule(part, (*key, n), (*written, n)) for n, part in enumerate(rate)]
            schedule = {kind: {"schedulers": parts}}
        self._init["schedulers"] = [{"ScalePerParamLR": {"scheduler": schedule}} if wraps else schedule]

    def _convert_schedule(self, part: Any, new: Key, old: Key) -> Any:
        """Turn {scheduler: Linear, ...} into {LinearLR: ...}."""
        self.moved[new] = old
        part = part if isinstance(part, dict) else {}
        rest = {name: value for name, value in part.items() if name not in ("scheduler", "main_scheduler")}
        kind = _name_of(part.get("scheduler"), SCHEDULES, OTHER_SCHEDULES, suffix="LR")
        below: Key = (*new, kind)
        self.moved[below] = old
        self.names[below] = (*old, "scheduler")
        return {kind: self._rename(rest, keys.RENAMED_OF_SCHEDULE, below, old)}

    def _convert_sparsity(self) -> None:
        sparsity = self._data.get("sparsity")
        if sparsity is None:
            return
        groups = sparsity if isinstance(sparsity, list) else [sparsity]
        kept = []
        for index, group in enumerate(groups):
            if isinstance(group, dict) and "add_summaries" in group:
                place: Key = ("sparsity", index) if isinstance(sparsity, list) else ("sparsity",)
                if group["add_summaries"]:
                    self._put_entry("LogSparsity", (*place, "add_summaries"), {})
                group = {name: value for name, value in group.items() if name != "add_summaries"}
            kept.append(group)
        self._init["sparsity"] = kept if isinstance(sparsity, list) else kept[0]

    def _convert_data(self) -> None:
        loaders: dict[str, Any] = {}
        for old, callback in (("train_input", "ScopedTrainFlags"), ("eval_input", "ScopedValidateFlags")):
            loader = self._data.get(old)
            if loader is None:
                continue
            if isinstance(loader, dict) and (size := loader.get("micro_batch_size")) is not None:
                self._put_entry(callback, (old, "micro_batch_size"), size, MICRO_BATCH_FLAG)
                loader = {name: value for name, value in loader.items() if name != "micro_batch_size"}
            loaders[old] = loader
        checkpoint = self._runconfig.get("checkpoint_path")
        for run, name, old, path in keys.RUNS:
            if old not in loaders or (run == "fit" and "train_input" not in loaders):
                continue
            section = self.trainer.setdefault(run, {})
            section[name] = loaders[old]
            self.moved["trainer", run, name] = (old,)
            if checkpoint is not None:
                section[path] = checkpoint
                self.moved["trainer", run, path] = ("runconfig", "checkpoint_path")


def _main_scheduler(written: Any) -> str:
    """Return the schedule for the schedules of a list; unknown names stay as they are, for the schema to refuse."""
    name = str(written).lower().removesuffix("lr")
    return {"sequential": "SequentialLR", "chained": "ChainedScheduler"}.get(name, str(written))


def _name_of(written: Any, names: Mapping[str, Any], others: Collection[str], suffix: str = "") -> str:
    """Return the name in the vendor's spelling; as written if there is none such, empty if there is none at all."""
    if written is None:
        return ""
    by_lower = {name.lower(): name for name in (*others, *names)}
    lower = str(written).lower()
    return by_lower.get(lower) or by_lower.get(lower + suffix.lower()) or str(written)


def find_model_name(model: Mapping[str, Any], path: Path | None) -> tuple[str, str] | None:
    """Return a name for a model without one, and its origin.

    The vendor's older files lie in `{name}/configs/` or `{name}/.../configs/`; otherwise the keys must leave no doubt.
    """
    folders = [folder.name.lower() for folder in path.absolute().parents] if path is not None else []
    if "configs" in folders:
        # Not further up: the folders of a user may have any name.
        for name in folders[folders.index("configs") + 1 :][:2]:
            if name in MODELS or name in OTHER_FAMILIES:
                return name, "the name of the folder"
    if model.get("use_untied_layer_norm") is not None:
        return "gptj", "use_untied_layer_norm"
    kind = model.get("position_embedding_type")
    if kind in ("learned", "fixed", "alibi") or kind == "rotary" and model.get("norm_type") == "rmsnorm":
        return "gpt2", "its keys"
    return None
