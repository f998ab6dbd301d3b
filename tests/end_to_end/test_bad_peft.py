"""Adapters of PEFT that cannot be converted: the whole message, and that nothing is left.

In the expected messages TMP is the folder of the test.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.convert.adapters import write_adapters
from cstool.convert.convert import Request, convert
from cstool.convert.described import describe
from cstool.convert.peft import Adapter
from cstool.model.ir import Graph, OpKind
from cstool.model.params.sections.tuning import Adapters
from cstool.training.store.saved_state import no_progress
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.test_convert_dpr import write_dpr
from tests.end_to_end.test_convert_hf_families import KINDS, tensors_of
from tests.reference import hf_models as hf
from tests.reference.peft_folders import TABLE, adapters, write_peft

FILE, CONFIG = "adapter_model.safetensors", "adapter_config.json"
MERGE = "hint: merge it into its base, by merge_and_unload of the package peft, and convert the sum"
FOLD = "hint: cstool checkpoint merge folds them into the weights beside which they are"
ATTENTION = "transformer.h.0.attn.c_attn"
A, B = (f"base_model.model.{ATTENTION}.lora_{side}.weight" for side in "AB")


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A folder with a GPT-2, as base.mdl too, with zeros as s.mdl, and adapters of it, as a.mdl
    too."""
    folder = tmp_path_factory.mktemp("written")
    tensors = hf.gpt2_tensors()
    hf.write_hf(folder / "hf", hf.GPT2_CONFIG, tensors)
    convert(Request(folder / "hf", folder / "base.mdl"))
    write_peft(folder / "peft", adapters(tensors, ["c_attn"], is_transposed=True))
    convert(Request(folder / "peft", folder / "a.mdl", base=folder / "base.mdl"))
    convert(Request(folder / "base.mdl", folder / "s.mdl", to="sparse", sparsity=0.5))
    return folder


