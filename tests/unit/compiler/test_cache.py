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
from cstool.compiler.cache import (
    MOST_COMPARED,
    artifact_path,
    compile_inputs,
    explain_miss,
    find_cached,
    keep_artifact,
)
from cstool.compiler.program import Program, Request
from cstool.errors import ArtifactError
from cstool.ir import Artifact, artifact_text
from cstool.models import build_graph
from cstool.optimizers import make_optimizer
from cstool.params import AdamW
from cstool.params.sections.optimizers import Lion
from cstool.system import Software, System
from tests.models import FAMILIES, decoder_params
from tests.unit.ir.artifacts import SYSTEM, streaming_artifact

REQUEST = Request(
    system=SYSTEM,
    num_csx=1,
    batch_size=16,
    micro_batch_size=None,
    execution_mode="auto",
    operand_bits=16,
    optimizer=make_optimizer(AdamW(), None),
)


def inputs_of(request: Request = REQUEST, *, sequence: int = 8, **model: Any) -> Mapping[str, str]:
    """Inputs of a small decoder."""
    params = decoder_params(**model)
    return compile_inputs(params, Program(build_graph(params, sequence), request))


def artifact_of(inputs: Mapping[str, str], **changes: Any) -> Artifact:
    """An artifact of that input."""
    return streaming_artifact(inputs=MappingProxyType(dict(inputs)), **changes)


def test_inputs_are_short_texts_under_dotted_keys(golden):
    inputs = inputs_of()
    golden("compiler/inputs.json", json.dumps(dict(inputs), indent=1) + "\n")
    assert all(isinstance(value, str) and len(value) <= 64 for value in inputs.values())


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
    assert inputs_of(replace(REQUEST, **{name: other})) != inputs_of()


