"""Every key that a params file may hold, and its fate: read off the sections of the schema."""

import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from cstool.foundation.yaml_lines.problems import show
from cstool.foundation.yaml_lines.section import MAX_STEPS, Section
from cstool.model.params import legacy_keys
from cstool.model.params.micro_batch import MICRO_BATCH_CALLBACKS, MICRO_BATCH_FLAG, MICRO_BATCH_VALUES
from cstool.model.params.sections import hooks, trainer
from cstool.model.params.sections.encoder import BertSummarizationParams, BertTokenClassifierParams
from cstool.model.params.sections.encoder_decoder_loaders import Hdf5PairsParams, TextSpansParams, TranslationsParams
from cstool.model.params.sections.encoder_loaders import (
    MaskedTextParams,
    SentencesParams,
    SummariesParams,
    TokenClassesParams,
)
from cstool.model.params.sections.initializers import InitializerParams
from cstool.model.params.sections.loaders import LOADER_SECTIONS
from cstool.model.params.sections.model import MODELS
from cstool.model.params.sections.optimizers import OPTIMIZERS, OTHER_OPTIMIZERS
from cstool.model.params.sections.schedules import OTHER_SCHEDULES, SCHEDULES, Schedule
from cstool.model.params.sections.sparsity import SHARES, SparsityParams
from cstool.model.params.sections.vision_loaders import TRANSFORMS, DigitsParams, PhotosParams


@dataclass(frozen=True)
class KeyFate:
    """A key and its fate.

    Args:
        name: as written in the file
        fate: `acted on`, `noted` (accepted, no effect) or `refused`
        values: valid values; of a key that is refused, the values that are accepted all the same
        default: value of a missing key, where it is acted on
    """

    name: str
    fate: str
    values: str
    default: str = ""


@dataclass(frozen=True)
class KeyTable:
    """The keys of a section, and all places where such a section may stand."""

    places: tuple[str, ...]
    keys: tuple[KeyFate, ...]


