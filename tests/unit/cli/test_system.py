"""`cstool system`: the systems, number by number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cstool.arch import load_system

PARAMS = Path(__file__).parents[3] / "params" / "fc_mnist.yaml"


@pytest.mark.parametrize("command", ["system", "system list", "system show"])
def test_help(cstool, golden, command):
    outcome = cstool(*command.split(), "--help")
    assert (outcome.code, outcome.stderr) == (0, "")
    golden(f"cli/help/{command.replace(' ', '_')}.txt", outcome.stdout)


@pytest.mark.parametrize("command", ["system list", "system show cs1", "system show cs2"])
def test_output(cstool, golden, command):
    outcome = cstool(*command.split())
    assert (outcome.code, outcome.stderr) == (0, "")
    assert max(map(len, outcome.stdout.splitlines())) <= 100
    golden(f"cli/{command.replace(' ', '_')}.txt", outcome.stdout)


def test_json_holds_every_number(cstool):
    document = json.loads(cstool("system", "show", "cs2", "--json").stdout)
    cs2 = load_system("cs2")
    assert {n["key"]: (n["status"], n["source"]) for n in document["numbers"]} == dict(cs2.sources)
    values = {n["key"]: n["value"] for n in document["numbers"]}
    assert (values["fabric.width"], values["pe.simd.fmach"], values["clock_hz"]) == (750, 4, 0.85e9)
    assert document["derived"][0] == {"what": "PEs that programs can use", "value": 745_500, "unit": "PEs"}
    assert [s["name"] for s in json.loads(cstool("system", "list", "--json").stdout)["systems"]] == ["cs1", "cs2", "cs3"]


def test_a_bad_system_file_is_told_with_its_lines(cstool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("extends: cs2\nclock_hz: {value: -1, status: C, source: a plan}\n")
    expected = (2, "", "error: bad.yaml:2: clock_hz.value must be greater than 0, got -1\n")
    assert cstool("system", "show", "bad.yaml") == expected
    assert cstool("run", "--params", str(PARAMS), "--compile_only", "--system", "bad.yaml") == expected
