"""The first losses of DPO agree with an independent implementation in PyTorch, and with the vendor's own Trainer.

From the same weights and data. What was recorded, and how, is said in `tests/reference/make_preference_curves.py` and
`make_vendor_curves.py`.
"""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import yaml

from cstool.models import build_graph
from cstool.params import load_params
from cstool.progress import Silent
from cstool.run.result import RunResult
from cstool.run.run import run
from cstool.run.session import RunOrder
from tests.end_to_end.runs import bits, compiled
from tests.end_to_end.test_loss_curves import RELATIVE, VENDOR_RELATIVE, write_weights
from tests.reference import deterministic
from tests.reference.curve_file import read_curves
from tests.reference.preference_cases import CASES, VENDOR_CASES

CURVES = read_curves("preference_curves.json", CASES)
VENDOR_CURVES = read_curves("vendor_preference_curves.json", VENDOR_CASES)
VENDOR_ABSOLUTE = 1e-6
"""A margin has four sums over some ten tokens, near 50, each of which the vendor rounds to float32, by 2e-6 at most:
the loss moves by beta, 0.1, times that. PyTorch's own float32 and float64 curves differ by 9e-7 for the same reason."""


@pytest.mark.parametrize("case", CURVES)
def test_the_loss_curve_is_that_of_pytorch(tmp_path, case):
    result = run_case(tmp_path, CURVES[case], lanes=2)
    np.testing.assert_allclose(result.losses, CURVES[case]["losses"], rtol=RELATIVE)


@pytest.mark.parametrize("case", VENDOR_CURVES)
def test_the_loss_curve_is_that_of_the_vendors_trainer(tmp_path, case):
    result = run_case(tmp_path, VENDOR_CURVES[case], lanes=1)
    np.testing.assert_allclose(result.losses, VENDOR_CURVES[case]["losses"], VENDOR_RELATIVE, VENDOR_ABSOLUTE)


@pytest.mark.parametrize("case", CURVES)
def test_the_bits_do_not_depend_on_num_csx(tmp_path, case):
    expected = bits(run_case(tmp_path / "1", CURVES[case], lanes=1))
    for num_csx in (2, 4):
        found = bits(run_case(tmp_path / str(num_csx), CURVES[case], lanes=2, num_csx=num_csx))
        assert found == expected, f"num_csx {num_csx}"


def run_case(folder: Path, curve: dict[str, Any], *, lanes: int, num_csx: int = 1) -> RunResult:
    """Train the policy of a case from its own weights on its own data, and leave a checkpoint of the last step."""
    config, steps = curve["config"], len(curve["losses"])
    policy = config["model"]["policy_model"]
    batches = deterministic.preference_batches(
        batch_size=config["batch_size"],
        sequence_length=policy["max_position_embeddings"],
        vocab_size=policy["vocab_size"],
        seed=config["seed"],
    )
    assert deterministic.digest({"pairs": batches}) == curve["data_digest"]
    data = folder / "data"
    data.mkdir(parents=True)
    with h5py.File(data / "pairs.h5", "w") as file:
        file["data"] = batches.reshape(-1, *batches.shape[2:])
        file.attrs["n_examples"] = len(file["data"])
    init = {key: value for key, value in config.items() if key not in ("batch_size", "seed")}
    init["loop"] = {"max_steps": steps}
    init["checkpoint"] = {"steps": steps}
    init["model_dir"] = str(folder / "model_dir")
    init["backend"] = {"backend_type": "CSX", "cluster_config": {"num_csx": num_csx}}
    loader = {"data_processor": "DpoHDF5DataProcessor", "data_dir": str(data), "batch_size": config["batch_size"]}
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"trainer": {"init": init, "fit": {"train_dataloader": loader}}}))
    params = load_params(file)
    graph = build_graph(params.model, policy["max_position_embeddings"])
    shapes = {name: weight.shape for name, weight in graph.weights.items()}
    checkpoint = write_weights(folder / "checkpoint_0.mdl", shapes, config["seed"], curve["weights_digest"])
    return run(params, compiled(params, "train"), RunOrder("train", checkpoint, "model", lanes), Silent())
