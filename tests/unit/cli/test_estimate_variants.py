"""`cstool estimate` of other things: GPUs, hosts and their software, a model that answers, adapters of the file."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.errors import EstimateError
from cstool.estimation.adapters import parse_adapters
from cstool.estimation.lora_callback import take_lora
from cstool.perf.schedule import COORDINATOR, HOSTS, NORM, SERVERS, WORKERS
from cstool.verbs.estimate_variants import without_lora
from tests.end_to_end.refusals import rows
from tests.unit.cli.conftest import SMALL

pytestmark = pytest.mark.usefixtures("estimated")

# GPUs


def test_gpus_as_a_document(cstool):
    gpus = cstool("estimate", "-p", "gpt3_xl", "--gpus", "16", "--json").document["gpus"]
    (row,) = gpus["rows"]
    assert (gpus["gpu"], row["gpus"], row["kind"]) == ("a100", 16, "modelled")
    split = row["split"]
    assert split["tensor"] * split["stages"] * split["data"] == 16
    assert gpus["as_fast"]["tokens_per_s"] > 0


# A trained model that answers

INFER = ("-p", "llama3_8b", "--system", "cs3", "--mode", "infer", "--prompt_tokens", "2048", "--new_tokens", "512")


def test_answers_in_words(cstool, golden):
    golden("cli/estimate_infer.txt", cstool("estimate", *INFER, "--batch", "1,8,64,100000", "--num_csx", "1").stdout)


def test_answers_as_a_document(cstool):
    document = cstool("estimate", *INFER, "--batch", "1,8,100000", "--json").document
    assert (document["model"], document["prompt_tokens"], document["new_tokens"]) == ("llama", 2048, 512)
    one, eight, many = document["modelled"]["batches"]
    assert many == {"users": 100000, "fits": False, "why": many["why"]}
    assert one["kind"] == "modelled"
    assert one["tokens_per_s"] == pytest.approx(one["tokens_per_s_each"])
    assert eight["tokens_per_s"] > one["tokens_per_s"]
    assert sum(one["spent_s"].values()) == pytest.approx(one["token_s"])


# Hosts

FLAGS = ("-p", "small.yaml", "--system", "cs3", "--execution_mode", "weight_streaming", "--software", "2.6")


def test_hosts_in_words(cstool):
    """512 samples of 2,048 tokens are 1,048,576, which take a worker of 2,398,000 a second 437 ms."""
    lines = [" ".join(line.split()) for line in cstool("estimate", *FLAGS).stdout.splitlines()]
    assert "hosts release 2.6: 1 input worker of 2,398,000 tokens/s and 1 activation server to a system" in lines
    assert any(line.startswith("step 437.3 ms, bound by input workers") for line in lines)
    rows = {name: line for name in (WORKERS, *HOSTS) for line in lines if line.startswith(f"{name} ")}
    assert rows.keys() == {WORKERS, SERVERS, COORDINATOR, NORM}
    assert rows[WORKERS].endswith("437.3 ms 100.0%")
    more = cstool("estimate", *FLAGS, "--num_workers_per_csx", "8").stdout
    assert "release 2.6: 8 input workers of 2,398,000 tokens/s and 2 activation servers to a system" in more


def test_hosts_in_the_document(cstool):
    modelled = cstool("estimate", *FLAGS, "--json").document["modelled"]
    assert modelled["software"]["release"] == "2.6"
    assert modelled["software"]["worker_tokens_per_s"] == 2.398e6
    assert modelled["resources"][WORKERS]["busy"] == pytest.approx(1)
    assert modelled["bound_by"] == WORKERS
    ideal = cstool("estimate", *FLAGS[:-2], "--json").document["modelled"]
    assert ideal["software"] is None
    assert not set(HOSTS) & set(ideal["resources"])
    assert ideal["step_s"] < modelled["step_s"]


def test_hosts_in_the_timeline(cstool):
    assert cstool("estimate", *FLAGS, "--trace", "t.json").code == 0
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["name"] in ("process_name", "thread_name")}
    assert {"input workers (modelled)", "activation servers (modelled)", "coordinator (modelled)"} <= named
    assert "norm of all gradients" in named


# The vendor's callback of adapters

QUERY = "transformer_decoder.layers.3.self_attn.proj_q_dense_layer"
FILTER = "transformer_decoder.layers.3.ffn.ffn.0.linear_layer"


def written(*callbacks: Any) -> Path:
    """Return a params file with callbacks."""
    file = Path("lora.yaml")
    file.write_text(yaml.safe_dump({"trainer": {**SMALL, "init": {**SMALL["init"], "callbacks": list(callbacks)}}}))
    return file


def lora(**params: Any) -> dict[str, Any]:
    """Return the callback with these params."""
    return {"Lora": {"lora_params": params}}


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
    assert found["trained_parameters"] == 2 * 4 * 8 * (512 + 512)
    said = cstool("estimate", "-p", str(file)).stdout
    assert "\nadapters as the callback Lora of the file has them: --adapters rank=8,layers=*self_attn.*\n" in said
    # What is typed wins, and a run refuses the file.
    typed = cstool("estimate", "-p", str(file), "--adapters", "rank=1,layers=q", "--json").document["modelled"]
    assert typed["trained_parameters"] == 2 * (512 + 512)
    assert cstool("config", "validate", str(file)).code == 2


def test_files_without_it_stay_as_they_are():
    assert without_lora(written({"ComputeNorm": {}}), ("a=1",)) == (("a=1",), None)
    assert without_lora(Path("gpt3_13b"), ()) == ((), None)
    assert without_lora(written({"Lora": None}), ()) == ((), None)


MODULES = "must have Linear and, of the modules around it, only those known here, got"
NO_ADAPTERS = rows("""\
{r: 0, target_modules: [Linear]} => .r: must be a whole number, at least 1, got 0
{target_modules: [Linear]} => .r: must be a whole number, at least 1, got 0
{r: 8} => .target_modules: MODULES None
{r: 8, target_modules: [Linear, Swin]} => .target_modules: MODULES ['Linear', 'Swin']
[{r: 8}, {r: 4}] => : must be one mapping with r and target_modules, got [{'r': 8}, {'r': 4}]
""")


@pytest.mark.parametrize(("params", "message"), NO_ADAPTERS)
def test_adapters_that_cannot_be_estimated_say_so(params, message):
    with pytest.raises(EstimateError) as raised:
        take_lora(written({"Lora": {"lora_params": yaml.safe_load(params)}}))
    place = "lora.yaml: trainer.init.callbacks: Lora.lora_params"
    assert raised.value.message == place + message.replace("MODULES", MODULES)
