"""compile_dir: the same input is compiled once, and what changed is said."""

import json
import logging
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import cstool
from cstool.foundation.errors import ArtifactError
from cstool.model.graphs import build_graph
from cstool.model.ir import Artifact, artifact_text
from cstool.model.optimizers import make_optimizer
from cstool.model.params.sections.optimizers import Lion
from cstool.model.system import Software
from cstool.plan.compiler.cache import (
    MOST_COMPARED,
    artifact_path,
    compile_inputs,
    explain_miss,
    find_cached,
    keep_artifact,
)
from cstool.plan.compiler.program import Program, Request
from tests.models import FAMILIES, decoder_params
from tests.unit.model.ir.artifacts import SYSTEM, streaming_artifact
from tests.unit.plan.compiler.programs import a_request

REQUEST = a_request(SYSTEM, 16, execution_mode="auto")


def inputs_of(*, sequence: int = 8, model: Mapping[str, Any] | None = None, **request: Any) -> Mapping[str, str]:
    """Inputs of a small decoder, with other keys of its section or of what is requested."""
    params = decoder_params(**(model or {}))
    return compile_inputs(params, Program(build_graph(params, sequence), replace(REQUEST, **request)))


INPUTS = inputs_of()


def artifact_of(inputs: Mapping[str, str] = INPUTS) -> Artifact:
    return streaming_artifact(inputs=MappingProxyType(dict(inputs)))


def test_inputs_are_short_texts_under_dotted_keys(golden):
    golden("compiler/inputs.json", json.dumps(dict(INPUTS), indent=1) + "\n")
    assert all(isinstance(value, str) and len(value) <= 64 for value in INPUTS.values())


OTHER = {
    bool: lambda value: not value,
    int: lambda value: value + 1,
    float: lambda value: value * 2,
    str: lambda value: value + "x",
    tuple: lambda value: (*value, value[-1] + 1),
    type(None): lambda value: 4,
}


@pytest.mark.parametrize("name", [field.name for field in fields(Request) if field.name not in ("system", "variant")])
def test_all_that_is_requested_counts(name):
    value = getattr(REQUEST, name)
    other = make_optimizer(Lion(), None) if name == "optimizer" else OTHER[type(value)](value)
    assert inputs_of(**{name: other}) != INPUTS


