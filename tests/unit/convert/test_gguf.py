"""GGUF files: read as the package `gguf` reads them, converted as Hugging Face's files of the model are, or refused."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.convert.convert import Request, convert
from cstool.convert.gguf_reader import GgufReader
from cstool.foundation.errors import CheckpointError
from cstool.training.data import load_tokenizer
from cstool.training.kernels.quantized import quantize
from cstool.training.store import CheckpointReader
from tests.contract.refusal import refusal
from tests.reference import hf_cases
from tests.reference import hf_models as hf
from tests.reference.gguf_files import gguf_metadata, gguf_tensors, write_gguf
from tests.reference.recorded_file import unfolded

GOLDEN = Path(__file__).parents[2] / "golden" / "gguf"
AGAIN = "get or write the file anew"
CUT = f"it was cut short; {AGAIN}"
KEPT = ("gpt2", "gpt2_untied", "llama", "llama_bias", "llama_yarn", "llama_linear", "qwen2", "qwen3", "gemma2")
RECORDED = json.loads(hf_cases.RECORDED.read_text())["cases"]


def config_of(name: str) -> dict[str, Any]:
    """A config whose model a GGUF file can say."""
    if name == "gpt2_untied":
        return {**hf_cases.CASES["gpt2"], "tie_word_embeddings": False, "n_inner": 80}
    if name == "llama_bias":
        return {**hf_cases.CASES["llama"], "head_dim": 10, "attention_bias": True, "mlp_bias": True}
    found = dict(hf_cases.CASES[name])
    # The file has no such key: it is the width of a head, but in the 27B model.
    return {**found, "query_pre_attn_scalar": found["head_dim"]} if name == "gemma2" else found


def tensors_of(name: str) -> hf.Tensors:
    source = {"gpt2_untied": "gpt2_by_layer", "llama_bias": "llama_llama3"}.get(name, name)
    found = hf_cases.weights(unfolded(RECORDED[source]["tensors"]))
    if name == "llama_bias":
        found["lm_head.weight"] = found["model.embed_tokens.weight"] * 2
    return found


def read_all(path: Path) -> tuple[dict[str, np.ndarray], Any]:
    with CheckpointReader(path) as reader:
        document = reader.values()["__metadata__"][-1]["params"]["trainer"]["init"]["model"]
        return {name: reader.read(name) for name in reader.tensor_names()}, document


@pytest.mark.parametrize("name", KEPT)
def test_a_model_is_the_same_from_either_format(name, tmp_path):
    config, tensors = config_of(name), tensors_of(name)
    hf.write_hf(tmp_path / "hf", config, tensors, shards=1)
    write_gguf(tmp_path / "a.gguf", gguf_metadata(config), gguf_tensors(config, tensors))
    convert(Request(tmp_path / "hf", tmp_path / "theirs.mdl"))
    done = convert(Request(tmp_path / "a.gguf", tmp_path / "ours.mdl"))
    assert (done.source_format, done.target_format) == ("gguf", "dense")
    assert done.notes == ("the tokenizer of the file is left out: there is none",)
    (theirs, there), (ours, here) = read_all(tmp_path / "theirs.mdl"), read_all(tmp_path / "ours.mdl")
    assert here == there
    assert ours.keys() == theirs.keys()
    for key, array in theirs.items():
        np.testing.assert_array_equal(ours[key], array)
    convert(Request(tmp_path / "a.gguf", tmp_path / "again", to="hf"))
    convert(Request(tmp_path / "again", tmp_path / "again.mdl"))
    for key, array in read_all(tmp_path / "again.mdl")[0].items():
        np.testing.assert_array_equal(array, theirs[key])


def test_the_factors_of_a_llama_3_1_are_known(tmp_path):
    config, tensors = hf_cases.CASES["llama"], tensors_of("llama")
    scaling = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 8192
    # Pairs of a width of 8 turn once in 6, 167, 4443 and 118,157 tokens.
    length = 2 * np.pi * 500000 ** (np.arange(4) / 4)
    smooth = (8192 / length - 1) / 3
    factors = np.where(length < 2048, 1, np.where(length > 8192, 32, 1 / ((1 - smooth) / 32 + smooth)))
    named = {**gguf_tensors(config, tensors), "rope_freqs.weight": factors.astype(np.float32)}
    metadata = gguf_metadata({**config, "rope_theta": 500000.0})
    write_gguf(tmp_path / "a.gguf", metadata, named)
    convert(Request(tmp_path / "a.gguf", tmp_path / "a.mdl"))
    hf.write_hf(tmp_path / "hf", {**config, "rope_theta": 500000.0, "rope_scaling": scaling}, tensors, shards=1)
    convert(Request(tmp_path / "hf", tmp_path / "b.mdl"))
    assert read_all(tmp_path / "a.mdl")[1] == read_all(tmp_path / "b.mdl")[1]
    named["rope_freqs.weight"] = np.array([1, 2, 3, 32], np.float32)
    write_gguf(tmp_path / "b.gguf", metadata, named)
    rule = "rope_freqs.weight must have the factors of a Llama 3.1, it has others"
    with refusal(CheckpointError, f"{tmp_path}/b.gguf: {rule}", "such a model is converted from its safetensors files"):
        convert(Request(tmp_path / "b.gguf", tmp_path / "c.mdl"))


def test_tensors_of_all_types_are_those_of_the_package():
    """The file and the numbers were written by `gguf` 0.19.0."""
    with np.load(GOLDEN / "types.npz") as file:
        expected = dict(file)
    with GgufReader(GOLDEN / "types.gguf") as reader:
        assert reader.metadata["general.name"] == "ä"
        assert reader.metadata["some.list"] == [1.5, 2.5]
        assert reader.metadata["some.texts"] == ["a", "bc"]
        assert reader.metadata["some.flag"] is True
        for name in expected:
            reader.check_dtype(name)
            found = reader.rows(name, 0, 2)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, expected[name])
            np.testing.assert_array_equal(reader.rows(name, 1, 2), expected[name][1:])
            np.testing.assert_array_equal(reader.columns(name, 3, 5), expected[name][:, 3:5])
        assert sorted(reader.names()) == sorted([*expected, "Q4_K"])
        rule = "the type of Q4_K must be one of F32, F16, Q4_0, Q4_1, Q8_0, Q6_K, BF16, MXFP4, got Q4_K"
        with refusal(
            CheckpointError,
            f"{GOLDEN}/types.gguf: {rule}",
            "llama-quantize of llama.cpp writes files of these types",
        ):
            reader.check_dtype("Q4_K")


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "MXFP4"])
def test_weights_of_a_file_have_their_codes_again(name):
    with GgufReader(GOLDEN / "types.gguf") as reader:
        weight = reader.rows(name, 0, 2)
    np.testing.assert_array_equal(quantize(weight, name.lower()).dense(), weight)


def test_byte_pairs_come_along(tmp_path):
    config = {**hf_cases.CASES["qwen2"]}
    tensors = tensors_of("qwen2")
    letters = [chr(code) for code in range(97, 97 + 26)]
    tokens = [*letters, "Ġ", "th", "the", "Ġthe", *(f"x{n}" for n in range(29)), "<|im_start|>", "<|endoftext|>"]
    assert len(tokens) == config["vocab_size"]
    about = {
        "model": "gpt2",
        "pre": "qwen2",
        "tokens": tokens,
        "token_type": [1] * 59 + [3, 3],
        "merges": ["t h", "th e", "Ġ the"],
        "eos_token_id": 60,
        "bos_token_id": 59,
        "add_bos_token": True,
    }
    metadata = {**gguf_metadata(config), **{f"tokenizer.ggml.{key}": value for key, value in about.items()}}
    write_gguf(tmp_path / "a.gguf", metadata | {"tokenizer.chat_template": "{{ x }}"}, gguf_tensors(config, tensors))
    done = convert(Request(tmp_path / "a.gguf", tmp_path / "a.mdl"))
    assert done.notes == ()
    assert done.tokenizer_path == tmp_path / "a.tokenizer.json"
    tokenizer = load_tokenizer(tmp_path / "a.tokenizer.json")
    assert tokenizer.encode("the the<|endoftext|>") == [28, 29, 60]
    assert tokenizer.decode([28, 29]) == "the the"
    assert (tokenizer.end_of_text, list(tokenizer.begin)) == (60, [59])
    beside = json.loads((tmp_path / "a.tokenizer_config.json").read_text())
    assert beside == {"bos_token": "<|im_start|>", "eos_token": "<|endoftext|>", "chat_template": "{{ x }}"}
    done = convert(Request(tmp_path / "a.gguf", tmp_path / "hf", to="hf"))
    assert done.notes[0] == "the tokenizer of the file is left out: a checkpoint gets one, a folder does not"


def test_special_tokens_before_all_others_keep_their_numbers(tmp_path):
    config = hf_cases.CASES["gpt2"]
    tokens = ["<|end|>", "a", "<tool>", "b", "ab"]
    about = {"model": "gpt2", "tokens": tokens, "token_type": [3, 1, 4, 1, 1], "merges": ["a b"], "eos_token_id": 0}
    metadata = gguf_metadata(config) | {f"tokenizer.ggml.{key}": value for key, value in about.items()}
    write_gguf(tmp_path / "a.gguf", metadata, gguf_tensors(config, tensors_of("gpt2")))
    convert(Request(tmp_path / "a.gguf", tmp_path / "a.mdl"))
    tokenizer = load_tokenizer(tmp_path / "a.tokenizer.json")
    assert (tokenizer.encode("ab<tool>b<|end|>"), tokenizer.end_of_text) == ([4, 2, 3, 0], 0)


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"model": "llama"}, "tokenizer.ggml.model must be gpt2, got llama"),
        ({"pre": "new"}, "tokenizer.ggml.pre must be one of gpt-2, llama-bpe, qwen2, got new"),
        ({"tokens": [1]}, "tokenizer.ggml.tokens must be a list of texts"),
        ({"merges": 3}, "tokenizer.ggml.merges must be a list of texts"),
        ({"tokens": ["a", "a"]}, "tokenizer.ggml.tokens must have each token once"),
        ({"token_type": [1]}, "tokenizer.ggml.token_type must have a number for each token"),
    ],
)
def test_other_tokenizers_are_left_out_with_a_note(about, why, tmp_path):
    config = hf_cases.CASES["gpt2"]
    found = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b"], "merges": ["a b"], **about}
    metadata = gguf_metadata(config) | {f"tokenizer.ggml.{key}": value for key, value in found.items()}
    write_gguf(tmp_path / "a.gguf", metadata, gguf_tensors(config, tensors_of("gpt2")))
    done = convert(Request(tmp_path / "a.gguf", tmp_path / "a.mdl"))
    assert done.notes == (f"the tokenizer of the file is left out: {why}",)
    assert done.tokenizer_path is None


def write_llama(path: Path, change: dict[str, Any], tensors: dict[str, Any] | None = None) -> None:
    """Write a file of a small Llama with some keys changed, or left out (None), and some tensors."""
    config = hf_cases.CASES["llama"]
    metadata = gguf_metadata(config) | change
    named: dict[str, Any] = {**gguf_tensors(config, tensors_of("llama")), **(tensors or {})}
    keys = {key: value for key, value in metadata.items() if value is not None}
    write_gguf(path, keys, {name: array for name, array in named.items() if array is not None})


ELSE = "other models are converted from safetensors files"
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str | None]] = [
    (
        {"general.architecture": "mamba"},
        {},
        "general.architecture must be one of gpt2, llama, qwen2, qwen3, gemma2, got 'mamba'",
        ELSE,
    ),
    (
        {"general.architecture": None},
        {},
        "general.architecture must be one of gpt2, llama, qwen2, qwen3, gemma2, got None",
        ELSE,
    ),
    ({"llama.block_count": None}, {}, "llama.block_count must be a number, got none", None),
    ({"llama.attention.head_count": [6, 6]}, {}, "llama.attention.head_count must be a number, got a list", None),
    ({"llama.context_length": "long"}, {}, "llama.context_length must be a number, got 'long'", None),
    ({"llama.logit_scale": 2.0}, {}, "must have no key llama.logit_scale: it is not known here", None),
    (
        {"llama.expert_count": 8},
        {},
        "llama.expert_count must be 0, got 8",
        "mixtures of experts are converted from safetensors files",
    ),
    ({"llama.rope.dimension_count": 4}, {}, "llama.rope.dimension_count must be the width of a head (8), got 4", None),
    (
        {"llama.rope.scaling.type": "dynamic"},
        {},
        "llama.rope.scaling.type must be none, linear or yarn, got 'dynamic'",
        None,
    ),
    ({}, {"token_embd.weight": None}, "lacks the tensor token_embd.weight of this model", None),
    (
        {},
        {"blk.1.ffn_up.weight": None},
        "lacks the tensor layers.1.mlp.up_proj.weight of this model",
        "its metadata describes a model with other tensors",
    ),
    ({}, {"blk.1.ssm.weight": np.ones(2, np.float32)}, "has the tensor blk.1.ssm.weight, which this model lacks", None),
    (
        {},
        {"output_norm.weight": ((48,), 12, bytes(144))},
        "output_norm.weight is damaged: its rows must be whole blocks of 256, got 48",
        AGAIN,
    ),
    ({"general.alignment": 0}, {}, "general.alignment must be a count, got 0", AGAIN),
    ({}, {"a": ((1,) * 5, 0, bytes(4))}, "a is damaged: it must have 1 to 4 dimensions, got 5", AGAIN),
    ({}, {"a": ((0,), 0, b"")}, "a is damaged: its rows must be whole blocks of 1, got 0", AGAIN),
]


@pytest.mark.parametrize(("change", "tensors", "rule", "hint"), REFUSED, ids=[each[2][:40] for each in REFUSED])
def test_foreign_and_damaged_files_are_refused(change, tensors, rule, hint, tmp_path):
    write_llama(tmp_path / "a.gguf", change, tensors)
    with refusal(CheckpointError, f"{tmp_path}/a.gguf: {rule}", hint):
        convert(Request(tmp_path / "a.gguf", tmp_path / "a.mdl"))
    assert [*tmp_path.iterdir()] == [tmp_path / "a.gguf"]


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "a.gguf"
    write_llama(path, {})
    whole = path.read_bytes()
    # Behind its last tensor a file may have nothing.
    for size in [*range(4, 200, 7), *range(300, len(whole) - 32, 4001)]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError) as caught, GgufReader(path):
            pass
        assert caught.value.hint == CUT
    path.write_bytes(whole[:100])
    rule = "its header must lie in the file, it goes on beyond its 100 bytes"
    with refusal(CheckpointError, f"{path}: {rule}", CUT), GgufReader(path):
        pass
    path.write_bytes(whole[:-64])
    with pytest.raises(CheckpointError, match="is damaged: its data must lie in the file, whose"), GgufReader(path):
        pass


def test_what_is_no_such_file_is_refused(tmp_path):
    path = tmp_path / "a.gguf"
    big_endian = b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    twice = b"".join(struct.pack("<Q", 1) + b"k" + struct.pack("<IB", 0, 1) for _ in range(2))
    rule = "must be a GGUF file of version 2 or 3, in little-endian order"
    for content, problem, hint in (
        (b"", "must begin with GGUF, it is empty", AGAIN),
        (b"PK\x03\x04...", "must begin with GGUF, got b'PK\\x03\\x04'", "it is no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), f"{rule}, got version 1", None),
        (big_endian, f"{rule}, got version {3 << 24}", None),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + twice, "its metadata must have k once, got it twice", AGAIN),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99),
            "its metadata must be of types 0 to 12, got type 99",
            AGAIN,
        ),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, 2**60),
            "its header must lie in the file, it goes on beyond its 49 bytes",
            CUT,
        ),
    ):
        path.write_bytes(content)
        with refusal(CheckpointError, f"{path}: {problem}", hint), GgufReader(path):
            pass
    path.unlink()
    missing = f"{path}: must be a file that can be read, got: No such file or directory"
    with refusal(CheckpointError, missing), GgufReader(path):
        pass


def test_a_tensor_twice_and_one_of_a_type_nobody_knows(tmp_path):
    path = tmp_path / "a.gguf"
    write_gguf(path, {}, {"a": np.ones(8, np.float32), "b": np.ones(8, np.float32)})
    path.write_bytes(path.read_bytes().replace(b"\x01\0\0\0\0\0\0\0b", b"\x01\0\0\0\0\0\0\0a", 1))
    with refusal(CheckpointError, f"{path}: must have a once, got it twice", AGAIN), GgufReader(path):
        pass
    write_gguf(path, {}, {"a": ((8,), 77, bytes(8))})
    rule = "the type of a must be one of F32, F16, Q4_0, Q4_1, Q8_0, Q6_K, BF16, MXFP4, got type 77"
    hint = "llama-quantize of llama.cpp writes files of these types"
    with GgufReader(path) as reader, refusal(CheckpointError, f"{path}: {rule}", hint):
        reader.check_dtype("a")
