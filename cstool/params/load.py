"""From a params file and the command line to `Params`, or to all that is wrong with them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cstool.errors import ParamsError
from cstool.params.dataloader import DataloaderParams
from cstool.params.document import Document, Key, read_document
from cstool.params.model import MODELS, OTHER_FAMILIES, DecoderParams, FcMnistParams
from cstool.params.optimizers import OPTIMIZERS, SGD, Adam
from cstool.params.overrides import apply_overrides
from cstool.params.params import Params
from cstool.params.paths import resolve_path
from cstool.params.problems import Problems
from cstool.params.schedules import SCHEDULES, Schedule, SequentialLR
from cstool.params.section import MAX_STEPS, Section
from cstool.params.trainer import (
    CALLBACKS,
    OTHER_CALLBACKS,
    BackendParams,
    CheckpointParams,
    FitKeys,
    InitKeys,
    LoggingParams,
    LoopParams,
    PrecisionParams,
    TrainerKeys,
    ValidateKeys,
)

_OLDER_LAYOUT = ("train_input", "eval_input", "model", "optimizer", "runconfig")
_INIT: Key = ("trainer", "init")


def load_params(
    path: str | Path,
    *,
    overrides: Sequence[str] = (),
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> Params:
    """Read and check a params file.

    Args:
        path: of a YAML file in the trainer layout
        overrides: what stood behind `--set`, for example `trainer.init.loop.max_steps=20`
        flags: what other flags were typed: dotted key -> (flag, value), for example
            `{"trainer.init.backend.cluster_config.num_csx": ("--num_csx", 3)}`; they win over `overrides`

    Raises:
        ParamsError: with all problems of the file at once.
    """
    path = Path(path)
    document = read_document(path)
    _require_trainer_layout(document)
    apply_overrides(document, overrides, flags or {})
    problems = Problems(document, path.parent)
    _refuse_other_keys(document, problems)
    params = _Loader(document, problems, path).load()
    problems.raise_found()
    assert params is not None
    return params


def _require_trainer_layout(document: Document) -> None:
    """Leave one trainer, as a mapping, at `trainer`; raise what stands in the way of that."""
    problems = Problems(document, Path())
    data = document.data
    if not isinstance(data, dict):
        problems.add((), "must hold a mapping", data)
        problems.raise_found()
    if "trainer" not in data:
        if old := [key for key in _OLDER_LAYOUT if key in data]:
            where = document.place((old[0],)).label
            message = f"{where}: this is the older layout ({', '.join(old)}), which is not read yet"
            raise ParamsError([(message, "write it in the trainer layout: trainer: {init: ..., fit: ...}")])
        near = difflib.get_close_matches("trainer", data, n=1)
        if near:
            problems.add((near[0],), "is not a known key", hint="did you mean trainer?")
        else:
            problems.add(("trainer",), "is missing")
        problems.raise_found()
    _refuse_other_keys(document, problems)
    trainer = data["trainer"]
    if isinstance(trainer, list):
        if len(trainer) != 1:
            rule = f"must be one trainer, got a list of {len(trainer)}"
            problems.add(("trainer",), rule, hint="give each phase a file of its own" if trainer else None)
        else:
            prefix: Key = ("trainer", 0)
            entry = trainer[0]
            if isinstance(entry, dict) and list(entry) == ["trainer"]:
                entry, prefix = entry["trainer"], (*prefix, "trainer")
            data["trainer"] = entry
            for key in [key for key in document.places if key[: len(prefix)] == prefix]:
                document.places["trainer", *key[len(prefix) :]] = document.places.pop(key)
    problems.raise_found()


def _refuse_other_keys(document: Document, problems: Problems) -> None:
    for key in document.data:
        if key != "trainer":
            near = difflib.get_close_matches(key, ["trainer"], n=1)
            hint = "did you mean trainer?" if near else "all keys stand below trainer"
            problems.add((key,), "is not a known key", hint=hint)


class _Loader:
    """Checks the sections of a document one by one."""

    def __init__(self, document: Document, problems: Problems, path: Path) -> None:
        self._document = document
        self._problems = problems
        self._path = path

    def load(self) -> Params | None:
        """Return the params; None, or params that must not be used, where there are problems."""
        check = self._problems.check
        keys = self._keys(TrainerKeys, self._document.data["trainer"], ("trainer",))
        raw = keys.get("init")
        init = self._keys(InitKeys, raw, _INIT) if raw is not None else {}
        model = self._model(init.get("model"))
        optimizer = self._optimizer(init.get("optimizer"))
        schedules = self._schedules(init.get("schedulers"))
        if optimizer and schedules == () and optimizer.learning_rate is None:
            name = type(optimizer).__name__
            self._problems.add((*_INIT, "optimizer", name, "learning_rate"), "is missing", hint="or give schedulers")
        precision = check(PrecisionParams, init.get("precision"), (*_INIT, "precision"))
        loop = check(LoopParams, self._typed_length(init.get("loop")), (*_INIT, "loop"))
        checkpoint = check(CheckpointParams, init.get("checkpoint"), (*_INIT, "checkpoint"))
        logging = check(LoggingParams, init.get("logging"), (*_INIT, "logging"))
        backend = check(BackendParams, init.get("backend"), (*_INIT, "backend"))
        self._callbacks(init.get("callbacks"))
        seed = value if type(value := init.get("seed")) is int and 0 <= value <= MAX_STEPS else 1
        fit = self._keys(FitKeys, keys.get("fit"), ("trainer", "fit"))
        train = self._dataloader(fit.get("train_dataloader"), ("trainer", "fit", "train_dataloader"), "train", seed)
        val = self._dataloader(fit.get("val_dataloader"), ("trainer", "fit", "val_dataloader"), "val", seed)
        validate = self._keys(ValidateKeys, keys.get("validate"), ("trainer", "validate"))
        key = ("trainer", "validate", "val_dataloader")
        own = self._dataloader(validate.get("val_dataloader"), key, "val", seed)
        self._problems.raise_found()
        assert model and optimizer and schedules is not None
        assert precision and loop and checkpoint and logging and backend
        written = fit.get("ckpt_path")
        if "ckpt_path" in fit and written is None:
            checkpoint = checkpoint.model_copy(update={"autoload_last_checkpoint": False})
        return Params(
            model=model,
            optimizer=optimizer,
            schedulers=schedules,
            precision=precision,
            loop=loop,
            checkpoint=checkpoint,
            logging=logging,
            seed=seed,
            model_dir=Path(os.path.abspath(init.get("model_dir") or Path("checkpoints", self._path.stem))),
            num_csx=backend.cluster_config.num_csx,
            train_dataloader=train,
            val_dataloader=val,
            eval_dataloader=own or val,
            checkpoint_path=resolve_path(written, self._path.parent) if written else None,
            path=self._path,
            text=self._document.text,
            notes=self._problems.notes,
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
        name = raw.get("name")
        names = ", ".join(MODELS)
        if name is None:
            self._problems.add((*key, "name"), "is missing", hint=f"the names are {names}")
        elif isinstance(name, str) and name in MODELS:
            return self._problems.check(MODELS[name], raw, key)
        elif isinstance(name, str) and name in OTHER_FAMILIES:
            self._problems.add_unsupported((*key, "name"), name, tuple(MODELS))
        else:
            near = difflib.get_close_matches(str(name), MODELS, n=1)
            hint = f"did you mean {near[0]}?" if near else None
            self._problems.add((*key, "name"), f"must be one of {names}", name, hint)
        return None

    def _optimizer(self, raw: Any) -> SGD | Adam | None:
        if raw is None or (entry := self._problems.only_entry(raw, (*_INIT, "optimizer"), OPTIMIZERS)) is None:
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
        entry = self._problems.only_entry(raw, key, SCHEDULES)
        if entry is None:
            return None
        name, value, key = entry
        if SCHEDULES[name] is SequentialLR and isinstance(value, dict) and isinstance(value.get("schedulers"), list):
            key_below: Key = (*key, "schedulers")
            parts = [self._schedule(part, (*key_below, index)) for index, part in enumerate(value["schedulers"])]
            if None in parts:
                return None
            value = {**value, "schedulers": parts}
        return self._problems.check(SCHEDULES[name], value, key)

    def _callbacks(self, raw: Any) -> None:
        key: Key = (*_INIT, "callbacks")
        if raw is None:
            return
        if not isinstance(raw, list):
            self._problems.add(key, "must be a list", raw)
            return
        known = dict.fromkeys(sorted(CALLBACKS | OTHER_CALLBACKS))
        for index, item in enumerate(raw):
            if (entry := self._problems.only_entry(item, (*key, index), known)) is not None:
                name, value, below = entry
                if name in OTHER_CALLBACKS:
                    self._problems.add_unsupported(below, value if value is not None else {})
                else:
                    self._problems.note(below)

    def _dataloader(self, raw: Any, key: Key, split: str, seed: int) -> DataloaderParams | None:
        if raw is None:
            return None
        if isinstance(raw, dict):
            defaults = {"split": split, "shuffle_seed": seed}
            raw = {**raw, **{name: value for name, value in defaults.items() if raw.get(name) is None}}
        return self._problems.check(DataloaderParams, raw, key)
