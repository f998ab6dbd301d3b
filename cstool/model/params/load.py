"""From a params file, or a stock one by name, and the command line to `Params`, or to all their problems."""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cstool.foundation.errors import ParamsError
from cstool.foundation.words import did_you_mean, nearest
from cstool.foundation.yaml_lines.document import Document, Key, parse_document, read_document
from cstool.foundation.yaml_lines.problems import Problems
from cstool.model.params import legacy
from cstool.model.params.check import TrainerCheck
from cstool.model.params.legacy_keys import SECTIONS, TRAINER_KEYS
from cstool.model.params.overrides import apply_overrides
from cstool.model.params.params import Params

FOLDER = Path(__file__).parent / "stock"
"""folder of the stock params files: a link to `params` of the project; where that was installed, a folder of its own"""


def stock_names() -> tuple[str, ...]:
    """Return the names of all stock params files."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def stock_file(name: str) -> Path:
    """Return the stock params file of a name, or raise ParamsError."""
    if name not in stock_names():
        raise ParamsError([(f"{name}: must be the name of a stock params file", stock_hint(name))])
    return FOLDER / f"{name}.yaml"


def stock_hint(name: str) -> str:
    """Hint for a name that no stock params file has."""
    written = name.lower().removesuffix(".yaml").replace("-", "_")
    return did_you_mean(written, stock_names()) or "`cstool model list` lists them"


def stock_text(name: str) -> str:
    """Return the text of a stock params file, or raise ParamsError."""
    return stock_file(name).read_text(encoding="utf-8")


def stock_description(name: str) -> str:
    """Description of a stock params file: the comment that it begins with, in one line."""
    lines = stock_text(name).splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.lstrip("# ").strip() for line in lines[:end])


def is_params_file(named: str | Path) -> bool:
    """Tell whether a name means a params file, by its ending or as a stock one, and not a file that a run made."""
    return Path(named).suffix.lower() in (".yaml", ".yml") or (str(named) in stock_names() and not Path(named).exists())


_TRAINER: Key = ("trainer",)
Overrides = Sequence[str] | Mapping[str, Any]
"""texts KEY=VALUE as behind `--set`, or values by dotted key"""
Flags = Mapping[str, tuple[str, Any]]
"""dotted key -> (flag as typed, value)"""


def load_params(path: str | Path, *, overrides: Overrides = (), flags: Flags | None = None) -> Params:
    """Read and check a params file of one trainer.

    Args:
        path: of a YAML file in the trainer layout, or in the older one; or the name of a stock file, such as gpt_tiny,
            which counts as if it lay in a folder `params`
        overrides: values by dotted key, for example `{"trainer.init.loop.max_steps": 20}`, or texts as behind `--set`,
            `["trainer.init.loop.max_steps=20"]`; for a file in the older layout they may name the keys of either
        flags: values of other typed flags: dotted key -> (flag, value), for example
            `{"trainer.init.backend.cluster_config.num_csx": ("--num_csx", 3)}`; they win over `overrides`

    Raises:
        ParamsError: with all problems of the file at once; or the file holds several trainers.
    """
    return _load(*_open(path), overrides, flags or {}, several=False)[0]


def parse_params(
    text: str, name: str, *, overrides: Overrides = (), flags: Flags | None = None, has_lines: bool = True
) -> Params:
    """Check the text of a params file of one trainer, whose relative paths start from the working directory.

    Args:
        text: YAML
        name: in errors
        has_lines: whether errors say the line; it means nothing where the text is part of a binary file
        overrides, flags: as for `load_params`

    Raises:
        ParamsError: with all problems at once, under `name`
    """
    document = parse_document(text, name, has_lines=has_lines)
    return _load(document, Path(name), overrides, flags or {}, several=False)[0]


def load_all_params(path: str | Path, *, overrides: Overrides = (), flags: Flags | None = None) -> tuple[Params, ...]:
    """Read and check a params file of one trainer or a list of them.

    Args:
        path, overrides, flags: as for `load_params`; in a list, `trainer.1.init...` is a key of one trainer (the first
            is 0), and `trainer.init...` a key of all

    Raises:
        ParamsError: with all problems of the file at once.
    """
    return _load(*_open(path), overrides, flags or {}, several=True)


def _open(path: Any) -> tuple[Document, Path]:
    """Return a document, and the file as which it counts: paths in it start from there."""
    if not isinstance(path, str | os.PathLike):
        rule = f"must be a params file, or the name of a stock one, got {type(path).__name__}"
        hint = "overrides={KEY: VALUE} changes keys of a file; yaml.safe_dump makes a file of a dict"
        raise ParamsError([(f"params: {rule}", hint)])
    name = str(path)
    if not Path(path).exists():
        if name in stock_names():
            return parse_document(stock_text(name), f"{name}.yaml"), Path("params", f"{name}.yaml")
        stem = Path(path).stem
        if stem in stock_names():
            hint = f"{stem} alone is the stock file; `cstool config pull {stem}` writes a copy"
            raise ParamsError([(f"{path}: there is no such file", hint)])
        if name == stem and (hint := stock_hint(name)).startswith("did you mean"):
            raise ParamsError([(f"{path}: there is no such file", hint)])
    return read_document(Path(path)), Path(path)


def _load(document: Document, path: Path, overrides: Overrides, flags: Flags, several: bool) -> tuple[Params, ...]:
    require_one_layout(document)
    older_flags: dict[str, tuple[str, Any]] = {}
    if isinstance(overrides, Mapping):
        named = {key: (f"{key}={value!r}", value) for key, value in overrides.items()}
        older_flags = {key: typed for key, typed in named.items() if _is_of_the_older_layout(key)}
        flags, overrides = {**{key: typed for key, typed in named.items() if key not in older_flags}, **flags}, ()
    conversion: legacy.LegacyConversion | None = None
    warnings: tuple[str, ...] = ()
    if legacy.is_legacy(document.data):
        older = [text for text in overrides if _is_of_the_older_layout(text.split("=")[0])]
        apply_overrides(document, older, older_flags)
        overrides = [text for text in overrides if text not in older]
        sections = ", ".join(name for name in SECTIONS if name in document.data)
        command = f"cstool config convert_legacy {shlex.quote(document.name)}"
        layout = f"is in the older layout ({sections}); `{command}` writes it in the trainer layout"
        warnings = (f"{document.name}: {layout}",)
        document, conversion = legacy.convert_legacy(document)
    else:
        _unpack_list(document, several)
        flags = {**older_flags, **flags}
    apply_overrides(document, overrides, flags)
    # A list may have come from the command line.
    _unpack_list(document, several)
    loaded: list[Params] = []
    problems: Problems | None = None
    for phase in _phases(document):
        problems = Problems(phase, path.parent, problems)
        if conversion is not None:
            conversion.check_keys(problems)
        for key in phase.data:
            if key != "trainer":
                hint = did_you_mean(key, ["trainer"]) or "all keys stand below trainer"
                problems.add((key,), "is not a known key", hint=hint)
        if (params := TrainerCheck(phase, problems, path, warnings).params()) is not None:
            loaded.append(params)
    assert problems is not None
    problems.raise_found()
    return tuple(loaded)


def _is_of_the_older_layout(key: str) -> bool:
    return key.split(".")[0].strip() in SECTIONS


def require_one_layout(document: Document) -> None:
    """Check that a document is of one of the two layouts, or raise ParamsError."""
    problems = Problems(document, Path())
    data = document.data
    if not isinstance(data, dict):
        problems.add((), "must hold a mapping", data)
    elif newer := [key for key in TRAINER_KEYS if key in data]:
        older = [key for key in SECTIONS if key in data]
        if older:
            line = document.place((newer[0],)).label.rpartition(":")[2]
            rule = f"is of the older layout, {newer[0]} (line {line}) of the trainer layout: a file is in one of them"
            problems.add((older[0],), rule)
    elif not legacy.is_legacy(data):
        near = nearest("trainer", data)
        if near is not None:
            problems.add((near,), "is not a known key", hint="did you mean trainer?")
        else:
            problems.add(("trainer",), "is missing")
    problems.raise_found()


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