def numbers_of(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all numbers and strings of a system."""
    if hasattr(value, "__dataclass_fields__"):
        names = [f.name for f in fields(value) if f.name not in ("sources", "hosts", "servers")]
        return [p for name in names for p in numbers_of(getattr(value, name), (*path, name))]
    return [(*path, key) for key in value] if isinstance(value, Mapping) else [path]


def changed(value: Any, path: tuple[str, ...]) -> Any:
    """The value with another number at a path."""
    if not path:
        return OTHER[type(value)](value)
    if isinstance(value, Mapping):
        return {**value, path[0]: changed(value[path[0]], path[1:])}
    return replace(value, **{path[0]: changed(getattr(value, path[0]), path[1:])})


DRIVEN = replace(SYSTEM, software=Software("2.0", 1, 1, 25e9, 1e6, 0.005, 0.1))


def test_numbers_of_a_system_models_lengths_and_the_program_count_and_sources_do_not(monkeypatch):
    driven = inputs_of(system=DRIVEN)
    assert driven != INPUTS
    for path in numbers_of(DRIVEN):
        assert inputs_of(system=changed(DRIVEN, path)) != driven, ".".join(path)
    for name in ("memoryx", "swarmx"):
        assert inputs_of(system=replace(SYSTEM, **{name: None})) != INPUTS
    assert inputs_of(system=replace(SYSTEM, sources={"clock_hz": ("X", "someone")})) == INPUTS
    for family, model in FAMILIES.items():
        assert (inputs_of(model=model)["graph"] != INPUTS["graph"]) is bool(model), family
    assert inputs_of(sequence=4) != INPUTS
    monkeypatch.setattr(cstool, "__version__", "9.0")
    assert inputs_of() != INPUTS


OTHERS = inputs_of(model={"layers": 2})


def test_what_is_kept_is_found_under_names_as_those_of_the_real_machine(tmp_path):
    path = artifact_path(tmp_path, INPUTS)
    assert path.parent == tmp_path
    assert re.fullmatch(r"cs_[0-9]{19}\.json", path.name)
    assert path == artifact_path(tmp_path, dict(reversed(INPUTS.items())))
    assert path != artifact_path(tmp_path, OTHERS)
    # For ever.
    assert artifact_path(tmp_path, {"num_csx": "1"}).name == "cs_6396979161628405267.json"
    folder = tmp_path / "new" / "folder"
    assert find_cached(folder, INPUTS) is None
    path = keep_artifact(folder, artifact_of())
    assert path == artifact_path(folder, INPUTS)
    assert find_cached(folder, INPUTS) == artifact_of()
    assert find_cached(folder, OTHERS) is None
    assert [p.name for p in folder.iterdir()] == [path.name]


@pytest.mark.parametrize("kept", ["damaged", "another's"])
def test_what_is_damaged_or_anothers_is_a_miss_and_is_written_anew(tmp_path, caplog, kept):
    path = artifact_path(tmp_path, INPUTS)
    if kept == "damaged":
        keep_artifact(tmp_path, artifact_of())
        path.write_text(path.read_text()[:-100])
        rule = r"a JSON document, got: .*"
    else:
        keep_artifact(tmp_path, artifact_of(OTHERS)).rename(path)
        rule = "the artifact of this input, got another's"
    with caplog.at_level(logging.WARNING, "cstool"):
        assert find_cached(tmp_path, INPUTS) is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert re.fullmatch(rf"{re.escape(str(path))}: must be {rule}; it is compiled again", record.getMessage())
    assert kept == "another's" or explain_miss(tmp_path, INPUTS) is None
    keep_artifact(tmp_path, artifact_of())
    assert find_cached(tmp_path, INPUTS) == artifact_of()


def test_a_folder_that_cannot_be_made_or_written(tmp_path, monkeypatch):
    def refused(folder: Path) -> str:
        with pytest.raises(ArtifactError) as caught:
            keep_artifact(folder, artifact_of())
        assert (caught.value.hint, caught.value.exit_code) == ("name another folder with --compile_dir", 2)
        return caught.value.message

    def refuse(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    file = tmp_path / "file"
    file.write_text("")
    for folder, why in ((file, "File exists"), (file / "below", "Not a directory")):
        assert refused(folder) == f"compile_dir: must be a folder that can be written, got {folder}: {why}"
    monkeypatch.setattr(os, "replace", refuse)
    path = artifact_path(tmp_path, INPUTS)
    assert refused(tmp_path) == f"{path}: must be a file that can be written, got: Read-only file system"
    assert list(tmp_path.iterdir()) == [file]


def test_many_writers_of_one_artifact_do_no_harm(tmp_path):
    artifact = artifact_of()

    def work(_: int) -> None:
        for _ in range(10):
            keep_artifact(tmp_path, artifact)
            assert find_cached(tmp_path, INPUTS) == artifact

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [p.read_text() for p in tmp_path.iterdir()] == [artifact_text(artifact)]


WIDER = replace(SYSTEM, name="wider", fabric=replace(SYSTEM.fabric, width=50), power_w=1.0)
MORE_SRAM = replace(SYSTEM, pe=replace(SYSTEM.pe, sram_bytes=65536))


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (inputs_of(num_csx=2), "num_csx 1 -> 2"),
        (inputs_of(micro_batch_size=4), "micro_batch_size auto -> 4"),
        (inputs_of(system=WIDER, num_csx=2), "system small -> wider; num_csx 1 -> 2"),
        (inputs_of(system=MORE_SRAM), "system: pe.sram_bytes 49152 -> 65536"),
        (inputs_of(batch_size=32, num_csx=2), "num_csx 1 -> 2; batch_size 16 -> 32"),
        (inputs_of(model={"vocab_size": 12}), "model: vocab_size 11 -> 12"),
        (inputs_of(model={"layers": 2, "filter_size": 32}), "model: num_hidden_layers 1 -> 2, filter_size 16 -> 32"),
        (inputs_of(sequence=4), "tokens 8 -> 4"),
        ({**INPUTS, "graph": "0123456789"}, f"graph {INPUTS['graph'][:8]} -> 01234567"),
        ({**INPUTS, "cstool": "9.0"}, f"cstool {cstool.__version__} -> 9.0"),
        (
            inputs_of(model={"rotary_dim": 4, "position_embedding_type": "rotary"}),
            "model: position_embedding_type learned -> rotary, rotary_dim none -> 4",
        ),
        (inputs_of(model={"initializer_range": 0.5}), "model: initializer_range 0.02 -> 0.5"),
        (
            inputs_of(model=FAMILIES["llama"]),
            "model: name gpt2 -> llama, hidden_size 8 -> 16, num_heads 2 -> 4 and 10 more",
        ),
    ],
)
def test_a_miss_is_explained_by_the_nearest_artifact(new, text, tmp_path):
    path = keep_artifact(tmp_path, artifact_of())
    assert explain_miss(tmp_path, new) == f"Not compiled before. Since {path.name} was, there changed: {text}"
    if text == "num_csx 1 -> 2":
        for other in (inputs_of(model={"vocab_size": 12}), inputs_of(batch_size=32)):
            keep_artifact(tmp_path, artifact_of(other))
        assert explain_miss(tmp_path, new) == f"Not compiled before. Since {path.name} was, there changed: {text}"


def test_where_nothing_can_be_compared_there_is_no_explanation(tmp_path):
    for folder in (tmp_path / "missing", tmp_path):
        assert explain_miss(folder, INPUTS) is None
    for number, text in enumerate(("", "[]", "{}", '{"inputs": 3}', "[" * 100_000, "\xff")):
        (tmp_path / f"cs_{number:019}.json").write_text(text, encoding="latin-1")
    (tmp_path / f"cs_{7:019}.json").mkdir()
    (tmp_path / "other.json").write_text(artifact_text(artifact_of(OTHERS)))
    assert explain_miss(tmp_path, INPUTS) is None
    keep_artifact(tmp_path, artifact_of())
    assert explain_miss(tmp_path, INPUTS) is None, "it is there"


def test_of_many_the_latest_are_compared(tmp_path):
    old = keep_artifact(tmp_path, artifact_of())
    os.utime(old, (1, 1))
    for number in range(MOST_COMPARED):
        document = json.dumps({"inputs": {"num_csx": str(number)}})
        (tmp_path / f"cs_{number:019}.json").write_text(document)
    assert old.name not in explain_miss(tmp_path, inputs_of(num_csx=2))
