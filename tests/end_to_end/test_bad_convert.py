"""Conversions that cannot be: what is said, and that nothing is left of them.

In the expected messages TMP is the folder of the test.
"""

import json
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.convert import source as source_module
from cstool.convert.convert import Request, convert
from cstool.convert.hf_families import MODEL_TYPES
from cstool.convert.safetensors_writer import SafetensorsWriter
from cstool.convert.source import CstoolSource
from cstool.training.store import CheckpointWriter
from tests.end_to_end.disk import DiskUsage, largest_file
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import gpt_params, run_file
from tests.reference import hf_models as hf

LAYER = "transformer_decoder.layers"
PARAMS = "--params names the file of the model"


@pytest.fixture(scope="module")
def ready(tmp_path_factory, data) -> Path:
    """A folder with checkpoints of two steps, dense and sparse, and a model of Hugging Face."""
    folder = tmp_path_factory.mktemp("ready")
    for name, sparsity in (("dense", []), ("sparse", {"sparsity": 0.75})):
        once = {"init__loop": {"max_steps": 1}, "init__checkpoint": {"steps": 1}}
        run_file(gpt_params(folder / name, data, init__sparsity=sparsity, **once))
        (folder / name / "model_dir" / "checkpoint_1.mdl").rename(folder / f"{name}.mdl")
    hf.write_hf(folder / "hf", hf.GPT2_CONFIG, hf.gpt2_tensors())
    for name, changes in (
        ("other", {"hidden_size": 64, "filter_size": 128}),
        ("shallow", {"num_hidden_layers": 1}),
        ("deep", {"num_hidden_layers": 3}),
        ("alibi", {"position_embedding_type": "alibi"}),
    ):
        changed = {f"init__model__{key}": value for key, value in changes.items()}
        gpt_params(folder, data, **changed).rename(folder / f"{name}.yaml")
    with CheckpointWriter(folder / "nameless.mdl") as writer:
        writer.add_tensor("model.w", (2,), "float32", [np.zeros(2, np.float32)])
    with CheckpointWriter(folder / "digits.mdl") as writer:
        params = {"trainer": {"init": {"model": {"name": "fc_mnist"}}}}
        writer.add_value("__metadata__", [{"version": "1", "model_name": "fc_mnist", "params": params}])
    return folder


@pytest.fixture
def here(tmp_path, ready) -> Path:
    """The folder of the test, with links to all of it."""
    for path in (*ready.glob("*.mdl"), *ready.glob("*.yaml"), ready / "hf"):
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


