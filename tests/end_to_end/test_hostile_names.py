"""Names and texts that were made to deceive: no command lets them write to the terminal what it did not say."""

import json
import shutil
import struct
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import typer
import yaml
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from cstool.model.ir import artifact_text
from cstool.model.ir._plain_data import plain_digest
from cstool.model.params import load_params
from cstool.model.system.load import FOLDER
from cstool.training.host import rates as host_rates
from cstool.training.store import CheckpointWriter
from tests.end_to_end.runs import compiled, gpt_params
from tests.fuzz_commands import fuzz, signature, warm_up

FORGED = "error: forged"
PIECES = [
    *("\x1b[2J", "\x1b]0;x\x07", "\r", "\b", "\t", "\x9b31m", "\x85", "\u2028", "\u202e", "\u2066", "\u200b", "[red]"),
    *("a", "weight", ": ", "'", '"', "%s", "{0}", "\\", "é"),
]
Check = Callable[..., None]

hostile = st.one_of(st.permutations(PIECES), st.lists(st.sampled_from(PIECES), min_size=1, max_size=4)).map(
    lambda parts: f"{''.join(parts)}\n{FORGED}"
)
names = hostile.map(lambda text: text.replace("/", "_"))
FEW = settings(
    max_examples=3, phases=(Phase.explicit, Phase.generate), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def few(*strategies: st.SearchStrategy[str]) -> Callable[[Check], Check]:
    """Have a test with few examples of names, and of where they stand."""
    return lambda test: FEW(given(*strategies)(test))


@pytest.fixture
def fresh(tmp_path) -> Callable[[], Path]:
    """Return what makes an empty folder for each example."""

    def make() -> Path:
        shutil.rmtree(tmp_path / "example", ignore_errors=True)
        (tmp_path / "example").mkdir()
        return tmp_path / "example"

    return make


@pytest.fixture
def check(cstool) -> Check:
    """Type a command, and check that it ended in words of its own."""

    def typed(*arguments: object) -> None:
        outcome = cstool(*arguments)
        assert outcome.code in (0, 1, 2)
        for text in (outcome.stdout, outcome.stderr):
            unseen = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"}
            assert unseen == set()
            assert [line for line in text.splitlines() if line.startswith(FORGED)] == []

    return typed


@example("weight\x1b[2J\u202e\n" + FORGED, "key")
@few(hostile, st.sampled_from(["key", "top", "model", "optimizer", "processor", "data_dir", "value", "model_dir"]))
def test_in_params(check, fresh, data, name, where):
    folder = fresh()
    file = gpt_params(folder, data)
    document = yaml.safe_load(file.read_text())
    init, loader = document["trainer"]["init"], document["trainer"]["fit"]["train_dataloader"]
    section, key, value = {
        "key": (init["model"], name, 1),
        "top": (document, name, {name: name}),
        "model": (init["model"], "name", name),
        "optimizer": (init, "optimizer", {name: {"learning_rate": 1}}),
        "processor": (loader, "data_processor", name),
        "data_dir": (loader, "data_dir", str(folder / name)),
        "value": (init["model"], "hidden_size", name),
        "model_dir": (init, "model_dir", str(folder / name)),
    }[where]
    section[key] = value
    file.write_text(yaml.safe_dump(document))
    for verb in ("validate", "show", "stats"):
        check("config", verb, file)
    check("run", "--params", file, "--set", f"trainer.init.loop.{name}=1")
    if where != "model_dir":
        check("run", "--params", file, "--mode", "eval")
    check("checkpoint", "list", folder / name)


@few(hostile)
def test_in_yaml_that_is_none(check, fresh, name):
    file = fresh() / "params.yaml"
    for content in (f"trainer: {{{name}", json.dumps({name: {name: [name]}})):
        file.write_text(content, encoding="utf-8")
        check("config", "validate", file)
    check("system", "show", file)


@few(names)
def test_in_names_of_files(check, fresh, data, name):
    folder = fresh() / name
    file = gpt_params(folder, data).rename(folder / f"{name}.yaml")
    for path in (file, folder / name):
        check("config", "validate", path)
    check("checkpoint", "list", folder)
    shutil.copytree(data, folder / "data")
    next((folder / "data").glob("*.h5")).rename(folder / "data" / f"{name}.h5")
    for path in (folder, folder / "data"):
        check("data", "info", path)
        check("data", "check", path)


@few(names)
def test_in_checkpoints(check, fresh, name):
    folder = fresh()
    paths = [folder / "checkpoint_1.mdl", folder / f"{name}.mdl"]
    for path, key in zip(paths, (f"model.{name}", f"model.{name}{name}"), strict=True):
        with CheckpointWriter(path) as writer:
            writer.add_tensor(key, (2,), "float32", [np.zeros(2, np.float32)])
            writer.add_value("global_step", 1)
            writer.add_value(f"{name}_value", name)
            writer.add_value("__metadata__", [{"version": name, "model_name": name, "params": {name: name}}])
    for words in (["info", paths[0], "--all"], ["verify", *paths], ["diff", *paths], ["list", folder]):
        check("checkpoint", *words)
    check("checkpoint", "copy", paths[1], folder / f"{name}2.mdl")
    check("checkpoint", "convert", paths[0], folder / "hf", "--to", "hf")
    check("checkpoint", "delete", paths[1])
    with h5py.File(paths[0], "r+") as h5:
        h5[name] = [1]
        for key in (name, "__cstool_version__", "__version__"):
            h5.attrs[key] = name
    check("checkpoint", "verify", paths[0])
    check("checkpoint", "info", paths[0])


@few(hostile)
def test_in_checkpoints_of_hugging_face(check, fresh, name):
    folder = fresh()
    (folder / "hf").mkdir()
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({name: entry, "__metadata__": {name: name}}).encode()
    for config in ({"architectures": [name]}, {"architectures": ["GPT2LMHeadModel"], "n_layer": name, name: name}):
        (folder / "hf" / "config.json").write_text(json.dumps(config))
        (folder / "hf" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        check("checkpoint", "convert", folder / "hf", folder / "x.mdl")
        check("checkpoint", "info", folder / "hf" / "model.safetensors")


@few(hostile, st.sampled_from(["tokenizer", "source", "kind", "seed"]))
def test_in_records_of_data(check, fresh, name, key):
    folder = fresh()
    (folder / "text.txt").write_text("to be or not to be " * 400)
    check("data", "prepare", "text", folder / "text.txt", "--output", folder / "made", "--sequence_length", "8")
    record: dict[str, Any] = json.loads((folder / "made" / "prepared.json").read_text())
    (folder / "made" / "prepared.json").write_text(json.dumps({**record, key: name, name: {name: name}}))
    for verb in ("info", "check", "baseline"):
        check("data", verb, folder / "made")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory, data) -> dict[str, Any]:
    """Return the artifact of a small GPT, as plain data."""
    params = load_params(gpt_params(tmp_path_factory.mktemp("artifact"), data))
    found: dict[str, Any] = json.loads(artifact_text(compiled(params, "train")))
    return found


def _renamed(value: Any, old: str, new: str) -> Any:
    """Return plain data with a text replaced wherever it stands."""
    if isinstance(value, dict):
        return {_renamed(key, old, new): _renamed(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed(item, old, new) for item in value]
    return value.replace(old, new) if isinstance(value, str) else value


@few(hostile, st.sampled_from(["gpt2", "embedding_layer", "cs2", "norm", "compiled"]))
def test_in_artifacts(check, fresh, artifact, name, renamed):
    folder = fresh()
    plain = _renamed({key: value for key, value in artifact.items() if key != "digest"}, renamed, name)
    plain["reasons"] = [name]
    others = ({**plain, "digest": plain_digest(plain)}, {**artifact, name: name, "digest": name})
    for file, content in zip("abc", (artifact, *others), strict=True):
        (folder / f"{file}.json").write_text(json.dumps(content))
    for file in ("b.json", "c.json"):
        check("compile", "show", folder / file)
        check("compile", "diff", folder / "a.json", folder / file)


@few(hostile, st.sampled_from(["name", "wafer", "source", "key"]))
def test_in_system_files(check, fresh, name, where):
    file = fresh() / "system.yaml"
    document = yaml.safe_load((FOLDER / "cs2.yaml").read_text())
    if where == "source":
        document["sources"] = dict.fromkeys(document.get("sources", {"a": ""}), name)
    else:
        document[name if where == "key" else where] = name
    file.write_text(yaml.safe_dump(document))
    check("system", "show", file)


INPUTS = 120


@pytest.mark.lab
def test_spoilt_files_and_odd_arguments_end_in_no_traceback(tmp_path, monkeypatch):
    for owner, name in ((typer.main, "get_command"), (host_rates, "rates_file")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # is put back afterwards
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["cstool"])
    outcomes = list(fuzz(warm_up(tmp_path), 7, range(INPUTS)))
    assert [(o.number, signature(o.finding)) for o in outcomes if o.finding is not None] == []
    assert [outcome.number for outcome in outcomes] == [*range(INPUTS)]
    # Many commands get through, and many refuse: the inputs are neither harmless nor hopeless.
    codes = [outcome.code for outcome in outcomes]
    assert 0.2 < codes.count(2) / INPUTS < 0.8
    assert 0.1 < codes.count(0) / INPUTS < 0.7
