"""docs/model/artifact.md: its fields are those of the program, its questions have the answers that it gives."""

import dataclasses
import doctest
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cstool.model.ir import write_artifact
from docs import artifact_fields as schema
from tests.unit.model.ir.artifacts import pipelined_artifact, streaming_artifact

DOCUMENT = Path(__file__).parents[4] / "docs" / "model" / "artifact.md"
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


def test_the_fields_are_those_of_the_program_and_links_lead_to_sections(golden):
    golden("../../docs/model/artifact.md", HEAD + schema.schema_text())
    sections = {title.lower() for title in re.findall(r"^### (\w+)$", TEXT, re.MULTILINE)}
    assert set(re.findall(r"\]\(#(\w+)\)", TEXT)) <= sections
    assert len(sections) > 20


@dataclasses.dataclass(frozen=True)
class Bare:
    """A class."""

    field: int


def test_a_field_without_a_meaning_is_a_mistake():
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