KNOWN = ", ".join(MODEL_TYPES)
WHICH = "`cstool checkpoint convert --help` names the families"
TAKEN, NAMED = "hint: delete it or choose another name", f"hint: {PARAMS}"
REFUSED = rows(f"""\
dense.mdl a.mdl => --to: must be given for a checkpoint of cstool, one of dense, sparse, hf, peft
dense.mdl a.mdl --to dense => TMP/dense.mdl: must have sparse weights to become dense, it has none
dense.mdl a.mdl --to sparse =>
    TMP/dense.mdl: must have zeros to become sparse by them, the weights that are named have none
    hint: --sparsity 0.9 keeps the largest tenth of each
sparse.mdl a.mdl --to sparse =>
    TMP/sparse.mdl: must have dense weights to become sparse, those that are named are sparse already
    hint: --sparsity makes them sparser
dense.mdl sparse.mdl --to sparse --sparsity 0.5 => Checkpoint at 'TMP/sparse.mdl' already exists\n{TAKEN}
dense.mdl hf --to hf => TMP/hf: must be a new or an empty folder, got one with files in it\n{TAKEN}
dense.mdl sparse.mdl --to hf => TMP/sparse.mdl: must be a new or an empty folder, got a file\n{TAKEN}
hf / => Checkpoint at '/' already exists\n{TAKEN}
hf taken.mdl => Config at 'TMP/taken.yaml' already exists\n{TAKEN}
dense.mdl a.mdl --to sparse --sparsity 1.5 => --sparsity: must be greater than 0 and less than 1, got 1.5
    hint: it is the share of zeros: 0.9 leaves a tenth of the weights
dense.mdl a.mdl --to dense --sparsity 0.5 => --sparsity: must stand beside --to sparse, got --to dense
dense.mdl a.mdl --param_filter x => --param_filter: must stand beside --to sparse, got no --to
dense.mdl a.mdl --to sparse --shard_size 5GB => --shard_size: must stand beside --to hf, got --to sparse
dense.mdl a --to hf --shard_size 5XB =>
    --shard_size: must be a number with one of B, KB, MB, GB, KiB, MiB, GiB, got '5XB'\nhint: for example 5GB
dense.mdl a --to hf --shard_size 0GB =>
    --shard_size: must be a number with one of B, KB, MB, GB, KiB, MiB, GiB, got '0GB'\nhint: for example 5GB
dense.mdl a.mdl --to sparse --sparsity 0.5 --param_filter *norm* =>
    --param_filter: must match a matrix of a linear layer, got '*norm*'
    hint: the nearest are {", ".join(f"{LAYER}.*.self_attn.proj_{p}_dense_layer.weight" for p in "qkv")}
dense.mdl a.mdl --to sparse --sparsity 0.5 --param_filter *word_embeddings* => --param_filter: must leave out
        embedding_layer.word_embeddings.weight, which is a table of embeddings and the output layer, got
        '*word_embeddings*'
    hint: only matrices of linear layers can be sparse
dense.mdl a.mdl --to sparse --sparsity 0.5 -p other.yaml =>
    TMP/dense.mdl: embedding_layer.word_embeddings.weight must be 64 x 64, as in this model, got 64 x 32\n{NAMED}
sparse.mdl a.mdl --to dense -p other.yaml =>
    TMP/sparse.mdl: embedding_layer.word_embeddings.weight must be 64 x 64, as in this model, got 64 x 32\n{NAMED}
dense.mdl a.mdl --to sparse --sparsity 0.5 -p shallow.yaml =>
    TMP/dense.mdl: has the weight {LAYER}.1.norm1.weight, which this model lacks\n{NAMED}
dense.mdl a.mdl --to sparse --sparsity 0.5 -p deep.yaml =>
    TMP/dense.mdl: lacks the weight {LAYER}.2.norm1.weight of this model\n{NAMED}
dense.mdl a --to hf -p alibi.yaml =>
    TMP/alibi.yaml: position_embedding_type must be learned for GPT2LMHeadModel, got alibi\nhint: {WHICH}
dense.mdl a --to hf --model_type bloom =>
    TMP/dense.mdl: embedding_layer_norm must be true for BloomForCausalLM, got false
dense.mdl a --to hf --model_type gpt5 => --model_type: must be one of {KNOWN}, got gpt5
hf a.mdl --model_type gpt2 => --model_type: must stand beside --to hf, got no --to
nameless.mdl a.mdl --to sparse --sparsity 0.5 =>
    TMP/nameless.mdl: must say which model it is of, it does not\n{NAMED}
digits.mdl a --to hf => TMP/digits.mdl: must be a model that Hugging Face has, got fc_mnist\nhint: {WHICH}
dense.mdl a.mdl --from vendor -p other.yaml =>
    TMP/dense.mdl: must be a checkpoint of the vendor's, an HDF5 file whose __version__ is 0.x, it is not
hf no/a.mdl => TMP/no/a.mdl: a checkpoint of 1412032 bytes must be writable here (the folder cannot be looked at),
        got: No such file or directory
    hint: create the folder first; the previous checkpoint is untouched
dense.mdl no/a --to hf => TMP/no/a: a model of 93184 bytes must be writable here, got: No such file or directory
    hint: create the folder that it goes to first
""")


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_converted_is_refused_and_nothing_is_left(conversion, here, arguments, message):
    (here / "taken.yaml").write_text("mine")
    before = names(here)
    source, target, *flags = arguments.split()
    typed = [str(here / flag) if flag.endswith(".yaml") else flag for flag in flags]
    outcome = conversion(source, target, *typed)
    assert (outcome, names(here), (here / "taken.yaml").read_text()) == ((2, "", error(message)), before, "mine")