@pytest.fixture
def here(tmp_path, written) -> Path:
    """A copy of it."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "kind": lambda t: t.update({A.replace("lora_A.weight", "lora_embedding_A"): t[A]}),
    "positions": lambda t: t.update({f"base_model.model.transformer.wpe.{end}": t[A] for end in TABLE}),
    "lengths": lambda t: t.update({f"base_model.model.{ATTENTION}.lora_magnitude_vector": t[B][:, 0]}),
    "other base": lambda t: t.update({f"base_model.model.{ATTENTION}.base_layer.weight": t[A]}),
    "saved": lambda t: t.update({"base_model.model.lm_head.weight": t[A]}),
    "unknown": lambda t: t.update({n.replace("h.0", "h.7"): t[n] for n in (A, B)}),
    "norm": lambda t: t.update({n.replace("attn.c_attn", "ln_1"): t[n] for n in (A, B)}),
    "twice": lambda t: t.update({n.replace("transformer.", ""): t[n] for n in (A, B)}),
    "no B": lambda t: t.pop(B),
    "no A": lambda t: t.pop(A),
    "inputs": lambda t: t.update({A: np.ones((2, 49), np.float32)}),
    "outputs": lambda t: t.update({B: np.ones((48, 2), np.float32)}),
    "flat": lambda t: t.update({A: np.ones(96, np.float32)}),
    "rank": lambda t: t.update({A: np.ones((3, 48), np.float32)}),
    "rank of B": lambda t: t.update({B: np.ones((144, 4), np.float32)}),
    "doubles": lambda t: t.update({A: t[A].astype(np.float64)}),
    "NaN": lambda t: t[B].__setitem__((5, 1), np.nan),
    "none": lambda t: t.clear(),
}
ALONE = f"TMP/peft/{FILE}: must have A and B of linear layers and tables alone, got"
OF_BASE = f"TMP/peft/{FILE}: must have adapters of linear layers of the base, got"
GPT2 = "hint: the base is a gpt2 there; --model_type names another family that computes the same"
TAKES_NONE = "hint: experts, tables of positions or of two stacks, norms and convolutions take no adapters here"
SAVED = f"base_model.model.{ATTENTION}.base_layer.weight"
NO = f"TMP/peft/{FILE}: must have no base_model.model.{ATTENTION}"
TENSORS = rows(f"""\
kind => {NO}.lora_embedding_A, the module is of another kind
positions => {OF_BASE} transformer.wpe\n{TAKES_NONE}
lengths => {NO}.lora_magnitude_vector, adapter_config.json says use_dora: false
other base => TMP/peft/{FILE}: {SAVED} must have the numbers of the base, has others\n{MERGE}
saved => {ALONE} base_model.model.lm_head.weight\n{MERGE}
unknown => {OF_BASE} transformer.h.7.attn.c_attn\n{GPT2}
norm => {OF_BASE} transformer.h.0.ln_1\n{TAKES_NONE}
twice => TMP/peft/{FILE}: must have h.0.attn.c_attn once, got {ATTENTION} and h.0.attn.c_attn
no B => TMP/peft/{FILE}: must have {B} beside {A}, lacks it
no A => TMP/peft/{FILE}: must have {A} beside {B}, lacks it
inputs => TMP/peft/{FILE}: {A} must be 2 x 48, as in the base, got 2 x 49
outputs => TMP/peft/{FILE}: {B} must be 144 x 2, as in the base, got 48 x 2
flat => TMP/peft/{FILE}: {A} must be 2 x 48, as in the base, got 96
rank => TMP/peft/{FILE}: {A} must be 2 x 48, as adapter_config.json says, got 3 x 48
rank of B => TMP/peft/{FILE}: {B} must be 144 x 2, as adapter_config.json says, got 144 x 4
doubles => TMP/peft/{FILE}: the dtype of {A} must be F32, F16 or BF16, got F64
NaN => TMP/peft/{FILE}: {B} must be finite, has NaN or infinite numbers
none => TMP/peft/{FILE}: must have adapters in it, it has none
""")


def refused(conversion: Callable[..., Any], folder: Path, message: str, *typed: object) -> None:
    """Check that a conversion refuses with just this message, and leaves all as it was."""
    before = sorted(folder.iterdir())
    assert (conversion(*typed), sorted(folder.iterdir())) == ((2, "", error(message)), before)


@pytest.mark.parametrize(("what", "message"), TENSORS)
def test_tensors_that_are_no_adapters_of_the_base_are_refused_by_name(conversion, here, what, message):
    tensors = adapters(hf.gpt2_tensors(), ["c_attn"], is_transposed=True)
    CHANGES[what](tensors)
    hf.write_safetensors(here / "peft" / FILE, tensors)
    refused(conversion, here, message, "peft", "b.mdl", "--base", here / "base.mdl")


LACKS = f"TMP/peft/{CONFIG}: must have no keys of parts that adapters lack here, got"
UNDONE = "hint: save_pretrained of the package peft has path_initial_model_for_weight_conversion, which undoes it"
CONFIGS = rows(f"""\
{{"peft_type": "IA3"}} => TMP/peft/{CONFIG}: peft_type must be LORA, got IA3\n{MERGE}
{{"use_dora": true}} =>
    TMP/peft/{FILE}: must have base_model.model.{ATTENTION}.lora_magnitude_vector beside {A}, lacks it
{{"use_dora": 1}} => TMP/peft/{CONFIG}: use_dora must be true or false, got 1
{{"bias": "all"}} => {LACKS} bias: all\n{MERGE}
{{"modules_to_save": ["lm_head"], "lora_bias": true}} => {LACKS} lora_bias: true, modules_to_save: a list\n{MERGE}
{{"modules_to_save": ["score"]}} =>
    TMP/peft/{CONFIG}: modules_to_save must be left out for a GPT2LMHeadModel, which tells no classes, got score
{{"trainable_token_indices": [1]}} => {LACKS} trainable_token_indices: a list\n{MERGE}
{{"layer_replication": [[0, 2]]}} => {LACKS} layer_replication: a list\n{MERGE}
{{"target_parameters": ["x"]}} => {LACKS} target_parameters: a list\n{MERGE}
{{"of_another_release": 1}} => {LACKS} of_another_release: 1\n{MERGE}
{{"init_lora_weights": "pissa"}} =>
    TMP/peft/{CONFIG}: init_lora_weights must be of a kind that leaves the base as it is, got pissa\n{UNDONE}
{{"r": 0}} => TMP/peft/{CONFIG}: r must be a whole number, at least 1, got 0
{{"r": true}} => TMP/peft/{CONFIG}: r must be a whole number, at least 1, got true
{{"lora_alpha": 0}} => TMP/peft/{CONFIG}: lora_alpha must be a number above 0, got 0
{{"lora_dropout": 1}} => TMP/peft/{CONFIG}: lora_dropout must be from 0 to below 1, got 1
{{"use_rslora": "yes"}} => TMP/peft/{CONFIG}: use_rslora must be true or false, got yes
{{"rank_pattern": [1]}} => TMP/peft/{CONFIG}: rank_pattern must be a mapping from modules, got a list
{{"rank_pattern": {{"c_attn": 1.5}}}} =>
    TMP/peft/{CONFIG}: rank_pattern.c_attn must be a whole number, at least 1, got 1.5
{{"alpha_pattern": {{"c_attn": -1}}}} =>
    TMP/peft/{CONFIG}: alpha_pattern.c_attn must be a number above 0, got -1
{{"alpha_pattern": {{"(": 1}}}} => TMP/peft/{CONFIG}: alpha_pattern must be by regular expressions, got (
""")


@pytest.mark.parametrize(("keys", "message"), CONFIGS)
def test_configs_of_what_adapters_lack_here_are_refused_by_key(conversion, here, keys, message):
    config = json.loads((here / "peft" / CONFIG).read_text())
    (here / "peft" / CONFIG).write_text(json.dumps({**config, **json.loads(keys)}))
    refused(conversion, here, message, "peft", "b.mdl", "--base", here / "base.mdl")


FOLDER = "must be the folder of an adapter of PEFT, lacks"
OTHERS = rows(f"""\
peft b.mdl => TMP/peft: must be a whole model, got an adapter (LORA) of someone/model
    hint: cstool checkpoint convert TMP/peft peft.mdl --base BASE.mdl makes a checkpoint of it, beside that model's
peft b.mdl --from peft => --base: must be given for an adapter: it is the checkpoint of the model beside it
peft b.mdl --from hf --base base.mdl => --base: must stand beside an adapter of PEFT, got --from hf
peft b --to hf --base base.mdl => --to: must be left out for an adapter, got hf
peft b.mdl --base none.mdl => TMP/none.mdl: a checkpoint must be a file that can be read, got: No such file or directory
    hint: cstool checkpoint list shows the checkpoints of a folder
peft b.mdl --base hf => TMP/hf: must be a checkpoint of cstool, got a model of Hugging Face
    hint: cstool checkpoint convert TMP/hf hf.mdl makes one of it
peft b.mdl --base s.mdl => --base: must have dense weights, got sparse ones: TMP/s.mdl
    hint: cstool checkpoint convert TMP/s.mdl TARGET --to dense fills them in
peft b.mdl --base a.mdl => --base: must be a whole model, got adapters: TMP/a.mdl\n{FOLD}
peft base.mdl --base base.mdl => Checkpoint at 'TMP/base.mdl' already exists
    hint: delete it or choose another name
peft b.mdl --base base.mdl --base_name x => --base_name: must stand beside --to peft, got no --to
hf b.mdl --base base.mdl => TMP/hf: {FOLDER} {CONFIG}\nhint: --base is for adapters alone
base.mdl b.mdl --base base.mdl => TMP/base.mdl: {FOLDER} {CONFIG}\nhint: --base is for adapters alone
bare b.mdl --base base.mdl => TMP/bare: {FOLDER} {FILE}\nhint: files of Python code (.bin) are not read
hf b --to peft => --to: must be dense, sparse or hf for hf, got peft
base.mdl b --to peft => TMP/base.mdl: must have adapters to be written for PEFT, it has none
a.mdl hf --to peft => TMP/hf: must be a new or an empty folder, got one with files in it
    hint: delete it or choose another name
a.mdl no/b --to peft => TMP/no/b: an adapter of 4608 bytes must be writable here, got: No such file or directory
    hint: create the folder that it goes to first
a.mdl b --to hf => TMP/a.mdl: must be a whole model, got adapters\n{FOLD}; --to peft writes them
a.mdl b.mdl --to sparse --sparsity 0.5 => TMP/a.mdl: must be a whole model, got adapters\n{FOLD}; --to peft writes them
""")


@pytest.mark.parametrize(("arguments", "message"), OTHERS)
def test_adapters_and_models_in_each_others_place_are_told_the_way_on(conversion, here, arguments, message):
    (here / "bare").mkdir()
    shutil.copy(here / "peft" / CONFIG, here / "bare" / CONFIG)
    source, target, *flags = arguments.split()
    places = ("--base", "none.mdl", "hf", "base.mdl", "a.mdl", "s.mdl")
    typed = [here / flag if flag in places[1:] and flags[n - 1] == "--base" else flag for n, flag in enumerate(flags)]
    refused(conversion, here, message, source, target, *typed)


def of_first_layer(graph: Graph) -> dict[str, Adapter]:
    """Return an adapter of ones beside the first linear layer of a graph, by its name."""
    layer = next(op.name for op in graph.ops if op.kind is OpKind.LINEAR)
    outputs, inputs = graph.weights[f"{layer}.weight"].shape
    return {layer: Adapter(np.ones((1, inputs), np.float32), np.ones((outputs, 1), np.float32), Adapters(1, ()))}


def test_ranks_above_those_of_a_layer_are_refused(conversion, here):
    """All of PEFT's adapters may have them, here those that save something."""
    beside = adapters(hf.gpt2_tensors(), ["c_attn"], rank=49, is_transposed=True)
    write_peft(here / "wide", beside, r=49)
    layer = "transformer_decoder.layers.0.self_attn.proj_q_dense_layer"
    message = f"TMP/wide/{CONFIG}: rank must be at most 48, the smaller side of {layer}, got 49"
    refused(conversion, here, message, "wide", "b.mdl", "--base", here / "base.mdl")


def test_a_convolution_has_no_adapter_for_peft(conversion, here):
    """The projection of a vision transformer's patches is one there."""
    hf.write_hf(here / "vit", KINDS["others"].CASES["vit"], tensors_of("others", "vit"))
    convert(Request(here / "vit", here / "vit.mdl"))
    described = describe(here / "vit.mdl", "cstool", None)
    layers = of_first_layer(described.graph)
    layer = "vit_model.embedding_layer.linear_proj"
    assert list(layers) == [layer]
    write_adapters(here / "v.mdl", here / "vit.mdl", described, layers, "here", no_progress)
    message = f"TMP/b: adapters of a vit must be of its linear layers, got {layer}"
    refused(conversion, here, message, "v.mdl", "b", "--to", "peft")


def test_of_two_encoders_there_are_no_adapters_for_peft(conversion, here):
    write_dpr(here / "two")
    convert(Request(here / "two", here / "two.mdl"))
    base = here / "two.mdl"
    message = "--base: must be one model of Hugging Face, got 2: TMP/two.mdl"
    refused(conversion, here, message, "peft", "b.mdl", "--base", base)
    described = describe(base, "cstool", None)
    write_adapters(here / "t.mdl", base, described, of_first_layer(described.graph), "here", no_progress)
    refused(conversion, here, "TMP/t.mdl: must be one model of Hugging Face, got 2", "t.mdl", "b", "--to", "peft")
