"""T5 from text to an evaluated model, as a user trains it: prepared, trained, stopped, gone on with, evaluated."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool import prepare_span
from tests.end_to_end.pages import check_console, page
from tests.end_to_end.runs import latest_bits

PROJECT = Path(__file__).parents[2]
LENGTH, TARGETS, WORDS, EXTRA = 32, 12, 300, 8


@pytest.fixture(scope="module")
def spans(tmp_path_factory) -> Path:
    """A data set of texts of which spans are taken out when it is read."""
    folder = tmp_path_factory.mktemp("spans") / "made"
    prepare_span([PROJECT / "LICENSE"], folder, sequence_length=LENGTH, vocab_size=WORDS, val_fraction=0.2)
    return folder


T5 = """
model: {name: t5, src_vocab_size: 300, extra_ids: 8, src_max_position_embeddings: 32, tgt_max_position_embeddings: 12,
        d_model: 32, d_kv: 8, num_heads: 4, d_ff: 64, encoder_num_hidden_layers: 2, encoder_nonlinearity: geglu,
        lm_loss_weight: 0.1}
optimizer: {AdamW: {betas: [0.9, 0.98], weight_decay: 0.01}}
schedulers: [{ConstantLR: {learning_rate: 5.0e-3}}]
loop: {max_steps: 30}
checkpoint: {steps: 10}
logging: {log_steps: 10}
"""


def t5_file(folder: Path, spans: Path, name: str, init: Any = None, batch: int = 4, **model: Any) -> Path:
    loader = {"data_processor": "T5DynamicDataProcessor", "src_vocab_file": str(spans / "vocab.txt")}
    loader |= {"batch_size": batch, "extra_ids": EXTRA}
    loader |= {"src_max_sequence_length": LENGTH, "tgt_max_sequence_length": TARGETS}
    fit = {
        f"{part}_dataloader": {**loader, "src_data_dir": str(spans / part), "shuffle": part == "train"}
        for part in ("train", "val")
    }
    settings = {**yaml.safe_load(T5), "model_dir": str(folder / name), **(init or {})}
    settings["model"] |= model
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": settings, "fit": fit}}))
    return file


NORMS_LAST = {"position_embedding_type": "fixed", "use_pre_encoder_decoder_layer_norm": False}
FROM_A_FILE = {"sparsity": {"sparsity": 0.5}, "memoryx": {"store": "file"}, "activation_checkpointing": "always"}


@pytest.mark.takes("a training that learns, and two evaluations")
@pytest.mark.parametrize(
    ("model", "init"),
    [({}, {}), *(pytest.param(*each, marks=pytest.mark.lab) for each in ((NORMS_LAST, {}), ({}, FROM_A_FILE)))],
    ids=["t5", "fixed positions, norms last", "sparse, from a file, recomputed"],
)
def test_it_learns_and_is_evaluated(cstool, tmp_path, spans, model, init):
    file = t5_file(tmp_path, spans, "straight", init, **model)
    outcome = cstool("run", "-p", file, "--mode", "train_and_eval", "--json")
    losses, (found,) = outcome.document["losses"], outcome.document["evaluations"]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    assert 0 <= found["accuracy"] <= 1
    assert found["perplexity"] > 1
    assert "perplexity_lm" in cstool("run", "-p", file, "--mode", "eval").stdout


@pytest.mark.takes("three runs, whose data end and begin again")
def test_stopped_and_gone_on_with_on_two_systems_it_has_the_bits_of_a_straight_run(cstool, tmp_path, spans):
    straight = t5_file(tmp_path, spans, "straight", batch=16)
    assert cstool("run", "-p", straight, "--max_steps", 12).code == 0
    stopped = t5_file(tmp_path, spans, "stopped", batch=16)
    assert cstool("run", "-p", stopped, "--max_steps", 5).code == 0
    assert cstool("run", "-p", stopped, "--num_csx", 2, "--max_steps", 12).code == 0
    assert latest_bits(tmp_path / "straight") == latest_bits(tmp_path / "stopped")


@pytest.mark.takes("an estimate of a pipeline that the compiler places")
@pytest.mark.parametrize(
    ("mode", "precision"),
    [("pipelined", None), ("weight_streaming", {"enabled": True, "fp16_type": "cbfloat16"})],
)
def test_it_is_compiled_estimated_and_drawn(cstool, tmp_path, spans, mode, precision):
    file = t5_file(tmp_path, spans, "compiled", {"precision": precision} if precision else {})
    picture, asked = tmp_path / "drawn.svg", ("-p", file, "--execution_mode", mode)
    assert cstool("compile", *asked, "--plot", picture).code == 0
    assert "cross kv" in re.sub(r"<[^>]*>", "", picture.read_text(encoding="utf-8"))
    assert cstool("estimate", *asked, "--json").code == 0


@pytest.mark.lab
def test_the_page_shows_what_a_step_of_the_large_one_takes(cstool):
    *_, console = re.findall(r"```console\n(.*?)```", page("encoder_decoders"), re.DOTALL)
    assert [command.split()[:2] for command in check_console(cstool, console)] == [["estimate", "--params"]]