_INIT = "trainer.init"
_CALLBACK = "trainer.init.callbacks.*"
_ON_THIS_HOST = "whether training computes activations again, layer by layer; auto: where they do not fit the memory"
_SHARE = "a number, a list of numbers or a mapping"
_A_FILE = "auto: a file where it would take half of the free memory"
_STATES = "all, or some of model, optimizer, dataloader"
IN_WORDS: Mapping[tuple[type[Section], str], tuple[str, str]] = {
    (trainer.InitKeys, "model_dir"): ("text", "checkpoints/ and the name of the file"),
    (trainer.InitKeys, "activation_checkpointing"): (f"auto, always, never ({_ON_THIS_HOST})", "auto"),
    (trainer.InitKeys, "frozen"): ("patterns of names of weights, or first:N layers", ""),
    (trainer.InitKeys, "lora"): ("rank=R,targets=L,... and perhaps alpha=A, dropout=P, rslora=true", ""),
    (hooks.LoraParams, "target_modules"): ("a list of classes of modules, or null for all", "null"),
    (hooks.LoraParams, "layers"): ("a list of layers, in the place of target_modules", ""),
    (hooks.Lora, "lora_params"): ("a mapping or a list of mappings", "must be given"),
    (trainer.MemoryxParams, "store"): (f"auto, ram, file ({_A_FILE})", "auto"),
    (trainer.MemoryxParams, "memory"): ("a size from 1MiB, such as 512MiB", "2GiB"),
    (DigitsParams, "data_processor"): ("", "must be given, but for fc_mnist"),
    **{
        (section, name): words
        for section in LOADER_SECTIONS
        for name, words in {
            "data_dir": ("a folder or a list of folders", "must be given"),
            "src_data_dir": ("a folder or a list of folders", "must be given"),
            "shuffle_seed": ("a whole number from 0", "that of trainer.init"),
            "split": ("train, val", "by where it stands"),
            "disable_nsp": ("", "that of the model"),
            "include_padding_in_loss": ("", "that of the model"),
            "is_training": ("", "by split"),
        }.items()
    },
    **{
        (section, "vocab_file"): ("a path", "must be given")
        for section in (MaskedTextParams, SentencesParams, TokenClassesParams)
    },
    **{
        (section, name): (kind, default)
        for section in (TextSpansParams, TranslationsParams)
        for name, kind, default in (
            ("src_vocab_file", "a path", "must be given"),
            ("input_pad_id", "", "that of pad_token"),
            ("labels_pad_id", "", "that of pad_token"),
        )
    },
    (Hdf5PairsParams, "features_list"): ("a list of names", "those of data_params.json"),
    (SummariesParams, "vocab_file"): ("a path", "that of the model"),
    (BertSummarizationParams, "vocab_file"): ("a path", ""),
    (TokenClassesParams, "label_vocab_file"): ("a path", "that of the model"),
    (BertTokenClassifierParams, "label_vocab_file"): ("a path", ""),
    (PhotosParams, "split"): ("train, val, test", "by where it stands"),
    (PhotosParams, "image_size"): ("a height and a width", "[224, 224]"),
    (PhotosParams, "transforms"): ("a list", "must be given"),
    **{
        (section, "size"): ("a height and a width, or one number", "must be given")
        for section in dict.fromkeys(TRANSFORMS.values())
        if "size" in section.model_fields
    },
    (trainer.PrecisionParams, "enabled"): (f"true, false ({trainer.FOR_THE_COMPILER})", "true"),
    (trainer.PrecisionParams, "fp16_type"): (f"float16, bfloat16, cbfloat16 ({trainer.FOR_THE_HOST})", ""),
    (trainer.PrecisionParams, "host"): (
        "float32, bfloat16 (operands of products on this host)",
        "as enabled and fp16_type say",
    ),
    (trainer.PrecisionParams, "products"): (
        "a name that `cstool system show host` has (who multiplies matrices on this host)",
        "that of the checkpoint, else the faster one, as measured",
    ),
    (trainer.PrecisionParams, "loss_scaling_factor"): (f"{trainer.DYNAMIC}, or a number above 0", "1.0"),
    (trainer.PrecisionParams, "steps_per_increase"): ("", "2000"),
    (trainer.PrecisionParams, "min_loss_scale"): ("", "2^-14"),
    (trainer.PrecisionParams, "max_loss_scale"): ("", "2^31 for cbfloat16, else 2^15"),
    (trainer.PrecisionParams, "initial_loss_scale"): ("", "max_loss_scale"),
    (trainer.PrecisionParams, "log_loss_scale"): ("", f"true for {trainer.DYNAMIC}"),
    (hooks.TensorBoardLogger, "summary_dir"): ("text (the logger null: no events)", "events/ in model_dir"),
    (trainer.BackendParams, "compile_dir"): ("text", "cached_compile/ in model_dir"),
    (SparsityParams, "sparsity"): (_SHARE, "must be given, but for init_method from_checkpoint"),
    (SparsityParams, "drop_fraction"): (_SHARE, "0.3 for set and rigl"),
    (SparsityParams, "samples"): ("a whole number from 1", "1 for dropconnect"),
    (SparsityParams, "mask_checkpoint"): ("a path", "must be given for init_method from_checkpoint"),
    (SparsityParams, "rewind_checkpoint"): ("a path", ""),
    (hooks.LoadCheckpointStates, "load_checkpoint_states"): (_STATES, "all"),
    (hooks.SaveCheckpointState, "checkpoint_states"): (_STATES, "model"),
    (hooks.EarlyStopping, "mode"): ("", "max for accuracies and scores, else min"),
    (hooks.EarlyStopping, "monitor"): ("a metric of the evaluations, as the log has it", "eval/loss"),
    (trainer.FitKeys, "val_dataloader"): ("a dataloader or a list of them", ""),
    (trainer.ValidateKeys, "val_dataloader"): ("a dataloader or a list of them", "those of trainer.fit"),
    (trainer.ValidateAllKeys, "val_dataloaders"): ("a dataloader or a list of them", "those of trainer.validate"),
    (trainer.ValidateAllKeys, "ckpt_paths"): ("a path or a list of paths", "all checkpoints in model_dir"),
    (SparsityParams, "param_filter"): ("a pattern of names or a list of them", "all but embeddings and output layer"),
}
"""values (empty: as the section says) and defaults that loading has, where the section alone does not say it"""


