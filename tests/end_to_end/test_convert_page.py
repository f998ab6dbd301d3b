"""The page about conversions shows what they print, and the names that the code has."""

import json
import re
import shutil
from pathlib import Path

import numpy as np

from cstool.convert.hf_names import NAMES
from cstool.ir import Graph
from cstool.models import build_graph
from cstool.params import load_params
from cstool.store import CheckpointWriter
from tests.reference.vendor_files import Object, write_vendor

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "convert.md").read_text(encoding="utf-8")


def test_the_commands_print_what_it_shows(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", tmp_path / "params")
    params = load_params(tmp_path / "params" / "gpt_tiny.yaml")
    graph = build_graph(params.model, 128)
    weights = random_weights(graph)
    checkpoint = tmp_path / "checkpoints" / "gpt_tiny" / "checkpoint_600.mdl"
    for folder in (checkpoint.parent, tmp_path / "vendor"):
        folder.mkdir(parents=True)
    with CheckpointWriter(checkpoint) as writer:
        for name, weight in weights.items():
            writer.add_tensor(name, weight.shape, "float32", [weight])
        writer.add_value("__metadata__", [{"version": "1", "model_name": "gpt2", "params": params.resolved()}])
    write_vendor(tmp_path / "vendor" / "checkpoint_1000.mdl", {**weights, "global_step": 1000, "dataloader": Object()})
    part = {"samples": 1, "files": 1, "size_bytes": 1, "tokens": 1}
    prepared = {"digest": "", "files": {}, "parts": {"train": part, "val": part}, "sequence_length": 128}
    (tmp_path / "datasets" / "text").mkdir(parents=True)
    (tmp_path / "datasets" / "text" / "prepared.json").write_text(json.dumps(prepared))
    consoles = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    assert len(consoles) == 3
    for console in consoles:
        printed = []
        for command in re.findall(r"^\$ cstool (.*)$", console, re.MULTILINE):
            outcome = cstool(*command.split())
            printed.append(f"$ cstool {command}\n{outcome.stdout}{outcome.stderr}")
        assert "".join(printed) == console


def random_weights(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"model.{n}": rng.standard_normal(w.shape).astype(np.float32) for n, w in graph.weights.items()}


def test_the_table_has_the_names_of_the_code():
    lines = PAGE.partition("| here, and the vendor's |")[2].partition("\n\n")[0].splitlines()[2:]
    table = {ours: theirs for ours, *theirs in ([cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines)}
    assert table == {
        ours: [NAMES[family].get(ours, "") for family in ("gpt2", "llama")]
        for ours in [*NAMES["gpt2"], *NAMES["llama"]]
    }
