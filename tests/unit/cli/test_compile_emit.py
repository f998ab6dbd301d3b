"""`cstool compile --emit csl`: the folder, and what is refused."""

from pathlib import Path

import pytest

from tests.end_to_end.refusals import error

SMALL = (
    "--set",
    "trainer.init.model.hidden_sizes=[4]",
    "trainer.fit.train_dataloader.batch_size=4",
    "--emit",
    "csl",
)
PROGRAM = {
    *("layout.csl", "pe.csl", "row.csl", "column.csl", "products.csl", "vectors.csl", "functions.csl", "loss.csl"),
    *("host.py", "network.json", "run.py", "commands_wse3.sh"),
}


@pytest.fixture(autouse=True)
def _in_a_folder(folder: Path) -> None:
    pass


def test_it_writes_a_program(cstool):
    asked = "compile", "--params", "fc_mnist", "--compile_dir", "kept", "--pes", "2,1", *SMALL
    said = cstool(*asked, "-o", "digits").said
    assert said.splitlines()[-2:] == [
        "written digits: 12 files, 2 x 1 PEs of wse3, 4 tokens and 392, 2, 5 features to each",
        "`cstool fabric run digits --arch wse3` runs it",
    ]
    assert {path.name for path in Path("digits").iterdir()} == PROGRAM
    assert (
        Path("digits/commands_wse3.sh").read_text()
        == """\
#!/usr/bin/env bash
set -e
cslc layout.csl --arch=wse3 --fabric-dims=9,3 --fabric-offsets=4,1 -o out --memcpy --channels=1
cs_python run.py
"""
    )
    document = cstool(*asked, "--json").document
    assert (document["csl"], document["mode"]) == ("fc_mnist_csl", "weight_streaming")
    assert Path("fc_mnist_csl/pe.csl").read_bytes() == Path("digits/pe.csl").read_bytes()


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        (
            ["--output", "x"],
            "--output: must come with --emit, which says what is written",
            "--out has the artifact",
        ),
        (
            ["--emit", "csl", "--execution_mode", "pipelined"],
            "--execution_mode: must be weight_streaming with --emit csl, got pipelined",
            None,
        ),
        (["--pes", "8x8"], "--pes: must be W,H, columns and rows of PEs, got '8x8'", "for example --pes 8,8"),
        (["--pes", "800,8"], "--pes: must be 1,1 to 750,994, got 800,8", None),
        (
            ["--emit", "csl", "--pes", "200,200"],
            "fc_mnist: must lie on at most 32 x 32 PEs to become CSL, got 196 x 60",
            "--pes 8,8 takes a corner of the wafer",
        ),
        (
            ["--emit", "csl", "--num_csx", "2"],
            "fc_mnist: must have one CSX to become CSL, got 2",
            "a smaller batch_size may do",
        ),
        (
            ["--emit", "csl", "--pes", "1,1"],
            "fc_mnist: must have one micro-batch to become CSL, got 15",
            "a smaller batch_size may do",
        ),
    ],
)
def test_refused(cstool, flags, message, hint):
    outcome = cstool("compile", "--params", "fc_mnist", "--compile_dir", "kept", *flags)
    assert outcome.refusal == error(message, hint)


def test_another_model_is_refused(cstool):
    flags = (
        "--set",
        "trainer.fit.train_dataloader.batch_size=1",
        "--compile_dir",
        "kept",
        "--emit",
        "csl",
        "--pes",
        "32,32",
    )
    assert cstool("compile", "--params", "llama_tiny", *flags).refusal == error(
        "transformer_decoder.layers.0.norm1: must be one of activation, attention, layer_norm, linear, residual,"
        " softmax_loss to become CSL, got rms_norm"
    )
