"""docs/artifact.md: its fields are those of the program, its questions have the answers that it gives."""

import dataclasses
import doctest
import re
import shutil
import subprocess
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import pytest

from cstool.ir import write_artifact
from docs import artifact_fields as schema
from tests.unit.ir.artifacts import pipelined_artifact, streaming_artifact

DOCUMENT = Path(__file__).parents[3] / "docs" / "artifact.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
FIELDS = TEXT.index("### Artifact\n")
HEAD = TEXT[:FIELDS]
CONSOLES = re.findall(r"```console\n(.*?)```", HEAD, re.DOTALL)
PYTHON = re.findall(r"```pycon\n(.*?)```", HEAD, re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    write_artifact(streaming_artifact(), tmp_path / "a.json")
    write_artifact(pipelined_artifact(), tmp_path / "b.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_fields_are_those_of_the_program(golden):
    golden("../../docs/artifact.md", HEAD + schema.schema_text())


def test_links_lead_to_sections():
    sections = {title.lower() for title in re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", TEXT)) <= sections
    assert len(sections) > 20


class Fruit(StrEnum):
    """A fruit."""

    APPLE = "apple"
    """red | green"""


@dataclasses.dataclass(frozen=True)
class Basket:
    """A basket
    of fruits.

    Args:
        fruits: in it; None
            or some
        size: (width, height)
        prices: of each
    """

    fruits: tuple[Fruit, ...] | None
    size: tuple[int, float]
    prices: Mapping[str, float]
    is_full: bool
    """nothing more fits"""


@dataclasses.dataclass(frozen=True)
class Bare:
    """A class."""

    field: int


SECTION = """### Basket

A basket of fruits.

| field | type | meaning |
|---|---|---|
| `fruits` | list of [Fruit](#fruit) or null | in it; null or some |
| `size` | [whole number, number] | (width, height) |
| `prices` | object: name -> number | of each |
| `is_full` | true or false | nothing more fits |
"""


def test_a_section_says_types_and_meanings():
    assert "\n".join(schema._section(Basket)) == SECTION
    values = ["A fruit.", "", "| value | meaning |", "|---|---|", '| `"apple"` | red \\| green |']
    assert list(schema._section(Fruit))[2:-1] == values
    assert schema._types(Basket, []) == [Basket, Fruit]
    with pytest.raises(ValueError, match=r"^Bare\.field has no docstring$"):
        list(schema._section(Bare))


@pytest.mark.skipif(shutil.which("jq") is None, reason="there is no jq")
def test_questions_have_the_answers_of_the_document(folder):
    assert len(CONSOLES) == 6
    for console in CONSOLES:
        lines = []
        for command in re.findall(r"^\$ (.*)$", console, re.MULTILINE):
            outcome = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=True)
            lines += [f"$ {command}\n", outcome.stdout]
        assert "".join(lines) == console


def test_python_answers_as_the_document_says(folder):
    (questions,) = PYTHON
    test = doctest.DocTestParser().get_doctest(questions, {}, "artifact.md", str(DOCUMENT), 0)
    failures: list[str] = []
    outcome = doctest.DocTestRunner().run(test, out=failures.append)
    assert (outcome.failed, outcome.attempted, failures) == (0, 5, [])
