"""The vendor's callback of adapters: what of it counts, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.errors import EstimateError
from cstool.estimation.adapters import parse_adapters
from cstool.estimation.lora_callback import take_lora
from cstool.verbs.estimate_variants import without_lora
from tests.unit.cli.test_estimate import GPT

QUERY = "transformer_decoder.layers.3.self_attn.proj_q_dense_layer"
FILTER = "transformer_decoder.layers.3.ffn.ffn.0.linear_layer"


def written(*callbacks: Any) -> Path:
    """Return a params file with callbacks."""
    file = Path("lora.yaml")
    file.write_text(yaml.safe_dump({"trainer": {**GPT, "init": {**GPT["init"], "callbacks": list(callbacks)}}}))
    return file


def lora(**params: Any) -> dict[str, Any]:
    """Return the callback with these params."""
    return {"Lora": {"lora_params": params}}


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("modules", "beside"),
    [
        (["Linear"], (True, True)),
        (["TransformerDecoderLayer", "Linear"], (True, True)),
        (["Linear", "MultiheadAttention"], (True, False)),
        (["TransformerDecoder", "FeedForwardNetwork", "Linear"], (False, True)),
        (["TransformerEncoder", "Linear"], (False, False)),
    ],
)
def test_target_modules_are_all_around_a_layer(modules, beside):
    found = take_lora(written(lora(r=8, target_modules=modules), {"ComputeNorm": {}}))
    assert found is not None
    rest, text = found
    adapters = parse_adapters(text)
    assert rest == [{"ComputeNorm": {}}]
    assert adapters.rank == 8
    assert (adapters.are_beside(QUERY), adapters.are_beside(FILTER)) == beside


def test_an_estimate_has_the_adapters_of_the_file(cstool):
    file = written(lora(r=8, alpha=16, target_modules=["MultiheadAttention", "Linear"]))
    found = cstool("estimate", "-p", str(file), "--json").document["modelled"]
    assert found["trained_parameters"] == 24 * 4 * 8 * (2048 + 2048)
    said = cstool("estimate", "-p", str(file)).stdout
    assert "\nadapters as the callback Lora of the file has them: --adapters rank=8,layers=*self_attn.*\n" in said
    # What is typed wins, and a run refuses the file.
    typed = cstool("estimate", "-p", str(file), "--adapters", "rank=1,layers=q", "--json").document["modelled"]
    assert typed["trained_parameters"] == 24 * (2048 + 2048)
    assert cstool("config", "validate", str(file)).code == 2


def test_files_without_it_stay_as_they_are():
    assert without_lora(written({"ComputeNorm": {}}), ("a=1",)) == (("a=1",), None)
    assert without_lora(Path("gpt3_13b"), ()) == ((), None)
    assert without_lora(written({"Lora": None}), ()) == ((), None)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"r": 0, "target_modules": ["Linear"]}, ".r: must be a whole number, at least 1, got 0"),
        ({"target_modules": ["Linear"]}, ".r: must be a whole number, at least 1, got 0"),
        (
            {"r": 8},
            ".target_modules: must have Linear and, of the modules around it, only those known here, got None",
        ),
        (
            {"r": 8, "target_modules": ["Linear", "Swin"]},
            ".target_modules: must have Linear and, of the modules around it, only those known here, "
            "got ['Linear', 'Swin']",
        ),
    ],
)
def test_what_cannot_be_estimated_says_so(params, message):
    with pytest.raises(EstimateError) as raised:
        take_lora(written(lora(**params)))
    assert raised.value.message == f"lora.yaml: trainer.init.callbacks: Lora.lora_params{message}"


def test_several_groups_are_not_estimated():
    groups = [{"r": 8}, {"r": 4}]
    with pytest.raises(EstimateError) as raised:
        take_lora(written({"Lora": {"lora_params": groups}}))
    where = "lora.yaml: trainer.init.callbacks: Lora.lora_params"
    assert raised.value.message == f"{where}: must be one mapping with r and target_modules, got {groups}"
