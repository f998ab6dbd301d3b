"""From a params file and the command line to `Params`, or to all that is wrong with them."""

from __future__ import annotations

import difflib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cstool.params import legacy
from cstool.params.dataloader import DataloaderParams, SinkTokensParams
from cstool.params.decoder import DecoderParams
from cstool.params.document import Document, Key, read_document
from cstool.params.model import MODELS, OTHER_FAMILIES, FcMnistParams
from cstool.params.optimizers import OPTIMIZERS, OTHER_OPTIMIZERS, SGD, Adam
from cstool.params.overrides import apply_overrides
from cstool.params.params import Params
from cstool.params.paths import resolve_path
from cstool.params.problems import Problems
from cstool.params.schedules import OTHER_SCHEDULES, SCHEDULES, ScalePerParamLR, Schedule, SequentialLR
from cstool.params.section import MAX_STEPS, Section
from cstool.params.sparsity import check_sparsity
from cstool.params.trainer import (
    CALLBACK_SECTIONS,
    CALLBACKS,
    FLAG_CALLBACKS,
    LOGGERS,
    OTHER_CALLBACKS,
    AutorestartParams,
    BackendParams,
    CheckpointParams,
    FitKeys,
    InitKeys,
    LoadCheckpointStates,
    LoggingParams,
    LoopParams,
    PrecisionParams,
    TrainerKeys,
    ValidateAllKeys,
    ValidateKeys,
)

_TRAINER: Key = ("trainer",)
_INIT: Key = ("trainer", "init")