OF_A_JOB: Mapping[tuple[type[Section], str], str] = {
    (trainer.ClusterParams, "job_labels"): "any; of `cstool job submit` a list of KEY=VALUE",
    (trainer.ClusterParams, "job_priority"): "any; of `cstool job submit` p1, p2, p3",
    (trainer.ClusterParams, "job_time_sec"): "any; of `cstool job submit` a number of seconds",
    (trainer.ClusterParams, "num_workers_per_csx"): "any; of `cstool estimate --software` a whole number, 0 to choose",
}
"""keys without effect on a run that count for its job, or its estimate"""


BY_PLACE: set[tuple[type[Section], str]] = {(section, "micro_batch_size") for section in LOADER_SECTIONS}
"""keys without effect at some of the places of a section, and with one at others"""


def key_tables() -> tuple[KeyTable, ...]:
    """Return the keys of every section of the trainer layout, about in the order of a file."""
    places: dict[tuple[KeyFate, ...], list[str]] = {}
    for group in _groups():
        pending = list(group)
        while pending:
            place, section = pending.pop(0)
            keys = tuple(_fates(section) if isinstance(section, type) else section)
            if keys:
                found = places.setdefault(keys, [])
                found += [place] * (place not in found)
            if isinstance(section, type):
                pending += [(f"{place.partition(' ')[0]}.{name}", inner) for name, inner in _inner_sections(section)]
    return tuple(KeyTable(tuple(found), keys) for keys, found in places.items())


_SectionOrKeys = type[Section] | list[KeyFate]


def legacy_tables() -> tuple[KeyTable, ...]:
    """Return the keys of the older layout, each with the fate of the key that it becomes in the trainer layout."""
    fates = {
        f"{place.partition(' ')[0]}.{key.name}": key.fate
        for table in key_tables()
        for place in table.places
        for key in table.keys
    }

    def moved(below: str, keys: Mapping[str, str | tuple[str, ...]]) -> list[KeyFate]:
        places = {old: ".".join((below, new) if isinstance(new, str) else (below, *new)) for old, new in keys.items()}
        return [KeyFate(old, _fate_at(place, fates), f"as {place}") for old, place in places.items()]

    def noted(names: Iterable[str]) -> list[KeyFate]:
        return [KeyFate(name, "noted", "any") for name in sorted(names)]

    tables = {
        "sections": [
            *moved("trainer.fit", {"train_input": "train_dataloader", "eval_input": "val_dataloader"}),
            *moved(_INIT, {name: name for name in ("model", "optimizer", "sparsity")}),
            KeyFate("runconfig", "see below", ""),
            *noted(legacy_keys.OTHER_SECTIONS),
        ],
        "train_input": moved(_CALLBACK, {"micro_batch_size": ("ScopedTrainFlags", MICRO_BATCH_FLAG)}),
        "eval_input": moved(_CALLBACK, {"micro_batch_size": ("ScopedValidateFlags", MICRO_BATCH_FLAG)}),
        "model": [
            *moved(f"{_INIT}.precision", legacy_keys.MODEL_PRECISION),
            *moved(_CALLBACK, {name: entry for name, entry, _ in legacy_keys.MODEL_CALLBACKS}),
            *moved(f"{_INIT}.model", {name: new for name, (_, new, _) in legacy_keys.MODEL_SWITCHES.items()}),
            *noted(legacy_keys.MODEL_NO_EFFECT),
        ],
        "optimizer": [
            KeyFate("optimizer_type", "acted on", _join(tuple(OPTIMIZERS))),
            KeyFate("learning_rate", "acted on", "a number, a schedule or a list of schedules"),
            *moved(f"{_INIT}.optimizer.Adam", {**legacy_keys.RENAMED, **dict.fromkeys(("beta1", "beta2"), "betas")}),
            *moved(_INIT, legacy_keys.OPTIMIZER),
        ],
        "optimizer.learning_rate": [
            KeyFate("scheduler", "acted on", f"{_join(tuple(SCHEDULES))}, with or without LR"),
            KeyFate("main_scheduler", "acted on", "sequential, chained", "sequential"),
            *moved(f"{_INIT}.schedulers.*.LinearLR", legacy_keys.RENAMED_OF_SCHEDULE),
        ],
        "runconfig": [
            *moved(_INIT, legacy_keys.RUNCONFIG),
            *moved(_CALLBACK, {**legacy_keys.CALLBACKS, **legacy_keys.SWITCHES}),
            *moved(f"{_INIT}.loggers.*", legacy_keys.LOGGERS),
            *moved("trainer.fit", {"checkpoint_path": "ckpt_path"}),
            *moved(_CALLBACK, {"op_profiler_config": "OpProfiler"}),
            *noted(legacy_keys.NO_EFFECT),
        ],
    }
    return tuple(KeyTable((place,), tuple(keys)) for place, keys in tables.items())


