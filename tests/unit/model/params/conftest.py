"""A small correct file, ways to change it, and what loading says about it."""

import copy
import re
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.foundation.errors import ParamsError
from cstool.foundation.yaml_lines.document import parse_value
from cstool.model.params import Params, load_params
from tests.end_to_end.refusals import rows

SMALL: dict[str, Any] = yaml.safe_load("""
trainer:
  init:
    model: {name: gpt2, num_heads: 4, hidden_size: 64}
    optimizer: {AdamW: {learning_rate: 0.001}}
    loop: {max_steps: 10}
  fit: {train_dataloader: {data_processor: GptHDF5MapDataProcessor, data_dir: data/train, batch_size: 8}}
""")
Load = Callable[..., Params]
Failure = Callable[..., str]
LOADER = SMALL["trainer"]["fit"]["train_dataloader"]
VAL = LOADER | {"data_dir": "data/val", "batch_size": 4}
"""of another folder"""
LEGACY: dict[str, Any] = {
    "train_input": LOADER,
    "model": SMALL["trainer"]["init"]["model"],
    "optimizer": {"optimizer_type": "AdamW", "learning_rate": 0.001},
    "runconfig": {"max_steps": 10},
}
"""the small file in the older layout"""


def put(data: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, making the mappings on the way."""
    *outer, last = key.split(".")
    for part in outer:
        data = data.setdefault(part, {})
    data[last] = value


def changed(changes: dict[str, Any]) -> str:
    """Return the small file as YAML with dotted keys below `trainer.` changed."""
    data = copy.deepcopy(SMALL)
    for key, value in changes.items():
        put(data["trainer"], key, value)
    return yaml.safe_dump(data, sort_keys=False)


def told(message: str, section: str = "", **words: str) -> str:
    """Return a whole message of its short form: a line begins with its number in the file, @ stands for the section.

    Args:
        message: in its short form
        section: what @ stands for
        words: what else stands for longer texts
    """
    for word, text in words.items():
        message = message.replace(word, text)
    return re.sub(r"^(?=\d+: )", "x.yaml:", message, flags=re.MULTILINE).replace("@", section)


def cases(table: str) -> list[tuple[Any, str]]:
    """Values, each with what loading says of it.

    Args:
        table: a value, in YAML, =>, and the message
    """
    return [(parse_value(value, value), message) for value, message in rows(table)]


def meanings(table: str) -> list[tuple[Any, Any]]:
    """Values, each with what becomes of it: `cases` whose right side is YAML as well."""
    return [(value, parse_value(expected, expected)) for value, expected in cases(table)]


def each_message(table: str) -> pytest.MarkDecorator:
    """Call a test with every value of a table as `written`, and with the `message` about it."""
    return pytest.mark.parametrize(("written", "message"), cases(table))


def each_meaning(table: str) -> pytest.MarkDecorator:
    """Call a test with every value of a table as `written`, and with what is `expected` of it."""
    return pytest.mark.parametrize(("written", "expected"), meanings(table))


def plain(value: Any) -> Any:
    """Return a value as YAML has it: a path as text, a section as it is dumped."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value.dump() if hasattr(value, "dump") else value


def attributes(found: Any, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of an object that are expected of it, by dotted names."""
    return {name: plain(attrgetter(name)(found)) for name in expected}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working directory of the test, so that messages show short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load(folder) -> Load:
    """Load a text, or the small file with changes, as x.yaml."""

    def _load(content: str | dict[str, Any], **options: Any) -> Params:
        text = content if isinstance(content, str) else changed(content)
        (folder / "x.yaml").write_bytes(text.encode())
        return load_params("x.yaml", **options)

    return _load


@pytest.fixture
def failure(load) -> Failure:
    """Return the whole message that loading fails with."""

    def _failure(content: str | dict[str, Any], **options: Any) -> str:
        with pytest.raises(ParamsError) as caught:
            load(content, **options)
        return str(caught.value)

    return _failure


@pytest.fixture
def fault(failure) -> Failure:
    """Return the message that loading fails with, without the places in the file."""
    return lambda content, **options: re.sub(r"^x.yaml:\d+: ", "", failure(content, **options), flags=re.MULTILINE)


@pytest.fixture
def means(load, folder) -> Callable[..., None]:
    """Check attributes of what is loaded; `no_effect` are notes that say so, DIR is the folder of the file."""

    def _means(content: str | dict[str, Any], expected: dict[str, Any], **options: Any) -> None:
        if "no_effect" in expected:
            notes = [f"trainer.{key}: accepted, no effect" for key in expected["no_effect"]]
            expected = {**expected, "notes": notes}
            del expected["no_effect"]
        expected = yaml.safe_load(yaml.safe_dump(expected).replace("DIR", str(folder)))
        assert attributes(load(content, **options), expected) == expected

    return _means