def load_params(
    path: str | Path,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> Params:
    """Read and check a params file of one trainer.

    Args:
        path: of a YAML file in the trainer layout, or in the older one
        overrides: what stood behind `--set`, for example `trainer.init.loop.max_steps=20`; for a file in the older
            layout they may name the keys of either
        flags: what other flags were typed: dotted key -> (flag, value), for example
            `{"trainer.init.backend.cluster_config.num_csx": ("--num_csx", 3)}`; they win over `overrides`

    Raises:
        ParamsError: with all problems of the file at once; or the file holds several trainers.
    """
    loaded = _load(Path(path), overrides, flags or {}, several=False)
    return loaded[0]


def load_all_params(
    path: str | Path,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> tuple[Params, ...]:
    """Read and check a params file of one trainer or a list of them.

    Args:
        path, overrides, flags: as for `load_params`; in a list, `trainer.1.init...` is a key of one trainer (the first
            is 0), and `trainer.init...` that of all

    Raises:
        ParamsError: with all problems of the file at once.
    """
    return _load(Path(path), overrides, flags or {}, several=True)


def _load(
    path: Path, overrides: Sequence[str], flags: Mapping[str, tuple[str, Any]], several: bool
) -> tuple[Params, ...]:
    document = read_document(path)
    _require_one_layout(document)
    conversion: legacy.LegacyConversion | None = None
    warnings: tuple[str, ...] = ()
    if legacy.is_legacy(document.data):
        older = [text for text in overrides if text.split("=")[0].split(".")[0].strip() in legacy.SECTIONS]
        apply_overrides(document, older, {})
        overrides = [text for text in overrides if text not in older]
        warnings = (_legacy_warning(document),)
        document, conversion = legacy.convert_legacy(document)
    else:
        _unpack_list(document, several)
    apply_overrides(document, overrides, flags)
    # A list may have come from the command line.
    _unpack_list(document, several)
    loaded: list[Params] = []
    problems: Problems | None = None
    for phase in _phases(document):
        problems = Problems(phase, path.parent, problems)
        if conversion is not None:
            conversion.check_keys(problems)
        _refuse_other_keys(phase, problems)
        if (params := _Loader(phase, problems, path, warnings).load()) is not None:
            loaded.append(params)
    assert problems is not None
    problems.raise_found()
    return tuple(loaded)


def _require_one_layout(document: Document) -> None:
    """Raise what stands in the way of reading the file as either layout."""
    problems = Problems(document, Path())
    data = document.data
    if not isinstance(data, dict):
        problems.add((), "must hold a mapping", data)
    elif newer := [key for key in legacy.TRAINER_KEYS if key in data]:
        older = [key for key in legacy.SECTIONS if key in data]
        if older:
            line = document.place((newer[0],)).label.rpartition(":")[2]
            rule = f"is of the older layout, {newer[0]} (line {line}) of the trainer layout: a file is in one of them"
            problems.add((older[0],), rule)
    elif not legacy.is_legacy(data):
        near = difflib.get_close_matches("trainer", data, n=1)
        if near:
            problems.add((near[0],), "is not a known key", hint="did you mean trainer?")
        else:
            problems.add(("trainer",), "is missing")
    problems.raise_found()


def _legacy_warning(document: Document) -> str:
    sections = ", ".join(name for name in legacy.SECTIONS if name in document.data)
    command = f"cstool config convert_legacy {shlex.quote(document.name)}"
    return f"{document.name}: is in the older layout ({sections}); `{command}` writes it in the trainer layout"


def _unpack_list(document: Document, several: bool) -> None:
    """Make each entry of a list of trainers a trainer: `{trainer: {...}}` and `{...}` are the same."""
    trainers = document.data.get("trainer")
    if not isinstance(trainers, list):
        return
    problems = Problems(document, Path())
    if not trainers:
        problems.add(("trainer",), "must hold at least one trainer", trainers)
    if len(trainers) > 1 and not several:
        rule = f"must be one trainer, got a list of {len(trainers)}"
        problems.add(("trainer",), rule, hint="give each phase a file of its own")
    problems.raise_found()
    for index, entry in enumerate(trainers):
        if isinstance(entry, dict) and list(entry) == ["trainer"]:
            trainers[index] = entry["trainer"]
            prefix: Key = ("trainer", index, "trainer")
            for key in [key for key in document.places if key[:3] == prefix]:
                document.places["trainer", index, *key[3:]] = document.places.pop(key)


def _phases(document: Document) -> list[Document]:
    """Return a document for each trainer."""
    trainers = document.data.get("trainer")
    if not isinstance(trainers, list):
        return [document]
    rest = {key: value for key, value in document.data.items() if key != "trainer"}
    name, text, places = document.name, document.text, document.places
    return [
        Document(name, text, {"trainer": trainer, **rest}, places, {_TRAINER: (*_TRAINER, index)})
        for index, trainer in enumerate(trainers)
    ]


def _refuse_other_keys(document: Document, problems: Problems) -> None:
    for key in document.data:
        if key != "trainer":
            near = difflib.get_close_matches(key, ["trainer"], n=1)
            hint = "did you mean trainer?" if near else "all keys stand below trainer"
            problems.add((key,), "is not a known key", hint=hint)


class _Loader:
    """Checks the sections of a document one by one."""

    def __init__(self, document: Document, problems: Problems, path: Path, warnings: tuple[str, ...]) -> None:
        self._document = document
        self._problems = problems
        self._path = path
        self._warnings = warnings
        self._vocab_size: int | None = None
        self._processor: dict[str, str] = {}

    def load(self) -> Params | None:
        """Return the params; None if there are problems."""
        check = self._problems.check
        keys = self._keys(TrainerKeys, self._document.data["trainer"], _TRAINER)
        raw = keys.get("init")
        init = self._keys(InitKeys, raw, _INIT) if raw is not None else {}
        model = self._model(init.get("model"))
        self._vocab_size = getattr(model, "vocab_size", None)
        if isinstance(model, FcMnistParams):
            # Old files leave out what can only be one.
            self._processor = {"data_processor": "MNISTDataProcessor"}
        optimizer = self._optimizer(init.get("optimizer"))
        schedules = self._schedules(init.get("schedulers"))
        if optimizer and schedules == () and optimizer.learning_rate is None:
            name = next(iter(init["optimizer"]))
            self._problems.add((*_INIT, "optimizer", name, "learning_rate"), "is missing", hint="or give schedulers")
        precision = check(PrecisionParams, init.get("precision"), (*_INIT, "precision"))
        sparsity = check_sparsity(self._problems, init.get("sparsity"), (*_INIT, "sparsity"))
        loop = check(LoopParams, self._typed_length(init.get("loop")), (*_INIT, "loop"))
        checkpoint = check(CheckpointParams, init.get("checkpoint"), (*_INIT, "checkpoint"))
        logging = check(LoggingParams, init.get("logging"), (*_INIT, "logging"))
        backend = check(BackendParams, init.get("backend"), (*_INIT, "backend"))
        check(AutorestartParams, init.get("autorestart"), (*_INIT, "autorestart"))
        states = self._callbacks(init.get("callbacks"))
        self._loggers(init.get("loggers"))
        seed = value if type(value := init.get("seed")) is int and 0 <= value <= MAX_STEPS else 1
        fit = self._keys(FitKeys, keys.get("fit"), ("trainer", "fit"))
        train = self._dataloader(fit.get("train_dataloader"), ("trainer", "fit", "train_dataloader"), "train", seed)
        val = self._dataloaders(fit.get("val_dataloader"), ("trainer", "fit", "val_dataloader"), seed)
        validate = self._keys(ValidateKeys, keys.get("validate"), ("trainer", "validate"))
        key = ("trainer", "validate", "val_dataloader")
        own = self._dataloader(validate.get("val_dataloader"), key, "val", seed)
        self._validate_all(keys.get("validate_all"), seed)
        if self._problems.any_found:
            return None
        assert model and optimizer and schedules is not None and sparsity is not None
        assert precision and loop and checkpoint and logging and backend
        if "ckpt_path" in fit and fit["ckpt_path"] is None:
            checkpoint = checkpoint.model_copy(update={"autoload_last_checkpoint": False})
        paths = [
            resolve_path(written, self._path.parent) if (written := run.get("ckpt_path")) else None
            for run in (fit, validate)
        ]
        return Params(
            model=model,
            optimizer=optimizer,
            schedulers=schedules,
            precision=precision,
            sparsity=sparsity,
            loop=loop,
            checkpoint=checkpoint,
            logging=logging,
            seed=seed,
            model_dir=Path(os.path.abspath(init.get("model_dir") or Path("checkpoints", self._path.stem))),
            num_csx=backend.cluster_config.num_csx,
            train_dataloader=train,
            val_dataloader=val,
            eval_dataloader=own or val,
            checkpoint_path=paths[0],
            eval_checkpoint_path=paths[1] or paths[0],
            load_checkpoint_states=states,
            path=self._path,
            text=self._document.text,
            notes=self._problems.notes,
            warnings=self._warnings,
            sparsity_place=self._problems.where((*_INIT, "sparsity")),
        )

    def _keys(self, section: type[Section], raw: Any, key: Key) -> dict[str, Any]:
        """Check the keys of a mapping; return the values of the known ones, right or wrong."""
        self._problems.check(section, raw, key)
        known = section.field_keys()
        return {name: value for name, value in raw.items() if name in known} if isinstance(raw, dict) else {}

    def _typed_length(self, raw: Any) -> Any:
        """Return the loop section without the lengths of the file, if another was typed on the command line."""
        lengths = {name: (*_INIT, "loop", name) for name in ("num_steps", "max_steps", "num_epochs")}
        if not isinstance(raw, dict):
            return raw
        typed = {name for name, key in lengths.items() if name in raw and self._document.place(key).key is not None}
        return {name: value for name, value in raw.items() if not typed or name in typed or name not in lengths}

    def _model(self, raw: Any) -> FcMnistParams | DecoderParams | None:
        key: Key = (*_INIT, "model")
        if raw is None:
            return None
        if not isinstance(raw, dict):
            self._problems.add(key, "must be a mapping", raw)
            return None
        raw = self._one_name(raw, key)
        name = raw.get("name")
        names = ", ".join(MODELS)
        if name is None:
            self._problems.add((*key, "name"), "is missing", hint=f"the names are {names}")
        elif isinstance(name, str) and name in MODELS:
            return self._problems.check(MODELS[name], raw, key)
        elif isinstance(name, str) and name in OTHER_FAMILIES:
            hint = f"the names are {names}"
            rule = f"must be a model that is built here, and {name} is {OTHER_FAMILIES[name]}"
            self._problems.add((*key, "name"), rule, hint=hint)
        else:
            near = difflib.get_close_matches(str(name), MODELS, n=1)
            did_you_mean = f"did you mean {near[0]}?" if near else None
            self._problems.add((*key, "name"), f"must be one of {names}", name, did_you_mean)
        return None

    def _one_name(self, raw: dict[str, Any], key: Key) -> dict[str, Any]:
        """Return the model section with its name at `name`: before release 2.4 it stood at `model_name`."""
        if (older := raw.get("model_name")) is None:
            return {key: value for key, value in raw.items() if key != "model_name"}
        if raw.get("name") not in (None, older):
            self._problems.add((*key, "model_name"), "is another name of name: give one of the two")
        elif raw.get("name") is None:
            self._document.moved[(*key, "name")] = self._document.written((*key, "model_name"))
            raw = {**raw, "name": older}
        return {key: value for key, value in raw.items() if key != "model_name"}

    def _optimizer(self, raw: Any) -> SGD | Adam | None:
        if raw is None:
            return None
        entry = self._problems.only_entry(raw, (*_INIT, "optimizer"), OPTIMIZERS, OTHER_OPTIMIZERS)
        if entry is None:
            return None
        name, value, key = entry
        return self._problems.check(OPTIMIZERS[name], value, key)

    def _schedules(self, raw: Any) -> tuple[Schedule, ...] | None:
        key: Key = (*_INIT, "schedulers")
        if raw is None:
            return ()
        if not isinstance(raw, list):
            self._problems.add(key, "must be a list", raw)
            return None
        if len(raw) > 1:
            self._problems.add(key, f"must hold one entry, got {len(raw)}", hint="put them below one SequentialLR")
        schedules = [self._schedule(entry, (*key, index)) for index, entry in enumerate(raw)]
        return None if None in schedules else tuple(schedule for schedule in schedules if schedule)

    def _schedule(self, raw: Any, key: Key) -> Schedule | None:
        entry = self._problems.only_entry(raw, key, SCHEDULES, OTHER_SCHEDULES)
        if entry is None:
            return None
        name, value, key = entry
        if SCHEDULES[name] is SequentialLR and isinstance(value, dict) and isinstance(value.get("schedulers"), list):
            key_below: Key = (*key, "schedulers")
            parts = [self._schedule(part, (*key_below, index)) for index, part in enumerate(value["schedulers"])]
            if None in parts:
                return None
            value = {**value, "schedulers": parts}
        elif SCHEDULES[name] is ScalePerParamLR and isinstance(value, dict) and value.get("scheduler") is not None:
            if (inner := self._schedule(value["scheduler"], (*key, "scheduler"))) is None:
                return None
            value = {**value, "scheduler": inner}
        return self._problems.check(SCHEDULES[name], value, key)

    def _callbacks(self, raw: Any) -> str:
        """Check the callbacks; return the states that LoadCheckpointStates names."""
        states = "all"
        known = sorted([*CALLBACKS, *FLAG_CALLBACKS, *CALLBACK_SECTIONS])
        for name, value, key in self._entries(raw, (*_INIT, "callbacks"), known, OTHER_CALLBACKS):
            if name in CALLBACK_SECTIONS and value is not None:
                section = self._problems.check(CALLBACK_SECTIONS[name], value, key)
                if isinstance(section, LoadCheckpointStates):
                    states = section.load_checkpoint_states
                    continue
            elif value is not None:
                self._problems.check_keys(value, key, value if name in FLAG_CALLBACKS else CALLBACKS[name])
            self._note_arguments(value, key)
        return states

    def _loggers(self, raw: Any) -> None:
        for name, value, key in self._entries(raw, (*_INIT, "loggers"), sorted(LOGGERS), ()):
            if value is not None:
                self._problems.check_keys(value, key, LOGGERS[name])
            self._note_arguments(value, key)

    def _entries(
        self, raw: Any, key: Key, names: Sequence[str], others: Sequence[str]
    ) -> Iterator[tuple[str, Any, Key]]:
        """Yield name, value and key of each entry of a list of mappings with one name."""
        if raw is None:
            return
        if not isinstance(raw, list):
            self._problems.add(key, "must be a list", raw)
            return
        for index, item in enumerate(raw):
            if (entry := self._problems.only_entry(item, (*key, index), names, others)) is not None:
                yield entry

    def _note_arguments(self, value: Any, key: Key) -> None:
        """Note each argument, or the name if there are none."""
        for argument in value if isinstance(value, dict) and value else ():
            self._problems.note((*key, argument))
        if not value:
            self._problems.note(key)

    def _validate_all(self, raw: Any, seed: int) -> None:
        """Check what is evaluated later, and note that nothing is now."""
        key: Key = ("trainer", "validate_all")
        if raw is None:
            return
        keys = self._keys(ValidateAllKeys, raw, key)
        self._dataloaders(keys.get("val_dataloaders"), (*key, "val_dataloaders"), seed)
        paths = keys.get("ckpt_paths")
        written = paths if isinstance(paths, list) else [paths]
        if paths is not None and not all(isinstance(path, str) and path for path in written):
            self._problems.add((*key, "ckpt_paths"), "must be a path or a list of paths", paths)
        self._problems.note(key)

    def _dataloaders(self, raw: Any, key: Key, seed: int) -> DataloaderParams | None:
        """Check a dataloader or a list of them; return the first, which is the one that counts."""
        if not isinstance(raw, list):
            return self._dataloader(raw, key, "val", seed)
        if not raw:
            self._problems.add(key, "must hold at least one dataloader", raw)
        loaders = [self._dataloader(part, (*key, index), "val", seed) for index, part in enumerate(raw)]
        for index in range(1, len(raw)):
            self._problems.note((*key, index))
        return loaders[0] if loaders else None

    def _dataloader(self, raw: Any, key: Key, split: str, seed: int) -> DataloaderParams | None:
        if raw is None:
            return None
        if isinstance(raw, dict):
            defaults = {"split": split, "shuffle_seed": seed, **self._processor}
            raw = {**raw, **{name: value for name, value in defaults.items() if raw.get(name) is None}}
            size = raw.get("vocab_size")
            if type(size) is int and self._vocab_size is not None and size != self._vocab_size:
                rule = f"must be the vocab_size of the model ({self._vocab_size})"
                self._problems.add((*key, "vocab_size"), rule, size, "leave it out")
            if isinstance(transforms := raw.get("data_transforms"), list):
                below: Key = (*key, "data_transforms")
                checked = [self._sink_tokens(each, (*below, index)) for index, each in enumerate(transforms)]
                raw["data_transforms"] = [each for each in checked if each is not None]
        return self._problems.check(DataloaderParams, raw, key)

    def _sink_tokens(self, raw: Any, key: Key) -> SinkTokensParams | None:
        sinks = self._problems.check(SinkTokensParams, raw if raw is not None else [], key)
        if sinks is not None and self._vocab_size is not None and sinks.sink_token_id >= self._vocab_size:
            rule = f"must be less than the vocab_size of the model ({self._vocab_size})"
            self._problems.add((*key, "sink_token_id"), rule, sinks.sink_token_id)
        return sinks