def _fate_at(place: str, fates: Mapping[str, str]) -> str:
    """Return the fate of a key; of a callback without arguments given, the fate of its arguments."""
    if place in fates:
        return fates[place]
    return next(
        fate
        for known, fate in fates.items()
        if known.startswith(f"{place}.") or (known.endswith(".*") and place.startswith(known[:-1]))
    )


def _groups() -> Iterator[list[tuple[str, _SectionOrKeys]]]:
    """Yield the sections that the loader looks up by name, with their places, one list for each kind."""
    init = _INIT
    yield [("trainer", trainer.TrainerKeys), (init, trainer.InitKeys)]
    names = {model: ", ".join(name for name, found in MODELS.items() if found is model) for model in MODELS.values()}
    yield [(f"{init}.model (name: {written})", model) for model, written in names.items()]
    yield [(f"{init}.optimizer", _entries(OPTIMIZERS, OTHER_OPTIMIZERS))]
    yield [(f"{init}.optimizer.{name}", optimizer) for name, optimizer in OPTIMIZERS.items()]
    yield [(f"{init}.schedulers.*", _entries(SCHEDULES, OTHER_SCHEDULES))]
    yield [(f"{init}.schedulers.*.{name}", schedule) for name, schedule in SCHEDULES.items()]
    yield [(f"{init}.precision", trainer.PrecisionParams)]
    yield [(f"{init}.sparsity", SparsityParams)]
    shares = [(key, kind, share) for kind, share in SHARES.items() for key in ("sparsity", "drop_fraction")]
    yield [(f"{init}.sparsity.{key} (type: {kind})", share) for key, kind, share in shares]
    yield [(f"{init}.loop", trainer.LoopParams)]
    yield [(f"{init}.checkpoint", trainer.CheckpointParams)]
    yield [(f"{init}.memoryx", trainer.MemoryxParams)]
    yield [(f"{init}.logging", trainer.LoggingParams)]
    yield [(f"{init}.callbacks.*", list(_callbacks())), (f"{init}.loggers.*", list(_loggers()))]
    yield [(f"{init}.callbacks.*.{hooks.Lora.__name__}.lora_params.*", hooks.LoraParams)]
    yield [(f"{init}.backend", trainer.BackendParams)]
    yield [(f"{init}.autorestart", trainer.AutorestartParams)]
    yield [("trainer.fit", trainer.FitKeys), ("trainer.validate", trainer.ValidateKeys)]
    yield [("trainer.validate_all", trainer.ValidateAllKeys)]
    loaders = ("fit.train_dataloader", "fit.val_dataloader", "validate.val_dataloader", "validate_all.val_dataloaders")
    for loader_section in LOADER_SECTIONS:
        processors = ", ".join(get_args(loader_section.model_fields["data_processor"].annotation))
        yield [(f"trainer.{loader} (data_processor: {processors})", loader_section) for loader in loaders]
    steps = [f"trainer.{loader}.transforms.*" for loader in loaders]
    for section in dict.fromkeys(TRANSFORMS.values()):
        known = ", ".join(name for name, found in TRANSFORMS.items() if found is section)
        yield [(f"{place} (name: {known})", section) for place in steps]
    for_training, *others = (f"trainer.{loader}" for loader in loaders)
    yield [(for_training, [KeyFate("micro_batch_size", "acted on", MICRO_BATCH_VALUES, "the largest that fits")])]
    yield [(loader, [KeyFate("micro_batch_size", "noted", "any")]) for loader in others]


def _entries(names: Iterable[str], others: Iterable[str]) -> list[KeyFate]:
    return [
        *(KeyFate(name, "acted on", "see below") for name in names),
        *(KeyFate(name, "refused", "nothing") for name in others),
    ]


