"""Adapters train as by the package PEFT on Hugging Face's models and torch's AdamW: losses, and adapters after them."""

import json
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import yaml

from cstool.convert.convert import Request, convert
from cstool.training.machine import data_sets
from tests.end_to_end.curves import Samples, flat
from tests.end_to_end.runs import run_file, write_trainer
from tests.reference.hf_models import read_safetensors
from tests.reference.peft_curve_cases import (
    ADAMW,
    ALPHA,
    BATCH,
    CASES,
    EVERY,
    RANK,
    RECORDED,
    SEQUENCE,
    STEPS,
    arrays_of,
    write_case,
)

CURVES = json.loads(RECORDED.read_text())["cases"]
IN_TEST = ("qwen2", "mixtral", "llama, classes")
RELATIVE, ABSOLUTE = 5e-6, 1e-5
"""of losses, and of numbers of adapters, which are some tenths"""


@pytest.mark.takes("twenty steps, and four conversions")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in IN_TEST else pytest.mark.lab) for name in CASES]
)
def test_losses_and_adapters_are_those_of_peft(tmp_path, monkeypatch, name):
    case, recorded = CASES[name], CURVES[name]
    monkeypatch.chdir(tmp_path)
    write_case(tmp_path, case)
    convert(Request(tmp_path / "hf", tmp_path / "base.mdl"))
    way = {"base": tmp_path / "base.mdl", "model_type": case.config["model_type"]}
    convert(Request(tmp_path / "peft", tmp_path / "first.mdl", **way))
    model = yaml.safe_load(Path("base.yaml").read_text())["trainer"]["init"]["model"]
    rates = {key: 0.0 for key in model if key.endswith("dropout_rate") or key == "task_dropout"}
    init = {"model": model | rates, "model_dir": "run", "checkpoint": {"steps": STEPS}, "loop": {"max_steps": STEPS}}
    init |= {"lora": f"rank={RANK},alpha={ALPHA},targets={','.join(case.modules.values())}"}
    init |= {"optimizer": {"AdamW": {**ADAMW, "correct_bias": True, "form": "pytorch"}}}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(tmp_path), "batch_size": BATCH}
    loader |= {"max_sequence_length": SEQUENCE}
    file = write_trainer(tmp_path / "run.yaml", init, {"train_dataloader": loader, "ckpt_path": "first.mdl"})
    with patch.object(data_sets, "open_samples", lambda *_: Samples(flat(arrays_of(case)))):
        found = run_file(file, states="model")
    np.testing.assert_allclose(found.losses, recorded["losses"], rtol=RELATIVE)
    convert(
        Request(
            tmp_path / "run" / f"checkpoint_{STEPS}.mdl", tmp_path / "after", to="peft", model_type=way["model_type"]
        )
    )
    after = read_safetensors(tmp_path / "after" / "adapter_model.safetensors")
    assert after.keys() == recorded["after"].keys()
    for tensor, numbers in recorded["after"].items():
        np.testing.assert_allclose(after[tensor].reshape(-1)[::EVERY], numbers, atol=ABSOLUTE, err_msg=tensor)
