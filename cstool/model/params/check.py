"""From the plain data of one trainer to `Params`, section by section."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cstool.foundation.plain_text import has_controls
from cstool.foundation.words import did_you_mean
from cstool.foundation.yaml_lines.document import Document, Key, dotted
from cstool.foundation.yaml_lines.problems import Problems
from cstool.foundation.yaml_lines.section import MAX_STEPS, Section
from cstool.model.params import legacy
from cstool.model.params.check_callbacks import Callbacks, check_callbacks
from cstool.model.params.check_dataloaders import DataloaderCheck
from cstool.model.params.check_sparsity import check_sparsity
from cstool.model.params.micro_batch import MICRO_BATCH_CALLBACKS, MicroBatchChoice
from cstool.model.params.params import Params
from cstool.model.params.paths import PLAIN_PATH, ResolvedPath, resolve_path
from cstool.model.params.sections import hooks, trainer
from cstool.model.params.sections.dataloader import DataloaderParams
from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.model import MODELS, OTHER_FAMILIES, ModelParams
from cstool.model.params.sections.optimizers import OPTIMIZERS, OTHER_OPTIMIZERS, Optimizer
from cstool.model.params.sections.preference import POLICIES, DpoParams
from cstool.model.params.sections.schedules import OTHER_SCHEDULES, SCHEDULES, Schedule
from cstool.model.params.sections.sparsity import SparsityParams
from cstool.model.params.sections.tuning import TARGETS, Tuning, parse_adapters, parse_frozen

_S = TypeVar("_S", bound=Section)
_TRAINER: Key = ("trainer",)
_INIT: Key = ("trainer", "init")
_VALIDATE_ALL: Key = ("trainer", "validate_all")


@dataclass
class TrainerCheck:
    """Checks a document with one trainer, section by section.

    Args:
        document: of the trainer layout
        problems: of the document; further ones are added
        path: of the file
        warnings: for the params to carry
    """

    document: Document
    problems: Problems
    path: Path
    warnings: tuple[str, ...]

    def params(self) -> Params | None:
        """The params; None if there are problems.

        Raises:
            ParamsError: it is of a model that is not built here, about which nothing else is worth saying
        """
        self._micro_batch = MicroBatchChoice(self.document, self.problems)
        keys = self._keys(trainer.TrainerKeys, self.document.data["trainer"], _TRAINER)
        raw = keys.get("init")
        init = self._keys(trainer.InitKeys, raw, _INIT) if raw is not None else {}
        model = self._model(init.get("model"))
        optimizer, schedules = self._learning(init, is_given=raw is not None)
        precision = self._precision(init)
        sparsity = self._sparsity(init, model, optimizer)
        loop = self._section(trainer.LoopParams, {"loop": self._typed_length(init.get("loop"))}, "loop")
        checkpoint = self._section(trainer.CheckpointParams, init, "checkpoint")
        memoryx = self._section(trainer.MemoryxParams, init, "memoryx")
        logging = self._section(trainer.LoggingParams, init, "logging")
        backend = self._section(trainer.BackendParams, init, "backend")
        self._section(trainer.AutorestartParams, init, "autorestart")
        callbacks, tensorboard = self._callbacks(init.get("callbacks")), self._loggers(init.get("loggers"))
        tuning = self._tuning(init, callbacks)
        seed = value if type(value := init.get("seed")) is int and 0 <= value <= MAX_STEPS else 1
        loaders = DataloaderCheck(self.problems, self._micro_batch, model, seed)
        fit = self._keys(trainer.FitKeys, keys.get("fit"), ("trainer", "fit"))
        train = loaders.training(fit.get("train_dataloader"), ("trainer", "fit", "train_dataloader"))
        val = loaders.held_out(fit.get("val_dataloader"), ("trainer", "fit", "val_dataloader"))
        validate = self._keys(trainer.ValidateKeys, keys.get("validate"), ("trainer", "validate"))
        own = loaders.held_out(validate.get("val_dataloader"), ("trainer", "validate", "val_dataloader"))
        several, checkpoints = self._validate_all(keys.get("validate_all"), loaders)
        if loop is not None and checkpoint is not None:
            self.warnings += check_callbacks(callbacks, self.problems, loop, checkpoint, model, train, val, sparsity)
        micro_batch_size = self._micro_batch.size(None if train is None else train.batch_size)
        if self.problems.any_found:
            return None
        assert model and schedules is not None and sparsity is not None
        assert precision and loop and checkpoint and memoryx and logging and backend
        if fit.get("ckpt_path", "") is None:
            checkpoint = checkpoint.model_copy(update={"autoload_last_checkpoint": False})
        path, eval_path = (self._path(run.get("ckpt_path")) for run in (fit, validate))
        model_dir = Path(os.path.abspath(init.get("model_dir") or Path("checkpoints", self.path.stem)))
        return Params(
            model=model,
            optimizer=optimizer,
            schedulers=schedules,
            precision=precision,
            sparsity=sparsity,
            tuning=tuning,
            loop=loop,
            checkpoint=checkpoint,
            memoryx=memoryx,
            logging=logging,
            seed=seed,
            activation_checkpointing=init.get("activation_checkpointing") or "auto",
            model_dir=model_dir,
            events_dir=None if tensorboard is None else _absolute(tensorboard.summary_dir) or model_dir / "events",
            computes_norms=callbacks.computes_norms,
            num_csx=backend.cluster_config.num_csx,
            micro_batch_size=micro_batch_size,
            compile_dir=_absolute(backend.compile_dir),
            compile_only=backend.compile_only,
            validate_only=backend.validate_only,
            train_dataloader=train,
            val_dataloaders=val,
            eval_dataloaders=own or val,
            eval_all_dataloaders=several or own or val,
            checkpoint_path=path,
            eval_checkpoint_path=eval_path or path,
            eval_all_checkpoint_paths=checkpoints,
            load_checkpoint_states=callbacks.states,
            keep_checkpoints=callbacks.keep,
            saved_states=tuple(callbacks.saved),
            early_stopping=callbacks.stopping,
            path=self.path,
            text=self.document.text,
            notes=self.problems.notes,
            warnings=self.warnings,
            sparsity_place=self.problems.where((*_INIT, "sparsity")),
            optimizer_place=self.problems.where((*_INIT, "optimizer")),
            job_keys=_job_keys(init.get("backend")),
        )

    def _keys(self, section: type[Section], raw: Any, key: Key) -> dict[str, Any]:
        """Check the keys of a mapping; return the values of the known ones, right or wrong."""
        self.problems.check(section, raw, key)
        known = section.field_keys()
        return {name: value for name, value in raw.items() if name in known} if isinstance(raw, dict) else {}

    def _section(self, kind: type[_S], init: dict[str, Any], name: str) -> _S | None:
        """Check a section of `trainer.init`."""
        return self.problems.check(kind, init.get(name), (*_INIT, name))

    def _path(self, written: Any) -> ResolvedPath | None:
        return resolve_path(written, self.path.parent) if written else None

    def _learning(
        self, init: dict[str, Any], *, is_given: bool
    ) -> tuple[Optimizer | None, tuple[Schedule, ...] | None]:
        """Check the optimizer and the schedules, of which one has a learning rate."""
        optimizer, schedules = self._optimizer(init.get("optimizer")), self._schedules(init.get("schedulers"))
        if optimizer and schedules == () and optimizer.learning_rate is None:
            name = next(iter(init["optimizer"]))
            self.problems.add((*_INIT, "optimizer", name, "learning_rate"), "is missing", hint="or give schedulers")
        if is_given and init.get("optimizer") is None:
            _, name = self.problems.where((*_INIT, "optimizer"))
            self.problems.note_text(f"{name}: not given, so the model can be evaluated and generate, but not train")
        return optimizer, schedules

    def _sparsity(
        self, init: dict[str, Any], model: ModelParams | None, optimizer: Optimizer | None
    ) -> tuple[SparsityParams, ...] | None:
        """Check the groups of sparse weights, and that model and optimizer can have some."""
        sparsity = check_sparsity(self.problems, init.get("sparsity"), key := (*_INIT, "sparsity"))
        if optimizer and sparsity and optimizer.no_sparsity:
            rule = f"must not be given with {type(optimizer).__name__}"
            self.problems.add(key, rule, init["sparsity"], optimizer.no_sparsity)
        if isinstance(model, DpoParams) and sparsity:
            rule = "must be left out for dpo: a policy with zeros would be held against a reference without them"
            self.problems.add(key, rule)
        return sparsity

    def _tuning(self, init: dict[str, Any], callbacks: Callbacks) -> Tuning:
        """The part of the model that is trained; at most one key may say so."""
        keys: dict[str, Key] = {name: (*_INIT, name) for name in ("lora", "frozen") if init.get(name) is not None}
        if callbacks.lora is not None:
            keys = {"callback": callbacks.places[id(callbacks.lora)], **keys}
        if len(keys) > 1:
            first, second = [*keys.values()][:2]
            self.problems.add(second, f"cannot stand beside {dotted(first)}", hint="keep one of the two")
        if self.problems.any_found or not keys:
            return Tuning()
        name, key = next(iter(keys.items()))
        place, written = self.problems.where(key)
        where = f"{place}: {written}"
        if callbacks.lora is not None:
            return Tuning(adapters=tuple(each.adapters for each in callbacks.lora.lora_params), where=where)
        if name == "lora":
            return Tuning(adapters=(parse_adapters(init[name], layers=TARGETS),), where=where)
        return Tuning(frozen=parse_frozen(init[name]), where=where)

    def _precision(self, init: dict[str, Any]) -> trainer.PrecisionParams | None:
        """Check the precision, and note which of its keys are acted on elsewhere."""
        found = self._section(trainer.PrecisionParams, init, "precision")
        self._note_precision(init.get("precision"))
        return found

    def _note_precision(self, raw: Any) -> None:
        key: Key = (*_INIT, "precision")
        written = raw if isinstance(raw, dict) else {}
        if written.get("enabled") is not None:
            _, name = self.problems.where((*key, "enabled"))
            self.problems.note_text(f"{name}: acted on {trainer.FOR_THE_COMPILER}")
        kind = written.get("fp16_type")
        if written.get("loss_scaling_factor") not in (None, 1.0):
            if written.get("enabled") is False:
                self.problems.note((*key, "loss_scaling_factor"), "enabled is false")
            elif kind == "bfloat16":
                self.problems.note((*key, "loss_scaling_factor"), "fp16_type is bfloat16")
        if isinstance(kind, str) and kind != "bfloat16" and written.get("host") is None:
            _, name = self.problems.where((*key, "fp16_type"))
            self.problems.note_text(f"{name}: {kind} is taken as bfloat16: {trainer.FOR_THE_HOST}")

    def _typed_length(self, raw: Any) -> Any:
        """Return the loop section without the lengths of the file, if another was typed on the command line."""
        lengths = {name: (*_INIT, "loop", name) for name in ("num_steps", "max_steps", "num_epochs")}
        if not isinstance(raw, dict):
            return raw
        typed = {name for name, key in lengths.items() if name in raw and self.document.place(key).key is not None}
        return {name: value for name, value in raw.items() if not typed or name in typed or name not in lengths}

    def _model(self, raw: Any) -> ModelParams | None:
        key: Key = (*_INIT, "model")
        if raw is None or (raw := self._one_name(raw, key)) is None:
            return None
        name = raw.get("name")
        if name is None and (found := legacy.find_model_name(raw, self.path)) is not None:
            name = found[0]
            raw = {**raw, "name": name}
            self.problems.note_text(f"{dotted((*key, 'name'))}: not given, taken to be {name} from {found[1]}")
        if name is None:
            self.problems.add((*key, "name"), "is missing", hint=f"the names are {', '.join(MODELS)}")
        elif name == "dpo":
            return self._preference(raw, key)
        elif isinstance(name, str) and name in MODELS:
            return self._counting_loss_weight(self.problems.check(MODELS[name], raw, key), key)
        elif isinstance(name, str) and name in OTHER_FAMILIES:
            # Nothing else in such a file says more.
            alone = Problems(self.document, self.path.parent)
            rule = f"must be that of a model that can be built, and {name} is {OTHER_FAMILIES[name]}"
            alone.add((*key, "name"), rule)
            alone.raise_found()
        else:
            hint = did_you_mean(str(name), MODELS)
            self.problems.add((*key, "name"), f"must be one of {', '.join(MODELS)}", name, hint)
        return None

    def _preference(self, raw: dict[str, Any], key: Key) -> DpoParams | None:
        """Check a section with a model inside it; the model has a section of its own by its name."""
        policy = self._policy(raw.get("policy_model"), (*key, "policy_model"))
        # Where that is wrong, something right stands in, so that all other mistakes are told, too.
        inside = MODELS["gpt2"].model_validate({"name": "gpt2"}) if policy is None else policy
        found = self.problems.check(DpoParams, {**raw, "policy_model": inside}, key)
        return None if policy is None else found

    def _policy(self, raw: Any, key: Key) -> ModelParams | None:
        if raw is None:
            hint = "the keys of the model that is trained stand below it; before release 2.4 they stood beside dpo"
            self.problems.add(key, "is missing", hint=hint)
            return None
        if (raw := self._one_name(raw, key)) is None:
            return None
        names, name = ", ".join(POLICIES), raw.get("name")
        if name is None:
            self.problems.add((*key, "name"), "is missing", hint=f"the names are {names}")
            return None
        if name not in POLICIES:
            self.problems.add((*key, "name"), f"must be one of {names}", name, did_you_mean(str(name), POLICIES))
            return None
        return self._counting_loss_weight(self.problems.check(MODELS[name], raw, key), key)

    def _counting_loss_weight(self, model: ModelParams | None, key: Key) -> ModelParams | None:
        """Return the model with the loss_weight that counts: a loss per token has none, as with the vendor.

        Notes the keys of the model that then have no effect, sink tokens that are not attended to among them.
        """
        for name, switch in () if model is None else model.inert_keys.items():
            self.problems.note((*key, name), f"as at the vendor; {switch}: true has one")
        if isinstance(model, DecoderParams) and model.loss_scaling == "num_tokens" and model.loss_weight != 1.0:
            self.problems.note((*key, "loss_weight"))
            return model.model_copy(update={"loss_weight": 1.0})
        return model

    def _one_name(self, raw: Any, key: Key) -> dict[str, Any] | None:
        """Return a model section with its name at `name`: before release 2.4 it stood at `model_name`.

        None, and a problem, where it is no mapping.
        """
        if not isinstance(raw, dict):
            self.problems.add(key, "must be a mapping", raw)
            return None
        name, older = raw.get("name"), raw.get("model_name")
        if older is not None and name is None:
            self.document.moved[(*key, "name")] = self.document.written((*key, "model_name"))
            raw = {**raw, "name": older}
        elif older not in (None, name):
            self.problems.add((*key, "model_name"), "is another name of name: give one of the two")
        return {key: value for key, value in raw.items() if key != "model_name"}

    def _optimizer(self, raw: Any) -> Optimizer | None:
        if raw is None:
            return None
        entry = self.problems.only_entry(raw, (*_INIT, "optimizer"), OPTIMIZERS, OTHER_OPTIMIZERS)
        if entry is None:
            return None
        name, value, key = entry
        return self.problems.check(OPTIMIZERS[name], value, key)

    def _schedules(self, raw: Any) -> tuple[Schedule, ...] | None:
        key: Key = (*_INIT, "schedulers")
        if raw is None:
            return ()
        if not isinstance(raw, list):
            self.problems.add(key, "must be a list", raw)
            return None
        if len(raw) > 1:
            self.problems.add(key, f"must hold one entry, got {len(raw)}", hint="put them below one SequentialLR")
        schedules = [self._schedule(entry, (*key, index)) for index, entry in enumerate(raw)]
        return None if None in schedules else tuple(schedule for schedule in schedules if schedule)

    def _schedule(self, raw: Any, key: Key) -> Schedule | None:
        entry = self.problems.only_entry(raw, key, SCHEDULES, OTHER_SCHEDULES)
        if entry is None:
            return None
        name, value, key = entry
        parts: dict[str, Any] = {}
        fields = SCHEDULES[name].model_fields if isinstance(value, dict) else ()
        if "schedulers" in fields and isinstance(inner := value.get("schedulers"), list):
            below: Key = (*key, "schedulers")
            parts["schedulers"] = [self._schedule(part, (*below, index)) for index, part in enumerate(inner)]
        elif "scheduler" in fields and (inner := value.get("scheduler")) is not None:
            parts["scheduler"] = self._schedule(inner, (*key, "scheduler"))
        if None in parts.values() or None in parts.get("schedulers", ()):
            return None
        return self.problems.check(SCHEDULES[name], {**value, **parts} if parts else value, key)

    def _callbacks(self, raw: Any) -> Callbacks:
        """Check the callbacks; return the ones with an effect."""
        found = Callbacks()
        known = sorted([*hooks.CALLBACKS, *hooks.FLAG_CALLBACKS, *hooks.CALLBACK_SECTIONS])
        for name, value, key in self._entries(raw, (*_INIT, "callbacks"), known, hooks.OTHER_CALLBACKS):
            if name in hooks.CALLBACK_SECTIONS:
                if value is None:
                    # With the vendor it takes away what is there by default; of these, nothing is.
                    self.problems.note(key)
                elif (section := self.problems.check(hooks.CALLBACK_SECTIONS[name], value, key)) is not None:
                    found.take(section, key)
                continue
            if name == hooks.COMPUTE_NORM:
                found.computes_norms = value is not None
                self.problems.check_keys(value or {}, key, ())
                continue
            if value is not None:
                self.problems.check_keys(value, key, value if name in hooks.FLAG_CALLBACKS else hooks.CALLBACKS[name])
                if name in MICRO_BATCH_CALLBACKS and isinstance(value, dict) and value:
                    value = self._micro_batch.take_from_flags(name, value, key)
                    if not value:
                        continue
            self._note_arguments(value, key, hooks.CALLBACK_LOSSES.get(name, ""))
        return found

    def _validate_all(
        self, raw: Any, loaders: DataloaderCheck
    ) -> tuple[tuple[DataloaderParams, ...], tuple[ResolvedPath, ...]]:
        """Check the data sets and the checkpoints of `--mode eval_all`."""
        keys = self._keys(trainer.ValidateAllKeys, raw, _VALIDATE_ALL)
        several = loaders.held_out(keys.get("val_dataloaders"), (*_VALIDATE_ALL, "val_dataloaders"))
        return several, self._checkpoint_paths(keys.get("ckpt_paths"))

    def _checkpoint_paths(self, raw: Any) -> tuple[ResolvedPath, ...]:
        key: Key = (*_VALIDATE_ALL, "ckpt_paths")
        written = [] if raw is None else raw if isinstance(raw, list) else [raw]
        if not all(isinstance(path, str) and path for path in written):
            self.problems.add(key, "must be a path or a list of paths", raw)
            return ()
        if raw == []:
            hint = "without the key, all of model_dir are evaluated"
            self.problems.add(key, "must hold at least one path", raw, hint)
        for index, path in enumerate(written):
            if has_controls(path):
                self.problems.add((*key, index), PLAIN_PATH, path)
        paths = [resolve_path(path, self.path.parent) for path in written]
        for index, path in enumerate(paths):
            if path in paths[:index]:
                self.problems.add((*key, index), f"is the same file as ckpt_paths.{paths.index(path)}", written[index])
        return tuple(paths)

    def _loggers(self, raw: Any) -> hooks.TensorBoardLogger | None:
        """Check the loggers; return the logger of events, which is there unless it is null."""
        found: hooks.TensorBoardLogger | None = hooks.TensorBoardLogger()
        known = sorted([*hooks.LOGGERS, hooks.TensorBoardLogger.__name__])
        for name, value, key in self._entries(raw, (*_INIT, "loggers"), known, ()):
            if name == hooks.TensorBoardLogger.__name__:
                found = None if value is None else self.problems.check(hooks.TensorBoardLogger, value, key)
                continue
            if value is not None:
                self.problems.check_keys(value, key, hooks.LOGGERS[name])
            self._note_arguments(value, key)
        return found

    def _entries(
        self, raw: Any, key: Key, names: Sequence[str], others: Sequence[str]
    ) -> Iterator[tuple[str, Any, Key]]:
        """Yield name, value and key of each entry of a list of mappings with one name."""
        if raw is None:
            return
        if not isinstance(raw, list):
            self.problems.add(key, "must be a list", raw)
            return
        for index, item in enumerate(raw):
            if (entry := self.problems.only_entry(item, (*key, index), names, others)) is not None:
                yield entry

    def _note_arguments(self, value: Any, key: Key, why: str = "") -> None:
        """Note each argument, or the name if there are none."""
        for argument in value if isinstance(value, dict) and value else ():
            self.problems.note((*key, argument), why)
        if not value:
            self.problems.note(key, why)


def _absolute(written: str | None) -> Path | None:
    return None if written is None else Path(os.path.abspath(written))


def _job_keys(backend: Any) -> dict[str, Any]:
    """The settings of a job in a valid file."""
    cluster = {} if backend is None else backend.get("cluster_config") or {}
    return {key: value for key in trainer.JOB_KEYS if (value := cluster.get(key)) is not None}
