"""Adapters of the package PEFT, converted: what they add to the weights is the same here and there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.convert.adapters import write_adapters
from cstool.convert.convert import Request, convert
from cstool.convert.described import describe
from cstool.convert.peft import Adapter, modules_of
from cstool.foundation.errors import CheckpointError
from cstool.inference.verbs.answer import open_model
from cstool.model.graphs.preference import POLICY
from cstool.model.params.sections.tuning import Adapters
from cstool.training.store import CheckpointReader, CheckpointWriter
from cstool.training.store.folding import merge_adapters
from cstool.training.store.saved_state import no_progress
from tests.contract.refusal import refusal
from tests.end_to_end.runs import saved_tensors
from tests.end_to_end.test_convert_hf_families import KINDS, tensors_of
from tests.models import preference_params
from tests.reference import hf_models as hf
from tests.reference.peft_folders import CONFIG, adapters, folded, untied, write_peft
from tests.unit.inference.machines import whole_news

CASES: dict[str, tuple[str, str, list[str]]] = {
    "gpt2": ("decoders", "gpt2", ["c_attn", "attn.c_proj", "wte", "lm_head"]),
    "llama": ("decoders", "llama_llama3", ["q_proj", "v_proj", "down_proj", "lm_head"]),
    "phi3": ("decoders", "phi3_partial", ["qkv_proj", "gate_up_proj"]),
    "gpt_neox": ("decoders", "gpt_neox", ["query_key_value", "dense_h_to_4h", "embed_in"]),
    "falcon_7b": ("decoders", "falcon_7b", ["query_key_value"]),
    "falcon_40b": ("decoders", "falcon_40b", ["query_key_value", "dense"]),
    "bloom": ("decoders", "bloom", ["query_key_value"]),
    "gpt_bigcode": ("decoders", "gpt_bigcode", ["c_attn"]),
    "gemma2": ("decoders", "gemma2", ["k_proj", "gate_proj", "embed_tokens"]),
    "mixtral": ("decoders", "mixtral", ["q_proj", "o_proj"]),
    "qwen3": ("decoders", "qwen3", ["q_proj", "k_proj"]),
    "esm": ("encoders", "esm2", ["query", "key", "intermediate.dense", "word_embeddings"]),
    "t5": ("others", "t5", ["SelfAttention.q", "EncDecAttention.v"]),
}
PREFIXED = "base_model.model."


def read(folder: Path) -> hf.Tensors:
    return hf.read_safetensors(folder / "adapter_model.safetensors")


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "adapter_config.json").read_text())


@pytest.fixture(params=CASES)
def case(request, tmp_path) -> tuple[hf.Tensors, list[str], str]:
    """The tensors of a model that is converted to base.mdl, ends of names of modules in it, and its model_type."""
    kind, name, ends = CASES[request.param]
    config, tensors = KINDS[kind].CASES[name], tensors_of(kind, name)
    hf.write_hf(tmp_path / "hf", config, tensors)
    convert(Request(tmp_path / "hf", tmp_path / "base.mdl"))
    return tensors, ends, config["model_type"]


def merged(folder: Path, adapters: Path, model_type: str) -> hf.Tensors:
    """Fold adapters into the weights, and convert these."""
    merge_adapters(adapters, folder / "merged.mdl")
    convert(Request(folder / "merged.mdl", folder / "merged", to="hf", model_type=model_type))
    return hf.read_safetensors(folder / "merged" / "model.safetensors")


def assert_same(found: hf.Tensors, expected: hf.Tensors, ulps: int) -> None:
    for name, tensor in found.items():
        np.testing.assert_array_max_ulp(tensor, expected[name], ulps)


@pytest.mark.parametrize("is_dora", [False, True])
def test_an_adapter_adds_the_same_here_and_goes_back_bit_for_bit(tmp_path, case, is_dora):
    """Ranks and scales differ by module."""
    tensors, ends, model_type = case
    is_transposed = model_type == "gpt2"
    beside = adapters(tensors, ends, is_transposed=is_transposed, is_dora=is_dora)
    wide = [name for name in beside if name.endswith(".lora_A.weight")][-1].removeprefix(PREFIXED)
    module = wide.removesuffix(".lora_A.weight")
    of_module = {f"{module}.weight": untied(tensors)[f"{module}.weight"]}
    beside |= adapters(of_module, ends, rank=3, is_transposed=is_transposed, is_dora=is_dora)
    said = {"rank_pattern": {module: 3}, "alpha_pattern": {ends[0]: 5, module: 4.5}, "fan_in_fan_out": is_transposed}
    peft = write_peft(tmp_path / "peft", beside, **said, use_rslora=True, use_dora=is_dora)
    base, way = tmp_path / "base.mdl", {"model_type": model_type}
    convert(Request(peft, tmp_path / "a.mdl", base=base, **way))
    # Sums of float64 in another order, rounded to float32.
    assert_same(merged(tmp_path, tmp_path / "a.mdl", model_type), folded(tensors, peft), 1)
    convert(Request(tmp_path / "a.mdl", tmp_path / "back", to="peft", base_name="someone/model", **way))
    back = read(tmp_path / "back")
    assert {n: t.tobytes() for n, t in back.items()} == {n: t.tobytes() for n, t in beside.items()}
    config = config_of(tmp_path / "back")
    kept = ("peft_type", "base_model_name_or_path", "inference_mode", "lora_dropout", "bias")
    assert {key: config[key] for key in kept} == {key: CONFIG[key] for key in kept}
    assert (config["use_rslora"], config["fan_in_fan_out"], config["use_dora"]) == (True, is_transposed, is_dora)
    assert_same(folded(tensors, tmp_path / "back"), folded(tensors, peft), 0)


def test_adapters_of_layers_that_are_one_module_there_become_one(tmp_path, case):
    """Each layer has numbers, a rank and a scale of its own; the last layer has none."""
    tensors, _, model_type = case
    described = describe(tmp_path / "base.mdl", "cstool", None)
    (part,) = described.parts(model_type)
    rng, layers, is_stabilized = np.random.default_rng(5), {}, model_type.startswith("g")
    for module in [*modules_of(part).values()][:-1]:
        for layer in module.rows:
            rank = 1 + len(layers) % 3
            a = rng.standard_normal((rank, module.inputs), np.float32)
            b = rng.standard_normal((module.rows[layer][1], rank), np.float32)
            layers[layer] = Adapter(
                a, b, Adapters(rank, (), 1.0 + len(layers) % 4, 0.0, is_stabilized), module.is_table
            )
    write_adapters(tmp_path / "a.mdl", tmp_path / "base.mdl", described, layers, "here", no_progress)
    expected = merged(tmp_path, tmp_path / "a.mdl", model_type)
    convert(Request(tmp_path / "a.mdl", tmp_path / "peft", to="peft", model_type=model_type))
    found = folded(tensors, tmp_path / "peft")
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, rtol=1e-6, atol=1e-6)
    assert config_of(tmp_path / "peft")["base_model_name_or_path"] == "base.mdl"


ANSWERED = {
    "gpt2": (
        [[-11.42281, -19.369083, -4.431733, 30.839495], [-7.932499, -12.600294, -12.083645, 3.28209]],
        [[-0.534768, -1.058864, 1.460495, 1.640369], [0.665855, 2.541217, 0.862744, -2.072376]],
    ),
    "llama": (
        [[-15.937342, 4.618636, 4.464481, 11.197474], [21.712654, 0.221905, 7.245945, -14.878871]],
        [[-1.029729, -1.469653, 1.145969, -1.831554], [-0.632812, -1.34772, 0.720121, -1.156307]],
    ),
}
"""logits of transformers 5.24 with peft 0.21.2 after 3, 17, 42, 9: of the first and the last, every 20th; without and
with lengths"""


@pytest.mark.parametrize("is_dora", [False, True])
@pytest.mark.parametrize("case", ANSWERED, indirect=True)
def test_they_answer_as_with_peft(tmp_path, case, is_dora):
    """With adapters of tables and of output layers, of a tied one as well, whose weights PEFT saves."""
    tensors, ends, model_type = case
    beside = adapters(tensors, ends, is_transposed=model_type == "gpt2", is_dora=is_dora)
    for name in ("transformer.wte.weight", "lm_head.weight"):
        if f"{PREFIXED}{name.replace('.weight', '.lora_')}" in "".join(beside):
            beside[f"{PREFIXED}{name.replace('.weight', '.base_layer.weight')}"] = untied(tensors)[name]
    peft = write_peft(tmp_path / "peft", beside, use_dora=is_dora)
    convert(Request(peft, tmp_path / "a.mdl", base=tmp_path / "base.mdl"))
    ids, expected = np.array([3, 17, 42, 9], np.int32), ANSWERED[model_type][is_dora]
    with open_model(tmp_path / "a.mdl", lanes=1, progress="none") as model:
        logits = model.walk(1, 32).run({"input_ids": ids}, whole_news(len(ids)), np.arange(len(ids)))
    np.testing.assert_allclose(logits[[0, 3], ::20], expected, rtol=0, atol=1e-5 * np.abs(logits).max())


def gpt2(folder: Path) -> tuple[hf.Tensors, hf.Tensors]:
    """Write a GPT-2 as base.mdl; return its tensors, and adapters of its layers."""
    tensors = hf.gpt2_tensors()
    hf.write_hf(folder / "hf", hf.GPT2_CONFIG, tensors)
    convert(Request(folder / "hf", folder / "base.mdl"))
    return tensors, adapters(tensors, ["c_attn", "c_fc"], is_transposed=True)


def test_half_numbers_and_names_without_prefix_are_read(conversion, tmp_path):
    _, beside = gpt2(tmp_path)
    halves = {name: tensor.astype(np.float16) for name, tensor in beside.items()}
    write_peft(tmp_path / "a", halves)
    wide = {name: tensor.astype(np.float32) for name, tensor in halves.items()}
    write_peft(tmp_path / "b", {name.replace("transformer.", ""): tensor for name, tensor in wide.items()})
    for name in "ab":
        assert conversion(name, f"{name}.mdl", "--base", tmp_path / "base.mdl").said.startswith("Checkpoint saved")
    assert saved_tensors(tmp_path / "a.mdl") == saved_tensors(tmp_path / "b.mdl")


def test_what_is_converted_says_where_and_a_tokenizer_goes_along(conversion, tmp_path):
    _, beside = gpt2(tmp_path)
    (tmp_path / "base.tokenizer.json").write_text("{}")
    peft = write_peft(tmp_path / "peft", beside)
    said = "Checkpoint saved to TMP/a.mdl\nTokenizer saved to TMP/a.tokenizer.json\n"
    file = peft / "adapter_model.safetensors"
    assert conversion(file, "a.mdl", "--base", tmp_path / "base.mdl") == (0, said, "")
    with CheckpointReader(tmp_path / "a.mdl") as reader:
        values = reader.values()
    [group] = values["__metadata__"][-1]["params"]["trainer"]["init"]["callbacks"][-1]["Lora"]["lora_params"]
    assert (group["r"], group["alpha"], group["dropout"]) == (2, 3.0, 0.25)
    assert set(values["adapters"]["scales"]) == set(group["layers"])
    assert set(values["adapters"]["scales"].values()) == {1.5}
    document = conversion("a.mdl", "back", "--to", "peft", "--json").document
    assert (document["from"], document["to"], document["weights"]) == ("cstool", "peft", 24)
    # A and B of c_attn and c_fc in three layers.
    assert document["bytes"] == 4 * 2 * 3 * (48 + 144 + 48 + 192)
    assert config_of(tmp_path / "back")["target_modules"] == ["c_attn", "c_fc"]


def test_a_modules_name_is_written_out_where_its_end_is_another_modules_too(conversion, tmp_path):
    tensors, _ = gpt2(tmp_path)
    write_peft(tmp_path / "peft", adapters(tensors, ["attn.c_proj"], is_transposed=True))
    conversion("peft", "a.mdl", "--base", tmp_path / "base.mdl")
    conversion("a.mdl", "back", "--to", "peft")
    assert config_of(tmp_path / "back")["target_modules"] == [f"transformer.h.{n}.attn.c_proj" for n in range(3)]


def test_converted_adapters_answer_as_their_sum_and_are_trained_further(cstool, conversion, ready, tmp_path):
    """It answers three times, and trains."""
    base = tmp_path / "model_dir" / "checkpoint_60.mdl"
    conversion(base, "hf", "--to", "hf")
    tensors = hf.read_safetensors(tmp_path / "hf" / "model.safetensors")
    write_peft(tmp_path / "peft", adapters(tensors, ["c_attn"], is_transposed=True))
    conversion("peft", "a.mdl", "--base", base, "--params", ready)
    cstool("checkpoint", "merge", tmp_path / "a.mdl", tmp_path / "b.mdl")
    infer = ("run", "--mode", "infer", "--prompt", "abc", "--max_tokens", "8", "--tokenizer", "bytes")
    paths = (tmp_path / "a.mdl", tmp_path / "b.mdl", base)
    found, of_sum, plain = (cstool(*infer, "--checkpoint_path", path).stdout for path in paths)
    assert found == of_sum != plain
    lora = ("--lora", "rank=2,alpha=3,targets=q,k,v", "--checkpoint_path", tmp_path / "a.mdl", "--max_steps", "1")
    assert cstool("run", "-p", ready, *lora, "--model_dir", tmp_path / "further").code == 0
    assert conversion("further/checkpoint_1.mdl", "back", "--to", "peft").code == 0
    # Each of the three has an A of its own by now.
    assert read(tmp_path / "back")["base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"].shape[0] == 6


def test_of_several_rates_of_dropout_the_first_is_told(tmp_path):
    gpt2(tmp_path)
    described = describe(tmp_path / "base.mdl", "cstool", None)
    ones = np.ones((1, 48), np.float32)
    layers = {
        f"transformer_decoder.layers.{n}.self_attn.proj_output_dense_layer": Adapter(
            ones, ones.T, Adapters(1, (), 1.0, 0.1 * n)
        )
        for n in range(2)
    }
    write_adapters(tmp_path / "a.mdl", tmp_path / "base.mdl", described, layers, "here", no_progress)
    done = convert(Request(tmp_path / "a.mdl", tmp_path / "peft", to="peft"))
    assert done.notes == ("lora_dropout is 0, of the first of several rates",)


def test_a_family_that_computes_the_same_can_be_named(tmp_path):
    """Of the two a Phi-3 has query, key and value in one tensor."""
    config = {**KINDS["decoders"].CASES["phi3"], "sliding_window": None}
    tensors = tensors_of("decoders", "phi3")
    hf.write_hf(tmp_path / "hf", config, tensors)
    convert(Request(tmp_path / "hf", tmp_path / "base.mdl"))
    peft = write_peft(tmp_path / "peft", adapters(tensors, ["qkv_proj"]))
    request = Request(peft, tmp_path / "a.mdl", base=tmp_path / "base.mdl")
    file, got = peft / "adapter_model.safetensors", "model.layers.0.self_attn.qkv_proj"
    hint = "the base is a llama there; --model_type names another family that computes the same"
    with refusal(CheckpointError, f"{file}: must have adapters of linear layers of the base, got {got}", hint):
        convert(request)
    convert(Request(peft, tmp_path / "a.mdl", base=tmp_path / "base.mdl", model_type="phi3"))


def test_of_dpo_the_adapters_are_those_of_the_policy(tmp_path):
    """Params that ask for no adapters leave the scale to the checkpoint."""
    model = preference_params(sequence=8)
    layer, ones = "transformer_decoder.layers.0.self_attn.proj_output_dense_layer", np.ones((2, 8), np.float32)
    with CheckpointWriter(tmp_path / "a.mdl") as writer:
        for end, array in (("lora_A", ones), ("lora_B", ones.T)):
            writer.add_tensor(f"model.{POLICY}{layer}.{end}", array.shape, "float32", [array])
        params = {"trainer": {"init": {"model": model.dump()}}}
        writer.add_value("__metadata__", [{"version": "1", "model_name": model.name, "params": params}])
        writer.add_value("adapters", {"scales": {f"{POLICY}{layer}": 0.75}})
    convert(Request(tmp_path / "a.mdl", tmp_path / "peft", to="peft"))
    assert list(read(tmp_path / "peft"))[0] == "base_model.model.transformer.h.0.attn.c_proj.lora_A.weight"
    config = config_of(tmp_path / "peft")
    assert [config[key] for key in ("r", "lora_alpha", "base_model_name_or_path")] == [2, 1.5, None]