NOBODY_SAYS = "since it says which model this is, and there is no config.json in TMP/hf"
DESCRIBED = "hint: config.json describes a model with other tensors"
RANDOM = np.random.default_rng(1).random
TABLE = "transformer.wte.weight"
CHANGES: dict[str, Callable[[hf.Tensors], object]] = {
    "vocabulary": lambda t: t.update({TABLE: RANDOM((128, 48), np.float32)}),
    "positions": lambda t: t.update({"transformer.wpe.weight": RANDOM((30, 48), np.float32)}),
    "width": lambda t: t.update({"transformer.h.1.mlp.c_fc.weight": RANDOM((48, 100), np.float32)}),
    "missing": lambda t: t.pop("transformer.h.1.attn.c_attn.bias"),
    "unknown": lambda t: t.update({"transformer.h.0.adapter.weight": np.ones(3, np.float32)}),
    "twice": lambda t: t.update({"wte.weight": t[TABLE]}),
    "untied": lambda t: t.update({"lm_head.weight": t[TABLE] + np.float32(1)}),
    "no output": lambda t: None,
    "doubles": lambda t: t.update({TABLE: t[TABLE].astype(np.float64)}),
}


OTHERS = rows(f"""\
vocabulary => : wte.weight must be 100 x 48, as in this model, got 128 x 48
    hint: the table has another length: vocab_size: 128 in config.json fits it
positions => : wpe.weight must be 24 x 48, as in this model, got 30 x 48
    hint: the table has another length: n_positions: 30 in config.json fits it
width => : h.1.mlp.c_fc.weight must be 48 x 192, as in this model, got 48 x 100\n{DESCRIBED}
missing => : lacks the tensor h.1.attn.c_attn.bias of this model\n{DESCRIBED}
unknown => : has the tensor h.0.adapter.weight, which this model lacks\n{DESCRIBED}
twice => : must have wte.weight once, got transformer.wte.weight and wte.weight
untied => : lm_head.weight must equal wte.weight, since the model ties them, it does not
    hint: tie_word_embeddings: false in config.json keeps both
no output => : lacks the tensor lm_head.weight of this model
    hint: tie_word_embeddings: true in config.json takes the table of tokens in its place
doubles => /model.safetensors: the dtype of transformer.wte.weight must be F32, F16 or BF16, got F64
""")


@pytest.mark.parametrize(("what", "message"), OTHERS)
def test_a_model_of_hugging_face_that_is_another_one_is_refused_by_the_tensor(conversion, tmp_path, what, message):
    config, tensors = dict(hf.GPT2_CONFIG), hf.gpt2_tensors()
    config |= {"tie_word_embeddings": False} if what == "no output" else {}
    CHANGES[what](tensors)
    hf.write_hf(tmp_path / "hf", config, tensors)
    outcome = conversion("hf", "a.mdl")
    assert (outcome, names(tmp_path)) == ((2, "", error(f"TMP/hf{message}")), ["hf"])


NO_MAPPING, ANEW = "TMP/hf/config.json: must be a JSON file with a mapping", "get or write the file anew"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, error(f"--params: must be given, {NOBODY_SAYS}")),
        ("{", error(NO_MAPPING, ANEW)),
        ("[" * 10**5, error(NO_MAPPING, ANEW)),
        ('{"a": 1, "a": 2}', error(f"{NO_MAPPING}, got a twice", ANEW)),
        ("{}", error("TMP/hf/config.json: model_type must be of a family that is converted, got null", WHICH)),
        (json.dumps({**hf.GPT2_CONFIG, "n_head": 5}),
         error("TMP/hf/config.json: must describe a model: hidden_size must be a multiple of num_heads (5)")),
    ],
)  # fmt: skip
def test_a_config_that_is_missing_or_describes_no_model_is_refused(conversion, tmp_path, content, message):
    hf.write_hf(tmp_path / "hf", None, hf.gpt2_tensors())
    if content is not None:
        (tmp_path / "hf" / "config.json").write_text(content)
    outcome = conversion("hf", "a.mdl")
    assert (outcome, names(tmp_path)) == ((2, "", message), ["hf"])


