"""Models with Hugging Face's names: converted, they compute what an independent implementation does; and back again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import yaml

from cstool.model.graphs import build_graph
from cstool.model.params import ALL_STATES, DecoderParams
from cstool.training.data import write_hdf5_text
from cstool.training.machine.inputs import Batch
from cstool.training.machine.state import load_state
from cstool.training.store import CheckpointReader
from tests.end_to_end.refusals import error
from tests.end_to_end.runs import gpt_params, saved_tensors
from tests.reference import hf_models as hf
from tests.unit.training.machine.machines import make_appliance, rewrite

Array = np.ndarray
LOGITS = {"gpt2": hf.gpt2_logits, "llama": hf.llama_logits, "mistral": hf.llama_logits}
TENSORS = {"gpt2": hf.gpt2_tensors, "llama": hf.llama_tensors, "mistral": hf.llama_tensors}
MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": hf.GPT2_CONFIG,
    "gpt2, untied": {**hf.GPT2_CONFIG, "tie_word_embeddings": False, "n_inner": 80},
    "llama": hf.LLAMA_CONFIG,
    "llama, tied": {**hf.LLAMA_CONFIG, "tie_word_embeddings": True, "num_key_value_heads": 8},
    "mistral": {**hf.LLAMA_CONFIG, **MISTRAL, "sliding_window": None},
    "mistral, window": {**hf.LLAMA_CONFIG, **MISTRAL, "sliding_window": 5},
    "llama, biases, wide heads": {**hf.LLAMA_CONFIG, "attention_bias": True, "head_dim": 12, "num_key_value_heads": 4},
}
BESIDE = {"Checkpoint": "mdl", "Config": "yaml", "Tokenizer": "tokenizer.json"}
SEQUENCE = 16
LOGITS_TOLERANCE = 1e-4


@pytest.fixture(params=MODELS)
def config(request) -> dict[str, Any]:
    return dict(MODELS[request.param])


def tensors_of(config: Mapping[str, Any]) -> hf.Tensors:
    return TENSORS[config["model_type"]](config)


def computed(checkpoint: Path, section: Mapping[str, Any], ids: Array, labels: Array) -> tuple[Array, Array]:
    """Return logits (B, S, V) and losses (B, S) of a checkpoint as the appliance computes them, forward.

    The output layer and its loss are one op, so logits are its input, read from the slots, times its weights.
    """
    graph = build_graph(DecoderParams.model_validate(dict(section)), SEQUENCE)
    head = graph.ops[-1].weights[0]
    usual = {"max_gradient_norm": None, "seed": 1, "lanes": 1}
    with make_appliance(graph, optimizer=None, **usual) as appliance, CheckpointReader(checkpoint) as reader:
        systems = appliance.prepare(len(ids), trains=False)
        load_state(reader, appliance.memoryx, states=ALL_STATES, strict=True)
        mask = np.ones(ids.shape, np.float32)
        appliance.evaluate(
            Batch(0, {"input_ids": ids, "labels": labels, "mask": mask}, len(ids), ids.size, len(ids)), 0
        )
        slots = sorted((slot for csx in systems.csx for slot in csx.slots), key=lambda slot: slot.grain or 0)
        final = np.concatenate([slot.arrays["final"] for slot in slots])
        losses = np.concatenate([slot.arrays["loss"].reshape(-1) for slot in slots])
        table = np.concatenate([part.copy() for part in appliance.memoryx.arrays.chunks(f"model.{head}")])
    return (final @ table.T).reshape(*ids.shape, -1), losses.reshape(ids.shape)


def tokens(config: Mapping[str, Any], rows: int = 3) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    found = rng.integers(0, config["vocab_size"], (2, rows, SEQUENCE), dtype=np.int32)
    return found[0], found[1]


def test_a_converted_model_computes_what_an_independent_implementation_does_and_goes_back_bit_for_bit(
    conversion, tmp_path, config
):
    tensors = tensors_of(config)
    hf.write_hf(tmp_path / "hf", config, tensors)
    said = "Checkpoint saved to TMP/a.mdl\nConfig saved to TMP/a.yaml\n"
    assert conversion("hf", "a.mdl") == (0, said, "")
    ids, labels = tokens(config)
    section = yaml.safe_load((tmp_path / "a.yaml").read_text())["trainer"]["init"]["model"]
    logits, losses = computed(tmp_path / "a.mdl", section, ids, labels)
    expected = np.stack([LOGITS[config["model_type"]](config, tensors, row) for row in ids])
    assert np.std(expected) > 0.3  # there is something to compare
    np.testing.assert_allclose(logits, expected, atol=LOGITS_TOLERANCE)
    expected_losses = np.stack([hf.losses(of_row, row) for of_row, row in zip(expected, labels, strict=True)])
    np.testing.assert_allclose(losses, expected_losses, atol=LOGITS_TOLERANCE)

    outcome = conversion("a.mdl", "back", "--to", "hf")
    note = "note: the tokenizer is left out: no data set of the params says which it is; --tokenizer names one\n"
    assert outcome == (0, f"{note}Checkpoint saved to TMP/back\nConfig saved to TMP/back/config.json\n", "")
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["config.json", "model.safetensors"]
    found = hf.read_safetensors(tmp_path / "back" / "model.safetensors")
    assert {name: array.tobytes() for name, array in found.items()} == {n: t.tobytes() for n, t in tensors.items()}
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert {key: written[key] for key in config} == config


@pytest.mark.parametrize("config", ["mistral, window"], indirect=True)
def test_an_evaluation_gives_the_loss_of_the_independent_implementation(cstool, conversion, tmp_path, config):
    tensors = tensors_of(config)
    hf.write_hf(tmp_path / "hf", config, tensors)
    assert conversion("hf", "a.mdl").code == 0
    ids, labels = tokens(config, rows=6)
    (tmp_path / "text").mkdir()
    fields = np.stack([ids, np.ones_like(ids), labels], axis=1)
    write_hdf5_text(tmp_path / "text" / "part.h5", [fields], len(ids), SEQUENCE)
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(tmp_path / "text"), "batch_size": 3}
    # The file that describes the model is enough: an evaluation needs its data, and no optimizer.
    data = ("--set", f"trainer.fit.val_dataloader={json.dumps(loader)}", f"trainer.init.model_dir={tmp_path / 'dir'}")
    flags = ("--mode", "eval", "--checkpoint_path", tmp_path / "a.mdl", "--json")
    expected = [
        hf.losses(LOGITS[config["model_type"]](config, tensors, row), of_row)
        for row, of_row in zip(ids, labels, strict=True)
    ]
    loss = cstool("run", "-p", tmp_path / "a.yaml", *flags, *data).document["evaluations"][-1]["loss"]
    assert loss == pytest.approx(float(np.mean(expected)), abs=LOGITS_TOLERANCE)


@pytest.fixture(params=["gpt2", "llama"])
def converted(request, conversion, tmp_path) -> dict[str, Any]:
    """A model of bytes, converted to a.mdl and a.yaml; its config."""
    config = {**MODELS[request.param], "vocab_size": 256}
    hf.write_hf(tmp_path / "hf", config, tensors_of(config))
    assert conversion("hf", "a.mdl").code == 0
    return config


@pytest.fixture
def words(tmp_path) -> Path:
    """A tokenizer of four words whose template puts <s> before a text and </s> behind it."""
    names = {"a": 0, "b": 1, "<s>": 2, "</s>": 3, "<unk>": 4}
    loaded = tokenizers.Tokenizer(tokenizers.models.WordLevel(names, unk_token="<unk>"))
    loaded.add_special_tokens(["<s>", "</s>"])
    loaded.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    template = [("<s>", 2), ("</s>", 3)]
    loaded.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A </s>", special_tokens=template)
    loaded.save(str(tmp_path / "words.json"))
    return tmp_path / "words.json"


@pytest.mark.parametrize(
    ("prompt", "flags", "begin"),
    [
        ("a b", (), [2, 0, 1]),
        ("<s> a b", (), [2, 0, 1]),
        ("a b", ("--no_special_tokens",), [0, 1]),
        # Of 32 positions three are left for what follows.
        ("b " * 30 + "a b", ("--truncate_prompt",), [2] + [1] * 26 + [0, 1]),
    ],
)
@pytest.mark.parametrize("converted", ["llama"], indirect=True)
def test_a_prompt_begins_as_the_tokenizer_says(cstool, tmp_path, converted, words, prompt, flags, begin):
    expected = LOGITS[converted["model_type"]](converted, tensors_of(converted), np.array(begin))[-1]
    asked = ("--tokenizer", words, "--temperature", 0, "--max_tokens", 3, "--json", *flags)
    document = cstool(
        "run", "--mode", "infer", "--checkpoint_path", tmp_path / "a.mdl", "--prompt", prompt, *asked
    ).document
    [completion] = document["completions"]
    assert (completion["prompt_tokens"], completion["tokens"][0]) == (len(begin), int(np.argmax(expected)))


@pytest.mark.parametrize("converted", ["gpt2"], indirect=True)
def test_the_tokenizer_goes_along_to_hugging_face(conversion, tmp_path, converted, words):
    for named, folder in ((words, "of_words"), ("bytes", "of_bytes")):
        asked = ("--to", "hf", "--tokenizer", named)
        outcome = conversion("a.mdl", folder, *asked)
        assert (outcome.code, outcome.stdout.count("note:"), outcome.stderr) == (0, 0, "")

    def read(name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / name).read_text())
        return found

    config, of_words = read("of_words/config.json"), read("of_words/tokenizer_config.json")
    assert (config["bos_token_id"], config["eos_token_id"]) == (2, 3)
    assert (of_words["bos_token"], of_words["eos_token"], of_words["tokenizer_class"]) == (
        *("<s>", "</s>"),
        "PreTrainedTokenizerFast",
    )
    assert (tmp_path / "of_words" / "tokenizer.json").read_bytes() == words.read_bytes()
    config = read("of_bytes/config.json")
    assert (config["bos_token_id"], config["eos_token_id"]) == (None, 0)
    loaded = tokenizers.Tokenizer.from_file(str(tmp_path / "of_bytes" / "tokenizer.json"))
    text = "any \x00\t\n text,  Größe \u4f60\U0001f600 don't"
    assert loaded.encode(text).ids == list(text.encode())
    assert loaded.decode(list(text.encode())) == text


def test_a_tokenizer_of_more_tokens_than_the_model_has_is_refused(conversion, tmp_path, words):
    hf.write_hf(
        tmp_path / "hf", {**hf.LLAMA_CONFIG, "vocab_size": 3}, hf.llama_tensors({**hf.LLAMA_CONFIG, "vocab_size": 3})
    )
    assert conversion("hf", "b.mdl").code == 0
    asked = ("--to", "hf", "--tokenizer", words)
    outcome = conversion("b.mdl", "back", *asked)
    message = "TMP/words.json: must have at most the 3 tokens of the model, got 5"
    assert outcome == (2, "", error(message, "--tokenizer names that of the training data"))
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("converted", ["llama"], indirect=True)
def test_a_converted_model_brings_its_tokenizer_and_is_trained_with_its_own_params(
    cstool, conversion, tmp_path, converted, words
):
    (tmp_path / "hf" / "tokenizer.json").write_bytes(words.read_bytes())
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"eos_token": {"content": "b"}, "padding_side": "left"}')
    (tmp_path / "hf" / "chat_template.jinja").write_text("{{ messages[0].content }}")
    said = [f"{what} saved to TMP/b.{end}\n" for what, end in BESIDE.items()]
    assert conversion("hf", "b.mdl") == (0, "".join(said), "")
    assert (tmp_path / "b.tokenizer.json").read_bytes() == words.read_bytes()
    assert (tmp_path / "b.chat_template.jinja").read_text() == "{{ messages[0].content }}"
    # What generates finds it, and so does the way back.
    asked = ("--mode", "infer", "--checkpoint_path", tmp_path / "b.mdl", "--prompt", "a b", "--max_tokens", 2, "--json")
    assert cstool("run", *asked).document["completions"][0]["prompt_tokens"] == 3
    assert conversion("b.mdl", "back", "--to", "hf").code == 0
    assert (tmp_path / "back" / "tokenizer.json").read_bytes() == words.read_bytes()
    assert json.loads((tmp_path / "back" / "tokenizer_config.json").read_text())["eos_token"] == "b"
    assert (tmp_path / "back" / "chat_template.jinja").read_text() == "{{ messages[0].content }}"
    # The comments of the params say what makes the data.
    [made] = [line for line in (tmp_path / "b.yaml").read_text().splitlines() if "data prepare" in line]
    (tmp_path / "texts.txt").write_text("a b a a b " * 300)
    typed = made.removeprefix("#   cstool ").replace("TEXTS", str(tmp_path / "texts.txt"))
    here = {name: str(tmp_path / name) for name in ("b_data", "b.tokenizer.json")}
    assert typed.endswith("--tokenizer b.tokenizer.json --begin_texts")
    assert cstool(*(here.get(word, word) for word in typed.split())).code == 0
    copied = (tmp_path / "b_data" / "tokenizer_config.json").read_text()
    assert copied == (tmp_path / "hf" / "tokenizer_config.json").read_text()
    assert cstool("config", "validate", tmp_path / "b.yaml") == (0, "Config validation was successful!\n", "")
    trained = cstool("run", "-p", tmp_path / "b.yaml", "--model_dir", tmp_path / "dir", "--max_steps", 1)
    assert trained.code == 0
    assert (
        f"{tmp_path / 'b.mdl'} has weights alone, no state of an optimizer."
        in (tmp_path / "dir" / "latest_run.log").read_text()
    )
    with CheckpointReader(tmp_path / "dir" / "checkpoint_1.mdl") as reader:
        assert reader.value("global_step") == 1
    # Nothing is written over.
    for name in ("b.mdl", "b.yaml"):
        (tmp_path / name).unlink()
    outcome = conversion("hf", "b.mdl")
    message = "Tokenizer at 'TMP/b.tokenizer.json' already exists"
    assert outcome == (2, "", error(message, "delete it or choose another name"))


def test_what_is_wrong_with_params_in_a_checkpoint_names_it_and_no_line(cstool, tmp_path, converted):
    with CheckpointReader(tmp_path / "a.mdl") as reader:
        metadata = reader.values()["__metadata__"]
    metadata[-1]["params"]["trainer"]["init"]["model"]["hidden_size"] = 50.5
    rewrite(tmp_path / "a.mdl", tmp_path / "b.mdl", __metadata__=metadata)
    outcome = cstool("run", "--mode", "infer", "--checkpoint_path", tmp_path / "b.mdl", "--prompt", "a")
    message = "TMP/b.mdl: trainer.init.model.hidden_size must be a whole number, got 50.5"
    assert outcome == (2, "", error(message))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_without_prefix_in_shards_with_buffers_and_a_stored_tie_it_is_the_same_model(conversion, tmp_path, family):
    config = MODELS["gpt2" if family == "gpt2" else "llama, tied"]
    tensors = tensors_of(config)
    plain, other = tmp_path / "plain.mdl", tmp_path / "other.mdl"
    hf.write_hf(tmp_path / "plain", config, tensors)
    bare = {name.removeprefix("transformer.").removeprefix("model."): tensor for name, tensor in tensors.items()}
    bare["lm_head.weight"] = bare["wte.weight" if family == "gpt2" else "embed_tokens.weight"]
    if family == "gpt2":
        bare |= {"h.0.attn.bias": np.ones((1, 1, 4, 4), bool), "h.2.attn.masked_bias": np.float32(-1e4).reshape(())}
    else:
        bare["layers.1.self_attn.rotary_emb.inv_freq"] = np.ones(4, np.float32)
    hf.write_hf(tmp_path / "other", config, bare, shards=3)
    assert conversion("plain", plain).code == 0
    index = tmp_path / "other" / "model.safetensors.index.json"
    assert conversion(index, other, "--from", "hf").code == 0
    assert contents(plain) == contents(other)


def test_in_shards_on_the_way_out_no_file_is_larger_than_asked_and_it_reads_back(cstool, conversion, tmp_path):
    config = hf.LLAMA_CONFIG
    hf.write_hf(tmp_path / "hf", config, tensors_of(config))
    assert conversion("hf", "a.mdl").code == 0
    command = ("checkpoint", "convert", tmp_path / "a.mdl", tmp_path / "shards", "--to", "hf")
    assert cstool(*command, "--shard_size", "60KB").code == 0
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())
    files = sorted((tmp_path / "shards").glob("*.safetensors"))
    assert sorted(set(index["weight_map"].values())) == [file.name for file in files]
    assert len(files) > 3
    for file in files:
        held = hf.read_safetensors(file)
        assert sum(tensor.nbytes for tensor in held.values()) <= 60_000
        assert {name for name, of in index["weight_map"].items() if of == file.name} == held.keys()
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in tensors_of(config).values())
    assert conversion("shards", "b.mdl").code == 0
    assert contents(tmp_path / "a.mdl") == contents(tmp_path / "b.mdl")


def test_with_params_the_checkpoint_keeps_them_and_no_config_is_written(conversion, tmp_path, data):
    config = hf.GPT2_CONFIG
    hf.write_hf(tmp_path / "hf", None, tensors_of(config))
    model = {"name": "gpt2", "vocab_size": 100, "max_position_embeddings": 24, "hidden_size": 48, "num_heads": 4}
    model |= {"num_hidden_layers": 3, "filter_size": 192, "nonlinearity": "gelu_new"}
    file = gpt_params(tmp_path, data, init__model=model)
    out = tmp_path / "a.mdl"
    outcome = conversion("hf/model.safetensors", out, "-p", file)
    assert outcome == (0, "Checkpoint saved to TMP/a.mdl\n", "")
    with CheckpointReader(out) as reader:
        (metadata,) = reader.value("__metadata__")
        assert metadata["params"]["trainer"]["init"]["model"]["hidden_size"] == 48
        assert metadata["params"]["trainer"]["init"]["optimizer"]


def contents(checkpoint: Path) -> dict[str, Any]:
    with CheckpointReader(checkpoint) as reader:
        return {**saved_tensors(checkpoint), **{key: reader.link_of(key) for key in reader.keys()}}  # noqa: SIM118 - a method