def numbers_of(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all numbers and strings of a system."""
    if hasattr(value, "__dataclass_fields__"):
        return [
            p
            for f in fields(value)
            if f.name not in ("sources", "hosts", "servers")
            for p in numbers_of(getattr(value, f.name), (*path, f.name))
        ]
    return [(*path, key) for key in value] if isinstance(value, Mapping) else [path]


def changed(value: Any, path: tuple[str, ...]) -> Any:
    """The value with another number at a path."""
    if not path:
        return OTHER[type(value)](value)
    if isinstance(value, Mapping):
        return {**value, path[0]: changed(value[path[0]], path[1:])}
    return replace(value, **{path[0]: changed(getattr(value, path[0]), path[1:])})


DRIVEN = replace(SYSTEM, software=Software("2.0", 1, 1, 25e9, 1e6, 0.005, 0.1))


@pytest.mark.parametrize("path", numbers_of(DRIVEN), ids=".".join)
def test_all_numbers_of_a_system_count(path):
    driven = inputs_of(replace(REQUEST, system=DRIVEN))
    assert inputs_of(replace(REQUEST, system=changed(DRIVEN, path))) != driven != inputs_of()


def test_what_a_cluster_lacks_and_the_length_of_samples_count():
    for name in ("memoryx", "swarmx"):
        assert inputs_of(replace(REQUEST, system=replace(SYSTEM, **{name: None}))) != inputs_of()
    assert inputs_of(sequence=4) != inputs_of()


def test_sources_of_numbers_do_not_count():
    told: System = replace(SYSTEM, sources={"clock_hz": ("X", "someone")})
    assert inputs_of(replace(REQUEST, system=told)) == inputs_of()


@pytest.mark.parametrize("family", [family for family in FAMILIES if FAMILIES[family]])
def test_models_count(family):
    assert inputs_of(**FAMILIES[family])["graph"] != inputs_of()["graph"]


def test_the_program_counts(monkeypatch):
    before = inputs_of()
    monkeypatch.setattr(cstool, "__version__", "9.0")
    assert inputs_of() != before


def test_names_are_those_of_the_real_machine(tmp_path):
    path = artifact_path(tmp_path, inputs_of())
    assert path.parent == tmp_path
    assert re.fullmatch(r"cs_[0-9]{19}\.json", path.name)
    assert path == artifact_path(tmp_path, dict(reversed(inputs_of().items())))
    assert path != artifact_path(tmp_path, inputs_of(layers=2))
    # For ever.
    assert artifact_path(tmp_path, {"num_csx": "1"}).name == "cs_6396979161628405267.json"


def test_what_is_kept_is_found(tmp_path):
    folder = tmp_path / "new" / "folder"
    inputs = inputs_of()
    assert find_cached(folder, inputs) is None
    path = keep_artifact(folder, artifact_of(inputs))
    assert path == artifact_path(folder, inputs)
    assert find_cached(folder, inputs) == artifact_of(inputs)
    assert find_cached(folder, inputs_of(layers=2)) is None
    assert [p.name for p in folder.iterdir()] == [path.name]


def test_what_is_damaged_is_a_miss_and_is_written_anew(tmp_path, caplog):
    artifact = artifact_of(inputs_of())
    path = keep_artifact(tmp_path, artifact)
    path.write_text(path.read_text()[:-100])
    with caplog.at_level(logging.WARNING, "cstool"):
        assert find_cached(tmp_path, artifact.inputs) is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    start, end = f"{path}: must be a JSON document, got: ", "; it is compiled again"
    assert record.getMessage().startswith(start)
    assert record.getMessage().endswith(end)
    assert explain_miss(tmp_path, artifact.inputs) is None
    keep_artifact(tmp_path, artifact)
    assert find_cached(tmp_path, artifact.inputs) == artifact


def test_anothers_artifact_is_a_miss(tmp_path, caplog):
    kept = keep_artifact(tmp_path, artifact_of(inputs_of(layers=2)))
    path = artifact_path(tmp_path, inputs_of())
    kept.rename(path)
    with caplog.at_level(logging.WARNING, "cstool"):
        assert find_cached(tmp_path, inputs_of()) is None
    message = f"{path}: must be the artifact of this input, got another's; it is compiled again"
    assert [record.getMessage() for record in caplog.records] == [message]


def refused(folder: Path) -> str:
    """Keep an artifact in a folder that does not take it, and return why."""
    with pytest.raises(ArtifactError) as caught:
        keep_artifact(folder, artifact_of(inputs_of()))
    assert (caught.value.hint, caught.value.exit_code) == ("name another folder with --compile_dir", 2)
    return caught.value.message


def test_a_folder_that_cannot_be_made(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for folder, why in ((file, "File exists"), (file / "below", "Not a directory")):
        assert refused(folder) == f"compile_dir: must be a folder that can be written, got {folder}: {why}"


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    def refuse(*_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    path = artifact_path(tmp_path, inputs_of())
    assert refused(tmp_path) == f"{path}: must be a file that can be written, got: Read-only file system"
    assert list(tmp_path.iterdir()) == []


def test_many_writers_of_one_artifact_do_no_harm(tmp_path):
    artifact = artifact_of(inputs_of())

    def work(_: int) -> None:
        for _ in range(10):
            keep_artifact(tmp_path, artifact)
            assert find_cached(tmp_path, artifact.inputs) == artifact

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert [p.read_text() for p in tmp_path.iterdir()] == [artifact_text(artifact)]


WIDER = replace(SYSTEM, name="wider", fabric=replace(SYSTEM.fabric, width=50), power_w=1.0)
MORE_SRAM = replace(SYSTEM, pe=replace(SYSTEM.pe, sram_bytes=65536))


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (inputs_of(replace(REQUEST, num_csx=2)), "num_csx 1 -> 2"),
        (inputs_of(replace(REQUEST, micro_batch_size=4)), "micro_batch_size auto -> 4"),
        (inputs_of(replace(REQUEST, system=WIDER)), "system small -> wider"),
        (inputs_of(replace(REQUEST, system=WIDER, num_csx=2)), "system small -> wider; num_csx 1 -> 2"),
        (inputs_of(replace(REQUEST, system=MORE_SRAM)), "system: pe.sram_bytes 49152 -> 65536"),
        (inputs_of(replace(REQUEST, batch_size=32, num_csx=2)), "num_csx 1 -> 2; batch_size 16 -> 32"),
        (inputs_of(vocab_size=12), "model: vocab_size 11 -> 12"),
        (inputs_of(layers=2, filter_size=32), "model: num_hidden_layers 1 -> 2, filter_size 16 -> 32"),
        (inputs_of(sequence=4), "tokens 8 -> 4"),
        ({**inputs_of(), "graph": "0123456789"}, f"graph {inputs_of()['graph'][:8]} -> 01234567"),
        ({**inputs_of(), "cstool": "9.0"}, f"cstool {cstool.__version__} -> 9.0"),
        (
            inputs_of(rotary_dim=4, position_embedding_type="rotary"),
            "model: position_embedding_type learned -> rotary, rotary_dim none -> 4",
        ),
        (inputs_of(initializer_range=0.5), "model: initializer_range 0.02 -> 0.5"),
        (
            inputs_of(**FAMILIES["llama"]),
            "model: name gpt2 -> llama, hidden_size 8 -> 16, num_heads 2 -> 4 and 10 more",
        ),
    ],
)
def test_a_miss_is_explained(new, text, tmp_path):
    path = keep_artifact(tmp_path, artifact_of(inputs_of()))
    assert explain_miss(tmp_path, new) == f"Not compiled before. Since {path.name} was, there changed: {text}"


def test_the_nearest_artifact_explains(tmp_path):
    keep_artifact(tmp_path, artifact_of(inputs_of(vocab_size=12)))
    near = keep_artifact(tmp_path, artifact_of(inputs_of()))
    keep_artifact(tmp_path, artifact_of(inputs_of(replace(REQUEST, batch_size=32))))
    new = inputs_of(replace(REQUEST, num_csx=2))
    assert explain_miss(tmp_path, new) == f"Not compiled before. Since {near.name} was, there changed: num_csx 1 -> 2"


def test_where_nothing_can_be_compared_there_is_no_explanation(tmp_path):
    assert explain_miss(tmp_path / "missing", inputs_of()) is None
    assert explain_miss(tmp_path, inputs_of()) is None
    for number, text in enumerate(("", "[]", "{}", '{"inputs": 3}', "[" * 100_000, "\xff")):
        (tmp_path / f"cs_{number:019}.json").write_text(text, encoding="latin-1")
    (tmp_path / f"cs_{7:019}.json").mkdir()
    (tmp_path / "other.json").write_text(artifact_text(artifact_of(inputs_of(layers=2))))
    assert explain_miss(tmp_path, inputs_of()) is None
    keep_artifact(tmp_path, artifact_of(inputs_of()))
    assert explain_miss(tmp_path, inputs_of()) is None, "it is there"


def test_of_many_the_latest_are_compared(tmp_path):
    old = keep_artifact(tmp_path, artifact_of(inputs_of()))
    os.utime(old, (1, 1))
    for number in range(MOST_COMPARED):
        document = json.dumps({"inputs": {"num_csx": str(number)}})
        (tmp_path / f"cs_{number:019}.json").write_text(document)
    text = explain_miss(tmp_path, inputs_of(replace(REQUEST, num_csx=2)))
    assert old.name not in text
