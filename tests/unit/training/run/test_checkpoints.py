"""What a run starts from, where it saves itself, and what the log says of it."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cstool.model.params import SGD, AdamW, DecoderParams
from cstool.training.kernels import fastest, gemm_providers
from cstool.training.kernels.gemm import NUMPY, NumpyGemm
from cstool.training.kernels.gemm_providers import Found
from cstool.training.machine import state
from cstool.training.machine.state import Position, environment, forms
from cstool.training.run import checkpoints, setup
from cstool.training.run.checkpoints import save
from cstool.training.run.session import Session
from cstool.training.run.setup import settle_kernels
from cstool.training.store import list_checkpoints
from tests.unit.training.machine.machines import array_of, set_array
from tests.unit.training.run.sessions import restored, session

WEIGHT = "model.last_layer.weight"
NAMED = {"checkpoint_name": "net-{step}.mdl"}


@pytest.fixture(autouse=True)
def _log_everything(caplog):
    caplog.set_level("INFO", "cstool")


def save_at(found: Session, step: int, value: float = 1.0) -> str:
    """Save with all elements of one weight, and of its state, of that value."""
    for name in (WEIGHT, "optimizer.last_layer.weight.momentum_buffer"):
        set_array(found.appliance, name, np.full((10, 4), value, np.float32))
    found.position = Position(step, step)
    save(found)
    return found.checkpoints[-1]


def warning_of(caplog: pytest.LogCaptureFixture) -> str:
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return warning


@pytest.mark.parametrize(("checkpoint", "name"), [({}, "checkpoint_7.mdl"), (NAMED, "net-7.mdl")])
def test_a_checkpoint_is_named_by_its_step_and_noted_in_index_session_and_log(tmp_path, caplog, checkpoint, name):
    with session(tmp_path, checkpoint=checkpoint) as found:
        save_at(found, 7)
        path = found.params.model_dir / name
        entries = list_checkpoints(found.params.model_dir, checkpoint.get("checkpoint_name", "checkpoint_{step}.mdl"))
        assert (found.saved_step, found.checkpoints) == (7, [str(path)])
        # The time of all is summed; a step that was saved before gets a name of its own.
        before, again = found.checkpoint_s, save(found)
        assert found.checkpoint_s == before + again > again > 0
    assert [(entry.step, entry.path) for entry in entries] == [(7, path)]
    assert path.exists()
    assert re.fullmatch(name.replace(".mdl", r"_\d{8}_\d{6}\.mdl"), Path(found.checkpoints[1]).name)
    first, second, *_ = caplog.messages
    assert first == "Saving checkpoint at step 7"
    line = rf"Saved checkpoint {re.escape(str(path))} \([\d.]+ kB in \d+\.\d\d s, \d+\.\d\d GB/s\)"
    assert re.fullmatch(line, second)


def test_no_checkpoint_is_deleted_outside_of_the_folder_of_its_index(tmp_path):
    with session(tmp_path / "other") as found:
        others = Path(save_at(found, 77, 1.0))
    with session(tmp_path / "run", callbacks=[{"KeepNCheckpoints": {"n": 1}}]) as found:
        save_at(found, 1, 1.0)
        index = found.params.model_dir / "checkpoints_index.yaml"
        entries = "".join(
            f"- {{step: 0, file: {name}, run: {found.run_id}}}\n"
            for name in ("../../other/model_dir/checkpoint_77.mdl", others)
        )
        index.write_text(index.read_text().replace("checkpoints:\n", f"checkpoints:\n{entries}"))
        save_at(found, 2, 1.0)
        assert [entry.step for entry in list_checkpoints(found.params.model_dir)] == [2]
    assert others.is_file()


def test_without_any_checkpoint_weights_are_random_by_the_seed(tmp_path, caplog):
    weights = []
    for seed in (1, 1, 2):
        with session(tmp_path, seed=seed) as found:
            restored(found, None, "all", strict=True)
            weights.append(array_of(found.appliance, WEIGHT).tolist())
            folder = found.params.model_dir
    assert weights[0] == weights[1] != weights[2]
    assert caplog.messages[:3] == [
        f'Checkpoint autoloading is enabled. Looking for latest checkpoint in "{folder}" directory with the following '
        "naming convention: `checkpoint_(step)(_timestamp)?.mdl`.",
        f'No checkpoints were found in "{folder}".',
        "No checkpoint was provided. Using randomly initialized model parameters.",
    ]


LOADED = "Model state found in checkpoint and loaded successfully."


@pytest.mark.parametrize("how", ["latest", "asked for", "no autoloading"])
def test_the_latest_checkpoint_is_resumed_unless_it_is_not_to_be_or_another_is_asked_for(tmp_path, caplog, how):
    with session(tmp_path, checkpoint={"autoload_last_checkpoint": how != "no autoloading"}) as found:
        first, last = save_at(found, 7, 1.0), save_at(found, 12, 2.0)
        caplog.clear()
        set_array(found.appliance, WEIGHT, np.zeros((10, 4), np.float32))
        found.position, found.saved_step = Position(), None
        restored(found, Path(first) if how == "asked for" else None, "all", strict=True)
        state, weight = (found.position, found.saved_step), array_of(found.appliance, WEIGHT)
    told = {
        "latest": [
            f'Found latest checkpoint at "{last}".',
            f"Loading weights from checkpoint {last}",
            LOADED,
            "Resuming from step 12. To start fresh, choose another --model_dir, or set "
            "trainer.init.checkpoint.autoload_last_checkpoint to false.",
        ],
        "asked for": [f"Loading weights from checkpoint {first}", LOADED],
        "no autoloading": ["No checkpoint was provided. Using randomly initialized model parameters."],
    }
    states = {"latest": (Position(12, 12), 12), "asked for": (Position(7, 7), None)}
    assert state == states.get(how, (Position(), None))
    assert how == "no autoloading" or set(weight.ravel().tolist()) == {2.0 if how == "latest" else 1.0}
    assert caplog.messages[how == "latest" :] == told[how]


@pytest.mark.parametrize("states", ["optimizer", "dataloader"])
def test_weights_that_are_not_asked_for_begin_random(tmp_path, states):
    with session(tmp_path) as found:
        path = save_at(found, 7, 1.0)
        found.appliance.memoryx.initialize(found.params.seed)
        expected = array_of(found.appliance, WEIGHT)
        set_array(found.appliance, WEIGHT, np.zeros((10, 4), np.float32))
        restored(found, Path(path), states, strict=True)
        np.testing.assert_array_equal(array_of(found.appliance, WEIGHT), expected)


@pytest.mark.parametrize(
    ("strict", "checkpoint"), [(False, {}), (True, {"disable_strict_checkpoint_loading": True})], ids=["flag", "params"]
)
def test_if_not_strict_weights_that_it_lacks_begin_random(tmp_path, strict, checkpoint):
    with session(tmp_path) as found:
        path = save_at(found, 7, 1.0)
    with session(tmp_path, weights=(6, 4, 4), checkpoint=checkpoint) as larger:
        restored(larger, Path(path), "all", strict=strict)
        assert set(array_of(larger.appliance, WEIGHT).ravel().tolist()) == {1.0}
        bound = np.abs(array_of(larger.appliance, "model.fc_layers.2.weight")).max()
    assert 0 < bound <= 0.5  # 1 / sqrt(4)


def test_a_form_is_kept_where_it_changes_something_and_switches_where_what_they_switch_is_given():
    given = {"attention_chunk_size": 8, "attention_qk_norm_layer": "rmsnorm", "apply_attention_qk_norm": True}
    for optimizer, model, kept in (
        (SGD(momentum=0.9), {"name": "mistral"}, {}),
        (SGD(dampening=0.5), {"name": "mistral"}, {"optimizer_form": "vendor"}),
        (
            SGD(momentum=0.9),
            {"name": "llama", **given},
            {"apply_attention_pattern": False, "apply_attention_qk_norm": True},
        ),
    ):
        params = SimpleNamespace(optimizer=optimizer, model=DecoderParams.model_validate(model))
        assert forms(params) == kept  # type: ignore[arg-type]


def test_a_checkpoint_of_before_forms_could_be_chosen_was_in_pytorchs(tmp_path, caplog, monkeypatch):
    sinks = {"name": "mistral", "attention_sliding_window_length": 4, "attention_sink_tokens": 2}
    now = forms(SimpleNamespace(optimizer=AdamW(), model=DecoderParams.model_validate(sinks)))  # type: ignore[arg-type]
    with session(tmp_path) as found:
        monkeypatch.setattr(checkpoints, "forms", lambda params: {})
        save_at(found, 7)
        monkeypatch.setattr(setup, "forms", lambda params: now)
        restored(found, None, "all", strict=True)
    assert warning_of(caplog) == (
        "Not as it was in the checkpoint: optimizer_form pytorch -> vendor; apply_attention_sinks True -> False. "
        "Bits may differ from a straight run."
    )


def test_a_checkpoint_of_another_machine_is_loaded_with_a_warning(tmp_path, caplog, monkeypatch):
    with session(tmp_path) as found:
        monkeypatch.setattr(state, "environment", lambda: {**environment(), "numpy": "1.0", "cpu": "z80"})
        save_at(found, 7)
        monkeypatch.undo()
        restored(found, None, "all", strict=True)
    now = environment()
    assert warning_of(caplog) == (
        f"Not as it was in the checkpoint: numpy 1.0 -> {now['numpy']}; cpu z80 -> {now['cpu']}. "
        "Bits may differ from a straight run."
    )


def test_a_new_run_takes_the_faster_provider_an_old_one_numpy_and_params_may_name_another(
    tmp_path, monkeypatch, caplog
):
    class Counting(NumpyGemm):
        name = "counting"

    counting = Counting()
    found_now = [Found(gemm.name, gemm, "") for gemm in (NUMPY, counting)]
    monkeypatch.setattr(gemm_providers, "found_providers", lambda _: iter(found_now))
    monkeypatch.setattr(fastest, "fastest", lambda *_, trains, gains: "counting" if trains else "numpy")
    with session(tmp_path) as found:
        settle_kernels(found)
        assert found.appliance.gemm is counting
        save_at(found, 7)
        found.kept_choices = {"grain_samples": 4}  # of before there was a choice
        settle_kernels(found)
        assert found.appliance.gemm is NUMPY
    said = [record.getMessage() for record in caplog.records if "Products take" in record.getMessage()]
    assert said == ["Products take float32 operands, with float32 sums, by counting."]
    with session(tmp_path, precision={"products": "numpy"}) as found:
        restored(found, None, "all", strict=True)
        settle_kernels(found)
        assert found.appliance.gemm is NUMPY
    changed = "Not as it was in the checkpoint: gemm counting -> numpy. Bits may differ from a straight run."
    assert warning_of(caplog) == changed


def test_products_are_computed_by_the_provider_of_the_checkpoint(tmp_path, monkeypatch):
    class Counting(NumpyGemm):
        name = "counting"
        products = 0

        def multiply(self, a, b, out, bias=None):
            self.products += 1
            super().multiply(a, b, out, bias)

    counting = Counting()
    found_now = [Found(gemm.name, gemm, "") for gemm in (NUMPY, counting)]
    monkeypatch.setattr(gemm_providers, "found_providers", lambda _: iter(found_now))
    with session(tmp_path) as found:
        found.appliance.multiply_with(counting)
        save_at(found, 7, 1.0)
    with session(tmp_path) as found:
        restored(found, None, "all", strict=True)
        settle_kernels(found)
        assert found.appliance.gemm is counting
        cluster = found.appliance.training_cluster
        assert {call.gemm for csx in cluster.csx for slot in csx.slots for call in slot.calls} == {counting}
