"""Sparse training as a whole: masks change when the vendor's would, interruptions change nothing, zeros cost little."""

import functools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cstool.kernels.sparse import SparseMatrix, matrix
from cstool.kernels.sparse.crossover import Crossover
from cstool.machine import sparsity as kernel_choice
from cstool.machine.appliance import Appliance
from cstool.machine.memoryx.sparse_weights import SparseWeight
from cstool.params import load_params
from cstool.run.result import RunResult
from cstool.sparsity import is_update_step, keep_count, starts_sparse
from cstool.sparsity.schedules import drop_fraction_at
from tests.end_to_end.runs import bits, gpt_params, latest_bits, run_file
from tests.models import FAMILIES

INTEROP = Path(__file__).parents[1] / "interop"
LAYER = "transformer_decoder.layers.{}."
MATRICES = {
    "self_attn.proj_q_dense_layer.weight": (32, 32),
    "self_attn.proj_k_dense_layer.weight": (32, 32),
    "self_attn.proj_v_dense_layer.weight": (32, 32),
    "self_attn.proj_output_dense_layer.weight": (32, 32),
    "ffn.ffn.0.linear_layer.weight": (64, 32),
    "ffn.ffn.1.linear_layer.weight": (32, 64),
}
SHAPES = {LAYER.format(layer) + name: shape for layer in (0, 1) for name, shape in MATRICES.items()}
CHANGING: dict[str, dict[str, Any]] = {
    "set": {"algorithm": "set", "sparsity": [0.5, 0.9, 0.75], "update": {"freq": 2}},
    "rigl": {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 2}},
    "gmp": {"algorithm": "gmp", "sparsity": {"type": "linear", "init": 0.0, "slope": 0.1}, "update": {"freq": 2}},
    "dropconnect": {"algorithm": "dropconnect", "sparsity": 0.5},
}


def sparse_params(folder: Path, data: Path, sparsity: Any, *, steps: int, every: int, **changes: Any) -> Path:
    """Write the params of a small GPT with 4 grains to a batch."""
    loader = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": str(data), "batch_size": 16}
    return gpt_params(
        folder,
        data,
        **{
            "init__sparsity": sparsity,
            "init__loop": {"max_steps": steps},
            "init__checkpoint": {"steps": every},
            "fit": {"train_dataloader": {**loader, "shuffle": True}, "val_dataloader": loader},
            **changes,
        },
    )


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "model_dir").glob("checkpoint_*.mdl"), key=lambda path: int(path.stem.split("_")[1]))


def indices(checkpoint: Path) -> dict[str, list[int]]:
    with h5py.File(checkpoint) as file:
        found = [key for key in file if key.endswith(".indices")]
        return {key[len("model.") : -len(".indices")]: file[key][:].tolist() for key in found}


def train(file: Path, **flags: Any) -> RunResult:
    """Run a file; in weight streaming, which compiles sooner. The bits are the same."""
    return run_file(file, execution_mode="weight_streaming", **flags)


@pytest.mark.parametrize(
    ("algorithm", "norm"),
    [*((algorithm, {"max_gradient_norm": 1.0}) for algorithm in CHANGING), ("rigl", {})],
    ids=[*CHANGING, "rigl, not clipped"],
)
def test_interrupted_before_at_and_after_an_update_step_it_ends_with_the_same_bits(tmp_path, data, algorithm, norm):
    """Masks change after steps 2, 4 and 6, and with dropconnect for every step; it stops after 3, 4 and 5."""
    changes = {"init__precision": norm, "init__model__dropout_rate": 0.1}
    straight = train(sparse_params(tmp_path / "straight", data, CHANGING[algorithm], steps=6, every=6, **changes))
    losses: list[float] = []
    for stop in (3, 4, 5, 6):
        file = sparse_params(tmp_path / "stopped", data, CHANGING[algorithm], steps=stop, every=stop, **changes)
        part = train(file, lanes=1 + stop % 2, trainer__init__backend__cluster_config__num_csx=2 if stop > 4 else 1)
        assert part.first_step == len(losses)
        losses += part.losses
    assert losses == straight.losses
    assert bits(part)[1] == bits(straight)[1]


