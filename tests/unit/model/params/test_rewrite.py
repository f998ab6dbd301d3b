"""Values are written into the text of a params file: it asks for what `--set` would, and keeps its comments."""

import re

import pytest

from cstool.model.params import load_params, parse_params, stock_names, stock_text, with_paths_from, with_values

OVERRIDES = [
    "trainer.init.model.vocab_size=1024",
    "trainer.init.optimizer.AdamW.betas.1=0.99",
    "trainer.init.optimizer.AdamW.betas=[0.8, 0.9]",
    "trainer.init.optimizer.AdamW.eps=1e-5",
    "trainer.init.schedulers.0.SequentialLR.schedulers.1.CosineDecayLR.total_iters=250",
    "trainer.init.logging=",
    "trainer.init.schedulers.0={LinearLR: {initial_learning_rate: 0.1, end_learning_rate: 0.0, total_iters: 3}}",
    "trainer.init.loop={max_steps: 3}",
    "trainer.init.sparsity=0.5",
    "trainer.init.sparsity={algorithm: static, sparsity: 0.5}",
    "trainer.init.memoryx.store=file",
    "trainer.init.model_dir='a: strange, #name'",
    "trainer.fit.train_dataloader.data_dir=elsewhere",
    "trainer.fit.train_dataloader.shuffle=false",
]


@pytest.mark.parametrize("override", OVERRIDES)
def test_the_text_asks_for_what_set_does(override):
    before = stock_text("gpt_tiny")
    text = with_values(before, [override])
    plain = parse_params(before, "a.yaml", overrides=[override])
    assert parse_params(text, "a.yaml").resolved() == plain.resolved()


def test_comments_stay_in_their_columns():
    text = stock_text("gpt_tiny")
    changed = with_values(text, [OVERRIDES[0], OVERRIDES[4]])
    assert changed != text
    assert re.findall("#.*", changed) == re.findall("#.*", text)
    assert [line.find("#") for line in changed.splitlines()] == [line.find("#") for line in text.splitlines()]


@pytest.mark.parametrize("name", stock_names())
def test_a_key_that_was_not_there_is_added(name):
    overrides = ["trainer.init.memoryx.store=file", "trainer.init.seed=7"]
    before = stock_text(name)
    text = with_values(before, overrides)
    assert parse_params(text, "a.yaml").resolved() == parse_params(before, "a.yaml", overrides=overrides).resolved()
    assert re.findall("#.*", text) == re.findall("#.*", before)


def test_paths_lead_to_the_same_place_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a" / "b"):
        folder.mkdir(exist_ok=True)
        file = folder / "gpt_tiny.yaml"
        file.write_text(with_paths_from(stock_text("gpt_tiny"), tmp_path / "params", folder))
        loader = load_params(file).train_dataloader
        assert loader is not None
        assert loader.folders[0].path == tmp_path / "datasets" / "text" / "train"