def _callbacks() -> Iterator[KeyFate]:
    for name, section in hooks.CALLBACK_SECTIONS.items():
        yield from (replace(key, name=f"{name}.{key.name}") for key in _fates(section))
    for name in MICRO_BATCH_CALLBACKS:
        yield KeyFate(f"{name}.{MICRO_BATCH_FLAG}", "acted on", MICRO_BATCH_VALUES, "the largest that fits")
    yield from _arguments({**dict.fromkeys(hooks.FLAG_CALLBACKS, ("*",)), **hooks.CALLBACKS})
    yield from (KeyFate(name, "refused", "nothing") for name in hooks.OTHER_CALLBACKS)


def _arguments(entries: Mapping[str, Iterable[str]]) -> Iterator[KeyFate]:
    for name, arguments in entries.items():
        values = f"any; {hooks.CALLBACK_LOSSES[name]}" if name in hooks.CALLBACK_LOSSES else "any"
        yield from (KeyFate(f"{name}.{key}", "noted", values) for key in arguments)
        if not arguments:
            yield KeyFate(name, "acted on" if name == hooks.COMPUTE_NORM else "noted", "{}")


def _loggers() -> Iterator[KeyFate]:
    yield from _arguments(hooks.LOGGERS)
    for key in _fates(hooks.TensorBoardLogger):
        yield replace(key, name=f"{hooks.TensorBoardLogger.__name__}.{key.name}")


def _inner_sections(section: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    for name, field in section.model_fields.items():
        place = f"{field.alias or name}{'.*' if get_origin(field.annotation) is tuple else ''}"
        kinds = (field.annotation, *get_args(field.annotation))
        # Schedules within a schedule are those that are listed by name.
        yield from ((place, kind) for kind in kinds if _is_section(kind) and kind is not Schedule)


def _is_section(kind: Any) -> TypeGuard[type[Section]]:
    return isinstance(kind, type) and issubclass(kind, Section)


def _fates(section: type[Section]) -> Iterator[KeyFate]:
    """Yield every key that a section knows: first the keys that fill its fields, then noted, then refused."""
    refused = dict(section.supported)
    for name, field in zip(section.field_keys(), section.model_fields.values(), strict=True):
        choices = refused.get(name)
        if field.exclude or choices == ():
            continue
        in_words, default = IN_WORDS.get((section, name), ("", _default(field)))
        if field.annotation is Any and not field.metadata:
            yield KeyFate(name, "see below", in_words, default)
            continue
        values = _values(field.annotation, field.metadata) if choices is None else _join(refused.pop(name))
        if name in section.null_counts and "null" not in values:
            values += ", null"
        yield KeyFate(name, "acted on", in_words or values, default)
    for other, name in {
        **section.other_names,
        **({"model_name": "name"} if section in MODELS.values() else {}),
    }.items():
        yield KeyFate(other, "acted on", f"another name of {name}")
    for name in sorted(name for name in section.without_effect if (section, name) not in BY_PLACE):
        yield KeyFate(name, "noted", OF_A_JOB.get((section, name), "any"))
    for name, choices in sorted(refused.items()):
        yield KeyFate(name, "refused", _join(choices or (False,)))


def _text(value: Any) -> str:
    return "{}" if value == {} else show(value).strip("'")


def _join(values: tuple[Any, ...]) -> str:
    return ", ".join(_text(value) for value in values)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    if field.default is None:
        return "from other keys" if field.validate_default else ""
    return "" if isinstance(field.default, Section) else _text(field.default)


def _values(annotation: Any, metadata: list[Any]) -> str:
    """Say in words which values a field takes."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(arguments[0], [*metadata, *arguments[1:]])
    if origin in (Union, types.UnionType):
        kinds = dict.fromkeys(_values(part, metadata) for part in arguments if part is not type(None))
        return " or ".join(kinds)
    if origin is Literal:
        return _join(arguments)
    if origin is tuple:
        return "a list"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a mapping"
    if isinstance(annotation, type):
        if _is_section(annotation):
            return "a mapping or a name" if annotation is InitializerParams else "a mapping"
        if issubclass(annotation, bool):
            return "true, false"
        if issubclass(annotation, int | float):
            kind = "a whole number" if issubclass(annotation, int) else "a number"
            return kind + "".join(_bounds(metadata))
        if issubclass(annotation, str):
            return "text"
    return "see below"


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _bounds(item.metadata)
            continue
        for name, words in (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below")):
            bound = getattr(item, name, None)
            if bound is not None and bound not in (MAX_STEPS, trainer.TOO_LARGE):
                yield f" {words} {bound:,}"