def test_killed_between_updates_it_does_again_what_was_lost(tmp_path, data):
    """The last checkpoint is of step 7; steps 8 and 10 changed the masks before the process was killed."""
    args = {"steps": 20, "every": 7, "init__model__dropout_rate": 0.1}
    straight = train(sparse_params(tmp_path / "straight", data, CHANGING["rigl"], **args))
    file = sparse_params(tmp_path / "killed", data, CHANGING["rigl"], **args)
    command = [sys.executable, "-m", "cstool", "run", "--params", str(file), "--lanes", "2"]
    command += ["--sparse_kernels", "always"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "Step=10," in line:
            break
    process.kill()
    process.communicate()
    assert "Step=10," in seen[-1], "".join(seen)
    assert [path.stem for path in checkpoints(tmp_path / "killed")] == ["checkpoint_7"]
    resumed = train(file)
    assert (resumed.first_step, resumed.losses) == (7, straight.losses[7:])
    assert latest_bits(tmp_path / "killed" / "model_dir") == latest_bits(tmp_path / "straight" / "model_dir")


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        ({"freq": 2}, [2, 4, 6, 8]),
        ({"freq": 2, "stop": 6}, [2, 4]),
        ({"freq": 3, "start": 2}, [2, 5, 8]),
        ({"steps": [0, 1, 6]}, [1, 6]),
        (None, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
    ids=str,
)
@pytest.mark.parametrize("algorithm", ["set", "rigl"])
def test_masks_change_after_the_steps_that_the_vendor_documents_and_after_no_other(
    tmp_path, data, monkeypatch, algorithm, update, expected
):
    """And dense gradients are asked for on these steps alone, by RigL alone; each mask keeps the documented count."""
    asked: set[int] = set()
    changed: list[int] = []
    now = 0
    backward, change_mask, train_step = SparseMatrix.backward, SparseWeight.change_mask, Appliance.train_step

    def watch_backward(self: SparseMatrix, *arguments: Any) -> None:
        if self.dense_gradient:
            asked.add(now)
        backward(self, *arguments)

    def watch_changes(self: SparseWeight, step: int, dense_gradient: Any) -> None:
        assert (dense_gradient is not None) == (algorithm == "rigl")
        changed.append(step)
        change_mask(self, step, dense_gradient)

    def watch_steps(self: Appliance, batch: Any, step: int, learning_rate: float) -> Any:
        nonlocal now
        now = step
        return train_step(self, batch, step, learning_rate)

    monkeypatch.setattr(SparseMatrix, "backward", watch_backward)
    monkeypatch.setattr(SparseWeight, "change_mask", watch_changes)
    monkeypatch.setattr(Appliance, "train_step", watch_steps)
    group = {"algorithm": algorithm, "sparsity": 0.75, **({} if update is None else {"update": update})}
    train(sparse_params(tmp_path, data, group, steps=8, every=1, init__checkpoint__save_initial_checkpoint=True))
    masks = [indices(path) for path in checkpoints(tmp_path)]
    assert len(masks) == 9
    assert masks[0].keys() == SHAPES.keys()
    for name, (rows, columns) in SHAPES.items():
        differ = [step for step in range(1, 9) if masks[step][name] != masks[step - 1][name]]
        assert differ == expected, name
        count = kept = keep_count(0.75, rows * columns)
        if update is not None and update.get("start"):
            count = rows * columns  # dense at first, and an update lets no more go than 0.3 of what there is
        counts = [count := max(kept, keep_count(0.3, count)) if step in expected else count for step in range(9)]
        assert [len(mask[name]) for mask in masks] == counts, name
    assert changed == sorted(expected * len(SHAPES))
    assert sorted(asked) == (expected if algorithm == "rigl" else [])


ROUNDINGS = 2.0**-20
"""relative difference of losses that a step may add: sixteen roundings to float32, of 2^-24 each"""
TIES = 2e-4
"""relative difference of losses once masks have changed: a rounding decides whether a weight at the threshold is just
kept or just dropped. In these models one such weight, a small one, moves a loss of 4 by some 5e-5: its size, 0.01,
times its gradient, whose norm is at most 1 over 30,000 weights. Few are that near to a threshold"""


def alike(sparse: list[float], dense: list[float], last: int) -> bool:
    """Say whether losses differ as those of two orders of sums may; masks are the same up to the step `last`."""
    differences = [abs(a - b) / b for a, b in zip(sparse, dense, strict=True)]
    return all(d <= (ROUNDINGS * step if step <= last else TIES) for step, d in enumerate(differences, start=1))


def losses_of(folder: Path, data: Path, kernels: str) -> RunResult:
    group = {"algorithm": "rigl", "sparsity": 0.75, "update": {"freq": 4}}
    return train(sparse_params(folder, data, group, steps=10, every=10), sparse_kernels=kernels)


def test_sparse_kernels_and_dense_ones_train_alike_and_a_wrong_one_does_not(tmp_path, data, monkeypatch):
    dense = losses_of(tmp_path / "never", data, "never")
    sparse = losses_of(tmp_path / "always", data, "always")
    assert {word for row in dense.sparsity for word in row["kernels"].values()} == {"dense"}
    assert {word for row in sparse.sparsity for word in row["kernels"].values()} == {"sparse"}
    assert alike(sparse.losses, dense.losses, 4)
    assert sparse.losses != dense.losses, "they add in another order"
    correct = matrix.sparse_linear_forward
    larger = functools.partial(np.multiply, np.float32(1.01))
    # Adam does not see that a gradient is larger.
    for name, at, change in (
        ("sparse_linear_forward", 2, larger),
        ("sparse_linear_delta", 2, larger),
        ("sparse_linear_gradient", 0, np.abs),
    ):
        original = getattr(matrix, name)

        def wrong(*arguments: Any, original: Any = original, at: int = at, change: Any = change) -> None:
            original(*(change(a) if i == at else a for i, a in enumerate(arguments)))

        with monkeypatch.context() as patch:
            patch.setattr(matrix, name, wrong)
            broken = losses_of(tmp_path / name, data, "always")
        assert not alike(broken.losses[:4], dense.losses[:4], 4), name
    assert matrix.sparse_linear_forward is correct


LINEAR = 2 * (4 * 128 * 128 + 2 * 128 * 512)
"""weights of the matrices of a model of width 128"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory, data) -> Callable[[Any], RunResult]:
    """Return two steps of a model nearly all of whose weights are linear ones; the same twice is run once."""

    @functools.cache
    def run_wide(sparsity: str) -> RunResult:
        width = {"init__model__hidden_size": 128, "init__model__filter_size": 512}
        folder = tmp_path_factory.mktemp("wide")
        return train(sparse_params(folder, data, json.loads(sparsity), steps=2, every=2, **width))

    return lambda sparsity: run_wide(json.dumps(sparsity))


def weight_bytes(result: RunResult) -> int:
    return sum(result.memory_bytes.get(key, 0) for key in ("weights", "sparse_patterns", "optimizer_state"))


def checkpoint_bytes(result: RunResult) -> int:
    return Path(result.checkpoints[-1]).stat().st_size


@pytest.mark.parametrize("algorithm", ["static", "set", "rigl"])
def test_a_tenth_of_the_weights_takes_less_than_a_quarter_of_the_memory(wide, algorithm):
    """Of the linear weights: what is allocated for them and their optimizer state, and what a checkpoint holds."""
    dense = wide([])
    update = {} if algorithm == "static" else {"update": {"freq": 2}}
    sparse = wide({"algorithm": algorithm, "sparsity": 0.9, **update})
    assert dense.memory_bytes["weights"] == 4 * dense.parameters
    others_bytes = 3 * 4 * (dense.parameters - LINEAR)
    assert weight_bytes(dense) - others_bytes == 3 * 4 * LINEAR
    assert 0.1 < (weight_bytes(sparse) - others_bytes) / (3 * 4 * LINEAR) < 0.15
    with h5py.File(dense.checkpoints[-1]) as file:
        rest_bytes = checkpoint_bytes(dense) - sum(tensor.nbytes for tensor in file.values())
    assert rest_bytes < 0.05 * checkpoint_bytes(dense)
    assert (checkpoint_bytes(sparse) - others_bytes - rest_bytes) / (3 * 4 * LINEAR) < 0.15
    if algorithm != "rigl":
        assert sparse.memory_bytes["gradients"] < 0.25 * dense.memory_bytes["gradients"]


def test_what_streams_falls_with_the_density(wide):
    runs = {sparsity: wide({"sparsity": sparsity}) for sparsity in (0.5, 0.75, 0.9)}
    dense = wide([]).streamed_bytes_per_step
    others = dense - 2 * 4 * LINEAR
    assert [run.dense_streamed_bytes_per_step for run in (wide([]), *runs.values())] == [dense] * 4
    # A number is 4 bytes and its column 1; rows and counts of the pattern are a few percent of the panel.
    for sparsity, run in runs.items():
        share = (run.streamed_bytes_per_step - others) / (2 * 4 * LINEAR)
        assert (1 - sparsity) * 1.25 < share < (1 - sparsity) * 1.25 + 0.02


def test_there_is_room_for_what_a_run_will_keep_at_its_last_step(wide):
    """The share of zeros falls from 0.8 by 0.1 a step; it is of all matrices, two layers of six."""
    grown = wide({"algorithm": "gmp", "sparsity": {"type": "linear", "init": 0.8, "slope": -0.1}})
    kept = 2 * (4 * keep_count(0.6, 128 * 128) + 2 * keep_count(0.6, 128 * 512))
    assert grown.memory_bytes["weights"] == 4 * (grown.parameters - LINEAR + kept)
    assert {name: len(mask) for name, mask in indices(Path(grown.checkpoints[-1])).items()} == {
        name: keep_count(0.6, 128 * 128 if "proj" in name else 128 * 512) for name in SHAPES
    }


SMALLER = {
    "model.hidden_size": 32,
    "model.num_heads": 2,
    "model.filter_size": 64,
    "model.num_hidden_layers": 2,
    "model.max_position_embeddings": 128,
    "model.vocab_size": 64,
    "loop.max_steps": 5,
    "checkpoint.steps": 1,
    "checkpoint.save_initial_checkpoint": "true",
}


@pytest.mark.parametrize(
    ("name", "freq", "updates"),
    [
        ("params_gpt3_125m_static75", None, []),
        ("params_gpt3_125m_rigl75", None, []),
        ("params_gpt3_125m_rigl75", 2, [2, 4]),
    ],
)
def test_the_vendors_sparse_files_train_as_they_are_but_smaller(cstool, tmp_path, data, name, freq, updates):
    settings = {f"trainer.init.{key}": value for key, value in SMALLER.items()}
    settings |= {"trainer.fit.train_dataloader.data_dir": data, "trainer.fit.train_dataloader.batch_size": 8}
    settings |= {} if freq is None else {"trainer.init.sparsity.update.freq": freq}
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    outcome = cstool("run", "-p", INTEROP / f"{name}.yaml", *flags, "--model_dir", tmp_path / "model_dir", "--json")
    assert outcome.code == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert sum(row["count"] for row in found["sparsity"]) == len(SHAPES)
    masks = [indices(path) for path in checkpoints(tmp_path)]
    assert len(masks) == 6
    for mask in masks:
        assert {weight: len(kept) for weight, kept in mask.items()} == {
            weight: rows * columns // 4 for weight, (rows, columns) in SHAPES.items()
        }
    for weight in SHAPES:
        assert [step for step in range(1, 6) if masks[step][weight] != masks[step - 1][weight]] == updates


def test_the_vendors_rigl_updates_after_every_100th_step_up_to_3500():
    [group] = load_params(INTEROP / "params_gpt3_125m_rigl75.yaml").sparsity
    assert [step for step in range(1, 4779) if is_update_step(group.update, step)] == [*range(100, 3501, 100)]
    assert starts_sparse(group.update)
    assert drop_fraction_at(group, 100) == pytest.approx(0.15 + 0.15 * math.cos(math.pi * 100 / 3584))


@pytest.mark.parametrize("group", [{"sparsity": 0.75}, CHANGING["dropconnect"]], ids=["static", "dropconnect"])
def test_a_run_that_goes_on_keeps_the_kernels_with_which_it_began(tmp_path, data, monkeypatch, group):
    """Though the machine would now measure otherwise; a run that takes the weights alone goes by the machine."""

    def train_where(measured: float, folder: str, steps: int, states: str | None = None) -> tuple[RunResult, set[str]]:
        """Return the run, and which kernels computed."""
        used: set[str] = set()
        crossover = Crossover(measured, measured, measured)
        with monkeypatch.context() as patch:
            patch.setattr(kernel_choice, "crossover", lambda *_, **__: crossover)
            for name in ("sparse_linear_forward", "linear_forward"):
                original = getattr(matrix, name)
                patch.setattr(matrix, name, lambda *a, name=name, original=original: (used.add(name), original(*a))[1])
            file = sparse_params(tmp_path / folder, data, group, steps=steps, every=steps)
            return train(file, sparse_kernels="auto", states=states), used

    straight, used = train_where(1.0, "straight", 4)
    assert used == {"sparse_linear_forward"}
    other, used = train_where(0.0, "other", 4)
    assert used == {"linear_forward"}
    assert bits(other) != bits(straight)
    train_where(1.0, "stopped", 2)
    resumed, used = train_where(0.0, "stopped", 4)
    assert used == {"sparse_linear_forward"}
    assert bits(resumed)[1] == bits(straight)[1]
    _, used = train_where(0.0, "stopped", 6, states="model,optimizer")
    assert used == {"linear_forward"}


@pytest.mark.parametrize("group", [{"sparsity": 0.75}, CHANGING["dropconnect"]], ids=["static", "dropconnect"])
def test_other_kernels_than_before_are_told(tmp_path, data, caplog, group):
    caplog.set_level("WARNING", "cstool")
    for steps, kernels in ((1, "never"), (2, "never"), (3, "always")):
        assert not caplog.messages
        train(sparse_params(tmp_path, data, group, steps=steps, every=1), sparse_kernels=kernels)
    assert caplog.messages == [
        "Not as it was in the checkpoint: sparse_kernels never -> always. Bits may differ from a straight run."
    ]


def test_an_evaluation_over_masks_of_dropconnect_says_how_far_they_differ(tmp_path, data):
    """It can be repeated; one without masks takes all weights, and says what a dense file says of the checkpoint."""
    group = {**CHANGING["dropconnect"], "samples": 3}
    trained = train(sparse_params(tmp_path, data, group, steps=2, every=2), mode="train_and_eval")
    [evaluation] = trained.evaluations
    assert evaluation["masks"] == 3
    assert 0 < evaluation["loss_deviation"] < 0.1 * evaluation["loss"]
    again = train(sparse_params(tmp_path, data, group, steps=2, every=2), mode="eval", lanes=2)
    same = ("loss", "accuracy", "loss_deviation", "masks")
    assert {key: again.evaluations[0][key] for key in same} == {key: evaluation[key] for key in same}
    without = {key: value for key, value in group.items() if key != "samples"}
    plain = train(sparse_params(tmp_path, data, without, steps=2, every=2), mode="eval")
    dense = train(sparse_params(tmp_path, data, [], steps=2, every=2), mode="eval")
    assert "masks" not in plain.evaluations[0]
    assert plain.evaluations[0]["loss"] == dense.evaluations[0]["loss"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_sparsely_with_either_kernels(tmp_path, data, family):
    """Every matrix of a linear layer is sparse, a router is not; the mask changes after the second step."""
    model = {f"init__model__{key}": value for key, value in FAMILIES[family].items()}
    filters = ["*dense_layer*.weight", "*linear_layer*.weight"]
    group = {"algorithm": "rigl", "sparsity": 0.75, "update": {"steps": [2]}, "param_filter": filters}
    runs = {
        kernels: train(
            sparse_params(tmp_path / kernels, data, group, steps=3, every=3, **model), sparse_kernels=kernels
        )
        for kernels in ("never", "always")
    }
    assert alike(runs["always"].losses, runs["never"].losses, 2)
    assert len({*runs["always"].losses}) == 3
    masks = indices(Path(runs["always"].checkpoints[-1]))
    with h5py.File(runs["always"].checkpoints[-1]) as file:
        matrices = [
            key for key in file if key.startswith("model.transformer_decoder.layers") and key.endswith("weight")
        ]
        dense = {key.removeprefix("model.") for key in matrices if "norm" not in key} - {*masks}
    assert dense == {name for name in dense if name.endswith("ffn.gate.weight")}


def test_a_static_mask_that_goes_on_with_other_zeros_than_asked_for_is_told(tmp_path, data, caplog):
    run_file(sparse_params(tmp_path, data, 0.75, steps=1, every=1))
    run_file(sparse_params(tmp_path, data, 0.5, steps=2, every=1))
    name = LAYER.format(0) + "self_attn.proj_q_dense_layer.weight"
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"{name} goes on with the 75.0% zeros that it has in the checkpoint: a static mask does not change, whatever "
        "sparsity the params ask for."
    ]
