"""Runs whose products take bfloat16, and runs that scale the loss: skipped steps are the same however they are run."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cstool.foundation.errors import CheckpointError, ClusterError
from cstool.model.graphs import SampleForm, build_graph
from cstool.model.params import load_params
from cstool.model.system import load_system
from cstool.plan.compiler.compile import make_program
from cstool.training.data import prepare_digits
from cstool.training.host.planned import planned_setup
from cstool.training.kernels import gemm_providers
from cstool.training.kernels.gemm_providers import EMULATED, Found
from cstool.training.run.result import RunResult
from cstool.training.store import CheckpointReader, list_checkpoints
from tests.end_to_end.memoryx_files import IN_FILE
from tests.end_to_end.pages import blocks
from tests.end_to_end.runs import SEQUENCE, bits, digest, gpt_params, run_file, write_text
from tests.event_files import scalars_of
from tests.models import FAMILIES

BFLOAT16 = {"init__precision__host": "bfloat16"}
PRECISION = "trainer__init__precision__host"
LOADER = {"data_processor": "GptHDF5MapDataProcessor", "batch_size": 16}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train", 150)


def only_emulated(_: str) -> Iterator[Found]:
    yield Found("onednn", None, "is not here")
    yield Found("emulated", EMULATED, "")


@pytest.mark.parametrize("family", ["llama", "fc_mnist"])
def test_losses_are_those_of_float32_within_a_hundredth(tmp_path, data, family):
    """A step of every model is in tests/unit/training/machine/test_precision.py."""
    changes: dict[str, Any] = {f"init__model__{key}": value for key, value in FAMILIES.get(family, {}).items()}
    changes |= {"init__loop": {"max_steps": 5}, "fit__train_dataloader": {**LOADER, "data_dir": str(data)}}
    if family == "fc_mnist":
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
    """One in float32 reads commit or checkpoint where it is."""
    file = gpt_params(tmp_path, data, **BFLOAT16, **IN_FILE)
    trained = run_file(file, **{MAX_STEPS: 1})
    if start == "checkpoint":
        file = gpt_params(tmp_path, data, **BFLOAT16, **IN_FILE, fit__ckpt_path=trained.checkpoints[-1])
    rounded, exact = (run_file(file, mode="eval", **{PRECISION: each}) for each in ("bfloat16", "float32"))
    in_memory = run_file(file, mode="eval", trainer__init__memoryx__store="ram")
    losses = [found.evaluations[0]["loss"] for found in (rounded, in_memory, exact)]
    assert losses[0] == losses[1] != losses[2] == pytest.approx(losses[0], rel=1e-2)
    assert exact.memoryx.written_bytes == 0
    # Matrices are copied; of a checkpoint all else stays in it.
    assert 1.5 * trained.parameters < rounded.memoryx.written_bytes < 3 * trained.parameters
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
    first = run_file(file, **{MAX_STEPS: 1})
    with pytest.raises(CheckpointError) as caught:
        run_file(file, **{MAX_STEPS: 2, PRECISION: then})
    assert (caught.value.message, caught.value.hint) == (
        f"{first.checkpoints[-1]}: was trained with products of {before}, the run asks for {then}",
        f"--precision {before} goes on as it was; --load_checkpoint_states model,optimizer goes on with {then}",
    )
    assert len(run_file(file, states="model,optimizer", **{MAX_STEPS: 2, PRECISION: then}).losses) == 1
    assert len(run_file(file, **{MAX_STEPS: 3, PRECISION: then}).losses) == 1


def test_a_run_goes_on_with_who_multiplied_or_not_at_all(tmp_path, data, monkeypatch):
    def with_another(_: str) -> Iterator[Found]:
        class Another(type(EMULATED)):  # type: ignore[misc]
            name = "onednn"

        yield Found("onednn", Another(), "brg:")
        yield Found("emulated", EMULATED, "")

    file = gpt_params(tmp_path, data, **BFLOAT16)
    with monkeypatch.context() as patch:
        patch.setattr(gemm_providers, "found_providers", with_another)
        patch.setattr(gemm_providers, "speed_against_numpy", lambda _: 2.0)
        run_file(file, **{MAX_STEPS: 1})
    monkeypatch.setattr(gemm_providers, "found_providers", only_emulated)
    with pytest.raises(ClusterError) as caught:
        run_file(file, **{MAX_STEPS: 2})
    assert (caught.value.message, caught.value.hint) == (
        "the run multiplies matrices with onednn, which must be one of emulated on this machine",
        "go on where it began, load its weights alone (--load_checkpoint_states model), or go on with other bits: "
        "--set trainer.init.precision.products=emulated",
    )


NUM_CSX = "trainer__init__backend__cluster_config__num_csx"
MAX_STEPS = "trainer__init__loop__max_steps"
DYNAMIC = {"loss_scaling_factor": "dynamic"}
OVERFLOWS = {**DYNAMIC, "initial_loss_scale": 2.0**127, "max_loss_scale": 2.0**127, "steps_per_increase": 2}
LARGE_LOSS = {"init__model__loss_scaling": "batch_size", "init__model__loss_weight": 1.0}
"""a sum over the tokens of a sample"""
STEPS = {**LARGE_LOSS, "init__loop": {"max_steps": 14}, "init__checkpoint": {"steps": 14}}


def run(
    folder: Path, data: Path, precision: dict[str, Any], changes: dict[str, Any] = STEPS, **flags: Any
) -> RunResult:
    return run_file(gpt_params(folder, data, init__precision=precision, **changes), **flags)


def scaler(folder: Path) -> Any:
    """What the latest checkpoint of a folder says of the scale."""
    with CheckpointReader(list_checkpoints(folder / "model_dir")[-1].path) as reader:
        return reader.values().get("grad_scaler")


@pytest.mark.parametrize("kind", [{}, {"fp16_type": "cbfloat16"}], ids=["float32", "bfloat16"])
def test_a_scale_that_loses_nothing_changes_no_bit(tmp_path, data, caplog, kind):
    with caplog.at_level(logging.INFO, "cstool"):
        expected = run(tmp_path / "static", data, {"max_gradient_norm": 1.0, "loss_scaling_factor": 8.0, **kind}, {})
    assert not [record for record in caplog.records if "skipped" in record.message or "LossScale" in record.message]
    found = run(tmp_path / "dynamic", data, {"max_gradient_norm": 1.0, **kind, **DYNAMIC, "log_loss_scale": True}, {})
    assert (bits(found), found.skipped_steps) == (bits(expected), 0)
    assert [each for _, each in scalars_of(tmp_path / "dynamic" / "model_dir" / "events")["loss_scale"]] == [
        2.0**31 if kind else 2.0**15
    ] * 4
    assert scaler(tmp_path / "static") is None
    assert scaler(tmp_path / "dynamic") == {
        "loss_scale": 2.0**31 if kind else 2.0**15,
        "steps_since_rescale": 4,
        "num_skipped_steps": 0,
    }


@pytest.mark.takes("28 steps, in five runs")
def test_skipped_steps_are_the_same_in_parts_on_systems_and_in_a_file(tmp_path, data, caplog):
    with caplog.at_level(logging.INFO, "cstool"):
        straight = run(tmp_path / "straight", data, {**OVERFLOWS, "log_loss_scale": True})
    assert 0 < straight.skipped_steps < 13
    assert straight.losses[-1] < straight.losses[0]
    assert straight.as_dict()["skipped_steps"] == straight.skipped_steps
    losses: list[float] = []
    skipped = 0
    for stop in (1, 4, 9, 14):
        store = IN_FILE if stop in (4, 14) else {}
        part = run(tmp_path / "parts", data, OVERFLOWS, {**STEPS, **store}, lanes=2, **{MAX_STEPS: stop, NUM_CSX: 2})
        losses += part.losses
        skipped += part.skipped_steps
    assert (losses, skipped) == (straight.losses, straight.skipped_steps)
    assert digest(Path(part.checkpoints[-1])) == bits(straight)[1]
    assert scaler(tmp_path / "parts") == scaler(tmp_path / "straight")
    assert scaler(tmp_path / "straight")["num_skipped_steps"] == skipped
    lines = [record.getMessage() for record in caplog.records]
    first = lines.index("Step 1 is skipped: a gradient is not finite. The loss scale is 8.507059173e+37 from here on.")
    assert lines[first + 1].startswith("| Train Device=CSX, Step=1, ")
    assert lines[first + 1].endswith(", LossScale=8.507059173e+37")
    [trained] = [line for line in lines if line.startswith("  trained")]
    assert trained.endswith(f"; {straight.skipped_steps} steps skipped, for want of finite gradients")


@pytest.mark.parametrize(
    ("precision", "waits"), [({}, False), ({"loss_scaling_factor": 8.0}, False), (DYNAMIC, True)], ids=str
)
def test_what_plans_a_step_knows_that_gradients_wait(tmp_path, data, precision, waits):
    params = load_params(gpt_params(tmp_path, data, init__precision=precision))
    program = make_program(params, load_system("cs2"), form=SampleForm(SEQUENCE))
    planned = planned_setup(params, build_graph(params.model, SEQUENCE), 48)
    assert (program.request.waits_for_norm, planned.waits_for_norm) == (waits, waits)


def test_a_run_that_no_longer_scales_goes_on_with_the_updates_that_were_made(tmp_path, data):
    begun = run(tmp_path, data, OVERFLOWS)
    run(tmp_path, data, {}, STEPS, **{MAX_STEPS: 16})
    assert scaler(tmp_path) == {"loss_scale": 1.0, "steps_since_rescale": 0, "num_skipped_steps": begun.skipped_steps}


def test_at_the_smallest_scale_the_run_stops(cstool, tmp_path, data):
    precision = {**OVERFLOWS, "min_loss_scale": 2.0**127}
    file = gpt_params(tmp_path, data, init__precision=precision, **LARGE_LOSS)
    code, _, error = cstool("run", "-p", file, "--lanes", 1)
    assert code == 1
    said, expected = error[error.index("error: ") :], blocks("precision")[4]
    assert said.startswith("error: step 1: ")
    assert said.splitlines()[0].endswith(" with a loss scale of 1.70141e+38")
    # The page has that of another model.
    of_a_model = r"step \d+|that of \S+ with a loss scale of \S+"
    assert re.sub(of_a_model, "", said) == re.sub(of_a_model, "", expected)
