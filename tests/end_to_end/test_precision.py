"""Runs whose products take bfloat16."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import CheckpointError, ClusterError
from cstool.training.kernels import gemm_providers
from cstool.training.kernels.gemm_providers import EMULATED, Found
from cstool.training.store import CheckpointReader
from tests.end_to_end.memoryx_files import IN_FILE
from tests.end_to_end.runs import gpt_params, run_file, write_text
from tests.models import FAMILIES

BFLOAT16 = {"init__precision__host": "bfloat16"}
STEPS = "trainer__init__loop__max_steps"
PRECISION = "trainer__init__precision__host"
LOADER = {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 16}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train", 150)


def only_emulated(_: str) -> Iterator[Found]:
    yield Found("onednn", None, "is not here")
    yield Found("emulated", EMULATED, "")


@pytest.mark.parametrize(
    "family",
    ["llama", "fc_mnist", *(pytest.param(name, marks=pytest.mark.lab) for name in FAMILIES if name != "llama")],
)
def test_ten_losses_are_those_of_float32_within_a_hundredth(tmp_path, data, family):
    changes: dict[str, Any] = {f"init__model__{key}": value for key, value in FAMILIES.get(family, {}).items()}
    changes |= {"init__loop": {"max_steps": 10}, "fit__train_dataloader": {**LOADER, "data_dir": str(data)}}
    if family == "fc_mnist":
        from cstool.training.data import prepare_digits

        prepare_digits(tmp_path / "pictures")
        loader = {"data_processor": "MNISTDataProcessor", "data_dir": str(tmp_path / "pictures"), "batch_size": 48}
        changes |= {"init__model": {"name": "fc_mnist", "hidden_sizes": [40, 24]}}
        changes |= {"init__optimizer": {"SGD": {"learning_rate": 0.05, "momentum": 0.9}}}
        changes |= {"fit__train_dataloader": loader, "fit__val_dataloader": loader}
    exact, rounded = (
        run_file(gpt_params(tmp_path / precision, data, **changes, init__precision__host=precision))
        for precision in ("float32", "bfloat16")
    )
    assert rounded.losses == pytest.approx(exact.losses, rel=1e-2)
    assert rounded.losses != exact.losses


@pytest.mark.parametrize("start", ["commit", "checkpoint"])
def test_an_evaluation_has_the_weights_in_a_file_as_they_stream(tmp_path, data, start):
    """One of a commit in float32 reads it where it is."""
    file = gpt_params(tmp_path, data, **BFLOAT16, **IN_FILE)
    trained = run_file(file, **{STEPS: 1})
    if start == "checkpoint":
        file = gpt_params(tmp_path, data, **BFLOAT16, **IN_FILE, fit__ckpt_path=trained.checkpoints[-1])
    rounded, exact = (run_file(file, mode="eval", **{PRECISION: each}) for each in ("bfloat16", "float32"))
    in_memory = run_file(file, mode="eval", trainer__init__memoryx__store="ram")
    losses = [found.evaluations[0]["loss"] for found in (rounded, in_memory, exact)]
    assert losses[0] == losses[1] != losses[2] == pytest.approx(losses[0], rel=1e-2)
    assert exact.memoryx.written_bytes == (0 if start == "commit" else 4 * trained.parameters)
    assert 2 * trained.parameters < rounded.memoryx.written_bytes < 3 * trained.parameters
    assert Path(rounded.memoryx.path).name == "memoryx_evaluation.h5"


def test_a_checkpoint_says_the_precision_and_who_multiplied_and_a_run_that_this_is_slow(
    tmp_path, data, monkeypatch, caplog
):
    monkeypatch.setattr(gemm_providers, "found_providers", only_emulated)
    result = run_file(gpt_params(tmp_path, data, **BFLOAT16, init__loop={"max_steps": 1}))
    with CheckpointReader(Path(result.checkpoints[-1])) as reader:
        choices = reader.values()["choices"]
        assert (choices["precision"], choices["gemm"]) == ("bfloat16", "emulated")
        assert {str(reader.dtype(name)) for name in reader.tensor_names()} == {"float32"}
    said = [(record.levelname, record.message) for record in caplog.records if "Products take" in record.message]
    assert said == [
        (
            "WARNING",
            "Products take bfloat16 operands, with float32 sums, by emulated: slower than float32 here, which "
            "--precision float32 takes.",
        )
    ]


@pytest.mark.parametrize(("before", "then"), [("bfloat16", "float32"), ("float32", "bfloat16")])
def test_a_run_goes_on_in_its_precision_alone(tmp_path, data, before, then):
    file = gpt_params(tmp_path, data, init__precision__host=before)
    first = run_file(file, **{STEPS: 1})
    with pytest.raises(CheckpointError) as caught:
        run_file(file, **{STEPS: 2, PRECISION: then})
    assert (caught.value.message, caught.value.hint) == (
        f"{first.checkpoints[-1]}: was trained with products of {before}, the run asks for {then}",
        f"--precision {before} goes on as it was; --load_checkpoint_states model,optimizer goes on with {then}",
    )
    assert len(run_file(file, states="model,optimizer", **{STEPS: 2, PRECISION: then}).losses) == 1
    assert len(run_file(file, **{STEPS: 3, PRECISION: then}).losses) == 1


def test_a_run_goes_on_with_who_multiplied_or_not_at_all(tmp_path, data, monkeypatch):
    def with_another(_: str) -> Iterator[Found]:
        class Another(type(EMULATED)):  # type: ignore[misc]
            name = "onednn"

        yield Found("onednn", Another(), "brg:")
        yield Found("emulated", EMULATED, "")

    file = gpt_params(tmp_path, data, **BFLOAT16)
    with monkeypatch.context() as patch:
        patch.setattr(gemm_providers, "found_providers", with_another)
        patch.setattr(gemm_providers, "speed_against_float32", lambda _: 2.0)
        run_file(file, **{STEPS: 1})
    monkeypatch.setattr(gemm_providers, "found_providers", only_emulated)
    with pytest.raises(ClusterError) as caught:
        run_file(file, **{STEPS: 2})
    assert (caught.value.message, caught.value.hint) == (
        "the run multiplies matrices with onednn, which must be one of emulated on this machine",
        "go on where it began, or load its weights alone: --load_checkpoint_states model",
    )