def test_params_of_another_model_than_config_json_are_refused(conversion, here, data):
    outcome = conversion("hf", "a.mdl", "-p", gpt_params(here, data))
    differs = "vocab_size 64, got 100; max_position_embeddings 128, got 24; num_hidden_layers 2, got 3; "
    differs += "num_heads 2, got 4; hidden_size 32, got 48; filter_size 64, got 192; nonlinearity gelu, got gelu_new; "
    differs += "kv_heads 2, got 4; head_width 16, got 12"
    rule = f"TMP/hf/config.json: must be of the model of TMP/params.yaml: {differs}"
    hint = "without --params the model is the one that config.json describes"
    assert outcome == (2, "", error(rule, hint))


def test_a_checkpoint_that_is_damaged_inside_is_refused_and_nothing_is_left(conversion, here, ready):
    content = bytearray((ready / "sparse.mdl").read_bytes())
    source = CstoolSource(ready / "sparse.mdl")
    first = next(source.rows(f"model.{LAYER}.0.norm1.weight")).tobytes()
    source.close()
    at = content.index(first)
    content[at] ^= 0xFF
    (here / "bad.mdl").write_bytes(content)
    before = names(here)
    for target, to in (("a.mdl", "dense"), ("a", "hf")):
        outcome = conversion("bad.mdl", target, "--to", to)
        assert outcome.code == 2
        assert outcome.stderr.startswith(f"error: TMP/bad.mdl: model.{LAYER}.0.norm1.weight is damaged: its checksum")
        assert names(here) == before


@pytest.mark.parametrize(
    ("target", "to", "message"),
    [
        ("a.mdl", "sparse",
         error("TMP/a.mdl: a checkpoint of 1262592 bytes must be writable here (1000000000 bytes are free), got: File "
               "too large", "raise the limit of file sizes (ulimit -f); the previous checkpoint is untouched")),
        ("a", "hf", error("TMP/a: a model of 93184 bytes must be writable here, got: File too large",
                          "free some space or choose another folder")),
    ],
)  # fmt: skip
def test_a_disk_that_fills_up_leaves_nothing(conversion, here, monkeypatch, target, to, message):
    monkeypatch.setattr("cstool.training.store.checkpoint_writer.shutil.disk_usage", lambda _: DiskUsage(10**9))
    before = names(here)
    flags = ("--sparsity", "0.5") if to == "sparse" else ()
    with largest_file(50_000):
        outcome = conversion("dense.mdl", target, "--to", to, *flags)
    assert (outcome, names(here)) == ((2, "", message), before)


def test_a_disk_without_space_is_found_before_anything_is_written(conversion, here, monkeypatch):
    monkeypatch.setattr("cstool.convert.hf_target.shutil.disk_usage", lambda _: DiskUsage(1000))
    outcome = conversion("dense.mdl", "a", "--to", "hf")
    message = "TMP/a: 93184 bytes must be writable here, got 1000 that are free"
    assert outcome == (2, "", error(message, "free some space or choose another folder"))


@pytest.mark.parametrize(("target", "to"), [("a.mdl", "dense"), ("a", "hf")])
def test_interrupted_it_leaves_nothing(conversion, here, monkeypatch, target, to):
    original = CstoolSource.rows

    def interrupted(self: CstoolSource, array: str, multiple: int = 1) -> Iterator[Any]:
        if "layers.1.ffn" in array:
            signal.raise_signal(signal.SIGINT)
        yield from original(self, array, multiple)

    monkeypatch.setattr(CstoolSource, "rows", interrupted)
    before = names(here)
    outcome = conversion("sparse.mdl", target, "--to", to)
    assert (outcome, names(here)) == ((130, "", "interrupted\n"), before)


