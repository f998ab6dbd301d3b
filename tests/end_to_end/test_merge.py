"""`cstool checkpoint merge` compares logits before and after; a file with others does not get its name."""

import re
from pathlib import Path

import numpy as np
import pytest

from cstool.convert.adapters import write_adapters
from cstool.convert.convert import Request, convert
from cstool.convert.described import describe
from cstool.convert.peft import Adapter
from cstool.inference import merging
from cstool.model.graphs.adapters import sites_of
from cstool.model.params.sections.tuning import Adapters
from cstool.training.store import folding
from cstool.training.store.saved_state import no_progress
from tests.end_to_end.test_convert_hf_families import KINDS, tensors_of
from tests.reference import hf_models as hf
from tests.reference.peft_folders import adapters, write_peft

COMPARED = re.compile(
    r"a\.mdl: (\d+) adapters folded into b\.mdl, [\d.]+ kB\n"
    r"Logits of (\d+) random tokens before and after: differ by (\S+) of the largest, at most (\S+) by rounding\n"
)


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def adapted(kind: str, name: str) -> None:
    """Write a model as base.mdl, and as a.mdl adapters beside all that takes one."""
    hf.write_hf(Path("hf"), KINDS[kind].CASES[name], tensors_of(kind, name))
    convert(Request(Path("hf"), Path("base.mdl")))
    described, rng, layers = describe(Path("base.mdl"), "cstool", None), np.random.default_rng(4), {}
    for op in described.graph.ops:
        for module, site in sites_of(described.graph).items():
            if site.name == op.name:
                outputs, inputs = described.graph.weights[op.weights[0]].shape
                is_table = site.short == "embedding"
                a, b = (inputs, outputs)[:: -1 if is_table else 1]
                parts = [rng.standard_normal(shape, np.float32) / 4 for shape in ((2, a), (b, 2))]
                layers[module] = Adapter(*parts, Adapters(2, (), 3.0), is_table)
    write_adapters(Path("a.mdl"), Path("base.mdl"), described, layers, "here", no_progress)


@pytest.mark.parametrize(
    ("kind", "name"), [("decoders", "gpt2"), ("decoders", "gemma2"), ("decoders", "mixtral"), ("others", "t5")]
)
def test_logits_are_those_of_before_but_for_rounding(cstool, kind, name):
    """Two of them have a tied output layer; a T5 has a factor on its logits while it is tied."""
    adapted(kind, name)
    found = COMPARED.fullmatch(cstool("checkpoint", "merge", "a.mdl", "b.mdl").said)
    assert found is not None
    assert 0 < float(found[3]) < float(found[4]) < 1e-3
    document = cstool("checkpoint", "merge", "a.mdl", "c.mdl", "--json").document
    assert document["compared"]["tokens"] == int(found[2])
    assert document["compared"]["difference"] == pytest.approx(float(found[3]), rel=0.1)


def test_a_merge_that_changes_logits_leaves_no_file(cstool, monkeypatch):
    adapted("decoders", "gpt2")
    before, adapters_of = sorted(Path().iterdir()), folding.adapters_of

    def a_little_more(state):
        if (found := adapters_of(state)) is None:
            return None
        return {**found, "scales": {name: 1.01 * scale for name, scale in found["scales"].items()}}

    monkeypatch.setattr(folding, "adapters_of", a_little_more)
    refused = cstool("checkpoint", "merge", "a.mdl", "b.mdl")
    assert (refused.code, re.sub(r"\d\.\de-\d\d", "N", refused.stderr)) == (
        2,
        "error: b.mdl: logits must be those of before the merge within N of the largest, they differ by N\n"
        "hint: nothing was written; --no_compare writes it all the same\n",
    )
    assert sorted(Path().iterdir()) == before
    said = cstool("checkpoint", "merge", "a.mdl", "b.mdl", "--no_compare").said
    assert re.fullmatch(r"a\.mdl: \d+ adapters folded into b\.mdl, [\d.]+ kB\n", said)


def test_names_that_are_taken_stay(cstool):
    adapted("decoders", "gpt2")
    before = Path("base.mdl").read_bytes()
    refused = cstool("checkpoint", "merge", "a.mdl", "base.mdl")
    expected = "error: Checkpoint at 'base.mdl' already exists\nhint: delete it or choose another name\n"
    assert (refused.code, refused.stderr, Path("base.mdl").read_bytes()) == (2, expected, before)
    refused = cstool("checkpoint", "merge", "base.mdl", "b.mdl")
    expected = "error: base.mdl: must have adapters to fold into the weights, it has none\n"
    assert (refused.code, refused.stderr) == (2, expected)
    refused = cstool("checkpoint", "merge", "a.mdl", "none/b.mdl")
    assert refused.stderr.startswith("error: none/b.mdl: a checkpoint of ")


def test_a_name_that_is_taken_meanwhile_stays(cstool, monkeypatch):
    adapted("decoders", "gpt2")
    monkeypatch.setattr(merging, "compare", lambda *_: Path("b.mdl").write_text("mine"))
    refused = cstool("checkpoint", "merge", "a.mdl", "b.mdl")
    expected = "error: Checkpoint at 'b.mdl' already exists\nhint: delete it or choose another name\n"
    assert (refused.code, refused.stderr, Path("b.mdl").read_text()) == (2, expected, "mine")


def test_where_there_are_no_logits_to_compare_it_says_so(cstool):
    """Of adapters with lengths, and of an encoder."""
    adapted("encoders", "esm2")
    said = cstool("checkpoint", "merge", "a.mdl", "b.mdl").said
    assert said.endswith("\nLogits not compared: a model that generates no text, esm2, has none to compare\n")
    tensors = hf.gpt2_tensors()
    hf.write_hf(Path("gpt2"), hf.GPT2_CONFIG, tensors)
    convert(Request(Path("gpt2"), Path("gpt2.mdl")))
    beside = adapters(tensors, ["c_attn"], is_transposed=True, is_dora=True)
    convert(Request(write_peft(Path("peft"), beside, use_dora=True), Path("d.mdl"), base=Path("gpt2.mdl")))
    said = cstool("checkpoint", "merge", "d.mdl", "e.mdl").said
    assert said.endswith("\nLogits not compared: adapters with magnitudes (DoRA) are computed folded in alone\n")
