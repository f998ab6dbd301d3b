"""Run the command line in this process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.cli import main
from tests.end_to_end.conftest import compiled_once  # noqa: F401
from tests.end_to_end.refusals import Outcome

GPT: dict[str, Any] = yaml.safe_load("""
init:
  model: {name: gpt3, vocab_size: 50257, hidden_size: 2048, num_heads: 16, num_hidden_layers: 24, filter_size: 8192,
          max_position_embeddings: 2048}
  optimizer: {AdamW: {learning_rate: 0.1}}
  precision: {max_gradient_norm: 1.0}
  loop: {max_steps: 5}
fit:
  train_dataloader: {data_processor: GptHDF5MapDataProcessor, data_dir: ., batch_size: 512}
""")
SMALL = {**GPT, "init": {**GPT["init"], "model": {**GPT["init"]["model"], "hidden_size": 512, "num_hidden_layers": 2}}}
FC: dict[str, Any] = yaml.safe_load("""
init:
  model: {name: fc_mnist, hidden_sizes: [256, 128]}
  optimizer: {SGD: {learning_rate: 0.1}}
  loop: {max_steps: 5}
fit:
  train_dataloader: {data_processor: MNISTDataProcessor, data_dir: ., batch_size: 120}
""")


@pytest.fixture
def cstool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run `cstool` with the given arguments, as on a screen of 100 columns that is not a terminal."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["cstool", *map(str, arguments)])
        code = main()
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def estimated(folder: Path) -> None:
    """Work in a folder with the params files of what is estimated."""
    for name, trainer in (("gpt", GPT), ("small", SMALL), ("fc", FC)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({"trainer": trainer}))