@pytest.mark.takes("memory is traced, which takes long")
@pytest.mark.parametrize("family", [pytest.param("gpt2", marks=pytest.mark.lab), "llama"])
def test_whatever_the_size_of_a_model_little_of_it_is_in_memory(tmp_path, monkeypatch, family):
    """Of matrices of 4 MiB, ranges of 64 KiB: from Hugging Face, to sparse, to dense, and back."""
    monkeypatch.setattr(source_module, "CHUNK_BYTES", 2**16)
    if family == "gpt2":
        config = {**hf.GPT2_CONFIG, "n_embd": 512, "n_inner": 2048, "n_layer": 1, "vocab_size": 2000}
        tensors = hf.gpt2_tensors(config)
    else:
        config = {**hf.LLAMA_CONFIG, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 1}
        tensors = hf.llama_tensors(config)
    hf.write_hf(tmp_path / "hf", config, tensors)
    convert(Request(tmp_path / "hf", tmp_path / "warm.mdl", to="sparse", sparsity=0.9))  # imports count, too
    steps = [
        Request(tmp_path / "hf", tmp_path / "dense.mdl"),
        Request(tmp_path / "dense.mdl", tmp_path / "sparse.mdl", to="sparse", sparsity=0.5),
        Request(tmp_path / "sparse.mdl", tmp_path / "again.mdl", to="dense"),
        Request(tmp_path / "dense.mdl", tmp_path / "back", to="hf"),
    ]
    for step in steps:
        tracemalloc.start()
        convert(step)
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # A few ranges, the histograms of half a million bytes, the graph, the layout of the file.
        assert peak_bytes < 3_000_000, step
    back = hf.read_safetensors(tmp_path / "back" / "model.safetensors")
    assert all(back[name].tobytes() == tensor.tobytes() for name, tensor in tensors.items())


def test_a_writer_that_fails_closes_its_file(tmp_path):
    with pytest.raises(KeyError), SafetensorsWriter(tmp_path / "a", {"x": (2,)}) as writer:
        writer.write_rows("y", 0, np.zeros(2, np.float32))
    writer.close()


ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "meta/llama"}
TAKEN_OVER = "cstool checkpoint convert TMP/hf hf.mdl --base BASE.mdl makes a checkpoint of it, beside that model's"


@pytest.mark.parametrize(
    ("files", "given", "message"),
    [
        ({"adapter_config.json": json.dumps(ADAPTER), "adapter_model.safetensors": ""}, "",
         error("TMP/hf: must be a whole model, got an adapter (LORA) of meta/llama", TAKEN_OVER)),
        ({"adapter_config.json": "{", "adapter_model.safetensors": ""}, "/adapter_model.safetensors",
         error("TMP/hf/adapter_model.safetensors: must be a whole model, got an adapter of a model that it does not "
               "name", TAKEN_OVER)),
    ],
)  # fmt: skip
def test_an_adapter_is_named_as_such_by_what_reads_checkpoints(cstool, tmp_path, files, given, message):
    (tmp_path / "hf").mkdir()
    for name, content in files.items():
        (tmp_path / "hf" / name).write_text(content)
    path = f"{tmp_path}/hf{given}"
    for command in (("checkpoint", "convert", path, tmp_path / "a.mdl"), ("run", "--mode", "infer", "--prompt", "a",
                    "--checkpoint_path", path), ("checkpoint", "info", path)):  # fmt: skip
        assert cstool(*command) == (2, "", message)


@pytest.mark.parametrize("given", ["hf", "hf/model.safetensors", "model.gguf"])
def test_a_model_of_others_where_a_checkpoint_must_be_is_told_the_way_on(cstool, here, given):
    (here / "model.gguf").write_bytes(b"GGUF")
    outcome = cstool("run", "--mode", "infer", "--prompt", "a", "--checkpoint_path", here / given)
    way = f"cstool checkpoint convert TMP/{given} {Path(given).stem}.mdl makes one of it"
    owner = "llama.cpp" if given.endswith("gguf") else "Hugging Face"
    message = f"TMP/{given}: must be a checkpoint of cstool, got a model of {owner}"
    assert outcome == (2, "", error(message, way))
    # What serves takes the folder of a run as well.
    assert cstool("serve", here / given, "--port", 0) == outcome
