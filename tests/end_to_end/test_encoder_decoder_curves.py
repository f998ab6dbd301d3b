"""The first losses of T5 and the Transformer agree with transformers, and with the vendor's own Trainer.

From the same weights and data. What was recorded, and how, is said in `tests/reference/make_encoder_decoder_curves.py`
and `make_vendor_curves.py`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.machine import data_sets
from cstool.models import SampleForm, build_graph
from cstool.params import load_params
from cstool.progress import Silent
from cstool.run.result import RunResult
from cstool.run.run import run
from cstool.run.session import RunOrder
from tests.end_to_end.runs import bits, compiled
from tests.end_to_end.test_encoder_curves import Samples
from tests.end_to_end.test_loss_curves import RELATIVE, VENDOR_RELATIVE, write_weights
from tests.models import MODELS
from tests.reference import curve_file, deterministic
from tests.reference.curve_file import read_curves
from tests.reference.encoder_decoder_curve_cases import CASES, SEQUENCE, TARGETS, VENDOR_CASES, arrays_of

CURVES = read_curves("encoder_decoder_curves.json", CASES)
VENDOR_CURVES = read_curves("vendor_encoder_decoder_curves.json", VENDOR_CASES)


@pytest.mark.parametrize("case", CURVES)
def test_the_loss_curve_is_that_of_transformers(tmp_path, monkeypatch, case):
    result = run_case(tmp_path, monkeypatch, CURVES[case], lanes=2)
    np.testing.assert_allclose(result.losses, CURVES[case]["losses"], rtol=RELATIVE)


@pytest.mark.parametrize("case", VENDOR_CURVES)
def test_the_loss_curve_is_that_of_the_vendors_trainer(tmp_path, monkeypatch, case):
    result = run_case(tmp_path, monkeypatch, VENDOR_CURVES[case], lanes=1)
    np.testing.assert_allclose(result.losses, VENDOR_CURVES[case]["losses"], rtol=VENDOR_RELATIVE)


@pytest.mark.parametrize("case", ["tied", "gated_untied"])
def test_the_bits_do_not_depend_on_num_csx(tmp_path, monkeypatch, case):
    expected = bits(run_case(tmp_path / "1", monkeypatch, CURVES[case], lanes=1))
    for num_csx in (2, 4):
        found = bits(run_case(tmp_path / str(num_csx), monkeypatch, CURVES[case], lanes=2, num_csx=num_csx))
        assert found == expected, f"num_csx {num_csx}"


@pytest.mark.parametrize(("name", "heads", "feed_forward"), [("t5-3b", 32, 16384), ("t5-11b", 128, 65536)])
def test_the_released_models_have_the_parameters_that_transformers_counts(name, heads, feed_forward):
    counts = json.loads(Path(curve_file.__file__).with_name("encoder_decoder_curves.json").read_text())["parameters"]
    shape = {"d_model": 1024, "d_kv": 128, "num_heads": heads, "d_ff": feed_forward, "encoder_num_hidden_layers": 24}
    graph = build_graph(MODELS["t5"].model_validate({"name": "t5", **shape}), SampleForm(512, targets=114))
    assert graph.parameter_count == counts[name]


def run_case(folder: Path, monkeypatch: Any, curve: Mapping[str, Any], *, lanes: int, num_csx: int = 1) -> RunResult:
    """Train the model of a case from its own weights on its own data, and leave a checkpoint of the last step."""
    config, steps = curve["config"], len(curve["losses"])
    folder.mkdir(exist_ok=True)
    made = arrays_of(config)
    assert deterministic.digest(made) == curve["data_digest"]
    samples = Samples({name: array.reshape(-1, *array.shape[2:]) for name, array in made.items()})
    monkeypatch.setattr(data_sets, "open_samples", lambda *_: samples)
    init = {key: value for key, value in config.items() if key not in ("batch_size", "seed")}
    init["loop"] = {"max_steps": steps}
    init["checkpoint"] = {"steps": steps}
    init["model_dir"] = str(folder / "model_dir")
    init["backend"] = {"backend_type": "CSX", "cluster_config": {"num_csx": num_csx}}
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(folder), "batch_size": config["batch_size"]}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
    params = load_params(file)
    graph = build_graph(params.model, SampleForm(SEQUENCE, targets=TARGETS))
    shapes = {name: weight.shape for name, weight in graph.weights.items()}
    checkpoint = write_weights(folder / "checkpoint_0.mdl", shapes, config["seed"], curve["weights_digest"])
    return run(params, compiled(params, "train"), RunOrder("train", checkpoint, "model", lanes), Silent())
