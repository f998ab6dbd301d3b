"""`cstool compile --emit csl` of a GPT: the folder, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.refusals import error

ASKED = ("compile", "--params", "gpt_block", "--compile_dir", "kept", "--emit", "csl", "--pes", "4,2")
MODEL, DATA = "trainer.init.model.", "trainer.fit.train_dataloader."


@pytest.fixture(autouse=True)
def _in_a_folder(folder: Path) -> None:
    pass


def test_it_writes_a_program(cstool):
    said = cstool(*ASKED, "-o", "block").said
    assert said.splitlines()[-2:] == [
        "written block: 11 files, 4 x 2 PEs of wse3, 4 tokens and 4 features to each",
        "`cstool fabric run block --arch wse3` runs it",
    ]
    assert {path.name for path in Path("block").iterdir()} == {
        *("layout.csl", "pe.csl", "grid.csl", "ops.csl", "functions.csl"),
        *("host.py", "gpt_host.py", "program.json", "reference.py", "run.py", "commands_wse3.sh"),
    }
    program = json.loads(Path("block/program.json").read_text())
    assert (program["columns"], program["rows"], program["tokens"], program["hidden"]) == (4, 2, 8, 16)
    assert [step["kind"] for step in program["steps"]] == [
        *("layer_norm", "linear", "linear", "linear", "attention", "linear", "residual"),
        *("layer_norm", "linear", "activation", "linear", "residual", "layer_norm", "softmax_loss"),
    ]


@pytest.mark.parametrize(
    ("setting", "message", "hint"),
    [
        (
            f"{DATA}batch_size=2",
            "gpt2: a batch must have one sample to become CSL, got 2",
            "--set trainer.fit.train_dataloader.batch_size=1",
        ),
        (
            f"{MODEL}nonlinearity=gelu",
            "transformer_decoder.layers.0.ffn.ffn.0.linear_layer.activation: function must be gelu_new to become CSL,"
            " got gelu",
            "nonlinearity: gelu_new; <math> of CSL has tanh, but no error function",
        ),
    ],
)
def test_a_model_without_a_program(cstool, setting, message, hint):
    assert cstool(*ASKED, "--set", setting).refusal == error(message, hint)
    assert not Path("gpt2_csl").exists()
