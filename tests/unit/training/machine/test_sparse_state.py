"""Sparse weights in a checkpoint: what is there, what any reader makes of it, and what is refused on the way back."""

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cstool.foundation.errors import CheckpointError
from cstool.model.ir import _graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import SGD, AdamW, SparsityParams, parse_states
from cstool.model.sparsity import keep_count
from cstool.training.machine.appliance import Appliance
from cstool.training.machine.state import Position, load_state
from cstool.training.store import CheckpointReader, read_mask, read_weight
from tests.contract.refusal import refusal as refused
from tests.models import fc_mnist
from tests.unit.model.sparsity.sections import group
from tests.unit.training.machine.machines import USUAL, dense_arrays, make_appliance, random_batch, rewrite, save
from tests.unit.training.machine.sparse_machines import SEED, rules

Array = np.ndarray
SPARSE, DENSE = "fc_layers.1.weight", "fc_layers.0.weight"
KEY = f"model.{SPARSE}"
PLACE = Position(2, 2, 4)
MOMENTUM, ADAMW = make_optimizer(SGD(momentum=0.9), None), make_optimizer(AdamW(), None)
COUNT = keep_count(0.75, 8 * 12)
TOPK = group(0.75, init_method="topk")
OTHER = "the checkpoint is of another model: choose another --model_dir to start fresh, or another checkpoint"
AFRESH = "--load_checkpoint_states model takes the weights alone"


@contextmanager
def appliance_of(sparsity=TOPK, optimizer=MOMENTUM, **keys):
    """Lend an appliance of which one weight is sparse, or none."""
    found = rules({} if sparsity is None else {SPARSE: sparsity}, read_weight=read_weight, read_mask=read_mask, **keys)
    with make_appliance(fc_mnist(12, 8, use_bias=False), optimizer=optimizer, sparsity=found, **USUAL) as appliance:
        yield appliance


def saved(path: Path, sparsity: SparsityParams | None = TOPK, steps: int = 2) -> dict[str, Array]:
    """Write a checkpoint after two steps, and return all arrays with their zeros."""
    with appliance_of(sparsity) as appliance:
        appliance.memoryx.initialize(SEED)
        appliance.prepare(4, trains=True)
        for step in range(1, steps + 1):
            appliance.train_step(random_batch(appliance.graph, 4, seed=step), step, 0.1)
        save(path, appliance, PLACE)
        return dense_arrays(appliance)


def load(path: Path, appliance: Appliance, states: str = "all") -> None:
    """Do what a run does: begin at random where not all comes from the checkpoint."""
    if states != "all":
        appliance.memoryx.initialize(SEED)
    with CheckpointReader(path) as reader:
        load_state(reader, appliance.memoryx, states=parse_states(states), strict=True)


def loaded(path, sparsity=TOPK, optimizer=MOMENTUM, states="all", **keys):
    with appliance_of(sparsity, optimizer, **keys) as appliance:
        load(path, appliance, states)
        return dense_arrays(appliance)


def refusal(path: Path, *how: Any, **also: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        loaded(path, *how, **also)
    return str(caught.value)


def rewritten(path: Path, **changes: Any) -> Path:
    saved(path.with_name("original.mdl"))
    return rewrite(path.with_name("original.mdl"), path, **changes)


def test_a_checkpoint_holds_these_tensors(tmp_path):
    with appliance_of() as appliance:
        appliance.memoryx.initialize(SEED)
        assert save(tmp_path / "c.mdl", appliance, PLACE) == 4 * (3 * COUNT + 2 * (12 * 784 + 10 * 8))
    with CheckpointReader(tmp_path / "c.mdl") as reader:
        found = {name: (reader.shape(name), reader.dtype(name)) for name in reader.tensor_names()}
        keys, sparsity = reader.keys(), reader.value("sparsity")
    assert found == {
        f"model.{DENSE}": ((12, 784), "float32"),
        f"optimizer.{DENSE}.momentum_buffer": ((12, 784), "float32"),
        f"{KEY}.indices": ((COUNT,), "uint32"),
        KEY: ((COUNT,), "float32"),
        f"optimizer.{SPARSE}.momentum_buffer": ((COUNT,), "float32"),
        "model.last_layer.weight": ((10, 8), "float32"),
        "optimizer.last_layer.weight.momentum_buffer": ((10, 8), "float32"),
    }
    assert keys[:7] == list(found)
    assert keys[7:] == ["global_step", "dataloader", "random", "choices", "sparsity", "__metadata__"]
    assert sparsity == {SPARSE: {"shape": [8, 12], "algorithm": "static", "density": 0.25, "non_zeros": 24}}


def test_plain_h5py_makes_the_dense_matrix_of_it(tmp_path, monkeypatch):
    monkeypatch.setattr(_graph, "PANEL_BYTES", 2 * 4 * 12)  # four panels
    before = saved(tmp_path / "c.mdl", group(0.75, algorithm="set"))
    with h5py.File(tmp_path / "c.mdl") as file:
        for key in (KEY, *(n for n in before if n.startswith("optimizer.fc_layers.1"))):
            whole = before[key]
            indices = file[f"{KEY}.indices"][:]
            assert np.all(np.diff(indices.astype(np.int64)) > 0)
            dense = np.zeros((8, 12), np.float32)
            dense.reshape(-1)[indices] = file[key][:]
            assert dense.any()
            np.testing.assert_array_equal(dense, whole)


@pytest.mark.parametrize("panel_bytes", [2**25, 2 * 4 * 12])
def test_loading_brings_back_every_bit_however_weights_are_cut(tmp_path, monkeypatch, panel_bytes):
    algorithm = group(0.75, algorithm="rigl", update={"freq": 2})
    before = saved(tmp_path / "c.mdl", algorithm)
    monkeypatch.setattr(_graph, "PANEL_BYTES", panel_bytes)
    after = loaded(tmp_path / "c.mdl", algorithm)
    np.testing.assert_equal(after, before)


def test_a_weight_that_has_only_just_grown_is_still_there_after_loading(tmp_path):
    """Step 2 changed the mask: what is new is zero, and in the mask."""
    algorithm = group(0.75, algorithm="set", update={"freq": 2})
    before = saved(tmp_path / "c.mdl", algorithm)
    assert np.count_nonzero(before[KEY]) < COUNT
    with appliance_of(algorithm) as appliance:
        load(tmp_path / "c.mdl", appliance)
        assert appliance.memoryx.arrays.sparse[SPARSE].count == COUNT
    with appliance_of(ticket(tmp_path, "c.mdl")) as appliance:
        appliance.memoryx.initialize(SEED)
        assert appliance.memoryx.arrays.sparse[SPARSE].count == COUNT


@pytest.mark.parametrize(
    ("of", "how", "rule"),
    [
        (
            None,
            (TOPK,),
            f"{SPARSE} must be sparse, as in this run, got a dense one without a mask\n"
            f"hint: {AFRESH}, and init_method: topk keeps the largest",
        ),
        (TOPK, (None,), f"{SPARSE} must be dense, as in this run, got a sparse one\nhint: {AFRESH}, with their zeros"),
        *(
            (
                TOPK,
                (group(0.9), optimizer, "model"),
                f"{SPARSE} must have at most {keep_count(0.9, 96)} non-zeros in this run, got {COUNT}\n"
                "hint: a lower sparsity makes room for them",
            )
            for optimizer in (MOMENTUM, None)
        ),
    ],
)
def test_what_does_not_go_with_the_run_is_refused(tmp_path, of, how, rule):
    path = tmp_path / "c.mdl"
    saved(path, of)
    assert refusal(path, *how) == f"{path}: {rule}"


@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAMW, None], ids=["momentum", "adamw", "evaluation"])
def test_its_weights_alone_do_and_topk_keeps_the_largest(tmp_path, optimizer):
    before = saved(tmp_path / "c.mdl", None)
    after = loaded(tmp_path / "c.mdl", TOPK, optimizer, "model")
    whole = before[KEY]
    smallest_kept = np.sort(np.abs(whole).reshape(-1))[-COUNT]
    np.testing.assert_array_equal(after[KEY], np.where(np.abs(whole) >= smallest_kept, whole, 0))
    assert np.count_nonzero(after[KEY]) == COUNT
    np.testing.assert_array_equal(after[f"model.{DENSE}"], before[f"model.{DENSE}"])
    assert not any(array.any() for name, array in after.items() if name.startswith("optimizer."))


@pytest.mark.parametrize(
    ("sparsity", "optimizer", "states"),
    [(None, MOMENTUM, "model"), (None, None, "all"), (None, None, "model"), (group(0.75), MOMENTUM, "model")],
    ids=["train", "eval", "eval model", "train with this mask"],
)
def test_its_weights_alone_do_with_their_zeros(tmp_path, monkeypatch, sparsity, optimizer, states):
    """The mask of a checkpoint takes the place of the first one."""
    before = saved(tmp_path / "c.mdl")
    monkeypatch.setattr(_graph, "PANEL_BYTES", 2 * 4 * 12)
    after = loaded(tmp_path / "c.mdl", sparsity, optimizer, states)
    np.testing.assert_array_equal(after[KEY], before[KEY])
    assert np.count_nonzero(after[KEY]) == COUNT
    assert not any(array.any() for name, array in after.items() if name.startswith("optimizer."))


@pytest.mark.parametrize("sparsity", [TOPK, None], ids=["sparse", "dense"])
def test_optimizer_state_without_the_weights_that_it_goes_with_is_refused(tmp_path, sparsity):
    path = tmp_path / "c.mdl"
    saved(path)
    assert refusal(path, sparsity, states="optimizer,dataloader") == (
        "--load_checkpoint_states: must have model in it where weights are sparse, got optimizer,dataloader\n"
        "hint: the optimizer state of a sparse weight goes with its mask"
    )


def indices(*places: int) -> Array:
    """Return indices as a checkpoint has them, but for the last ones."""
    return np.array([*range(COUNT - len(places)), *places], np.uint32)


INDICES, STATE, COUNTED = f"{KEY}.indices", f"optimizer.{SPARSE}.momentum_buffer", np.arange(COUNT)
NO_ROW = f"{INDICES} must be one row of unsigned integers, got"
SHAPE, OF_ANOTHER = f"{SPARSE} must be 8 x 12, as in this model, got", f"\nhint: {OTHER}"
BELONG = f"{INDICES} must belong to a sparse weight, it does not"
NO_SHAPES: list[Any] = [
    {},
    3,
    {SPARSE: 3},
    {SPARSE: {}},
    *({SPARSE: {"shape": s}} for s in (96, "96", [96], [8, 12.0])),
]


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        (INDICES, indices(50, 30), f"{INDICES} must ascend, got 50, 30 at {COUNT - 2}"),
        (INDICES, indices(50, 50), f"{INDICES} must ascend, got 50, 50 at {COUNT - 2}"),
        (INDICES, indices(95, 96), f"{INDICES} must be less than 96, got 96 at {COUNT - 1}"),
        (INDICES, indices(95, 96).astype(np.uint64) << 57, f"{INDICES} must be less than 96, got {1 << 57} at 1"),
        (INDICES, COUNTED.astype(np.int64), f"{NO_ROW} {COUNT} int64"),
        (INDICES, COUNTED.astype(np.float32), f"{NO_ROW} {COUNT} float32"),
        (INDICES, COUNTED.astype(np.uint32).reshape(2, -1), f"{NO_ROW} 2 x {COUNT // 2} uint32"),
        (KEY, np.zeros(COUNT - 1, np.float32), f"{KEY} must be {COUNT} float32, got {COUNT - 1} float32"),
        (KEY, np.zeros(COUNT, np.float64), f"{KEY} must be {COUNT} float32, got {COUNT} float64"),
        (KEY, np.zeros((8, 12), np.float32), f"{KEY} must be {COUNT} float32, got 8 x 12 float32"),
        (STATE, np.zeros((8, 12), np.float32), f"{STATE} must be {COUNT} float32, got 8 x 12 float32"),
        (KEY, "left out", BELONG),
        ("sparsity", "left out", BELONG),
        *(("sparsity", value, BELONG) for value in (3, {}, *({SPARSE: each} for each in (3, {}, *NO_SHAPES)))),
        ("sparsity", {SPARSE: {"shape": [12, 8]}}, f"{SHAPE} 12 x 8{OF_ANOTHER}"),
        (INDICES, "left out", f"{SHAPE} {COUNT}{OF_ANOTHER}"),
    ],
)
def test_what_no_run_would_write_is_refused(tmp_path, key, value, rule):
    path = rewritten(tmp_path / "c.mdl", **{key: value})
    assert refusal(path) == f"{path}: {rule}"


@pytest.mark.parametrize("sparsity", [TOPK, None])
def test_damaged_indices_are_found(tmp_path, sparsity):
    path = tmp_path / "c.mdl"
    saved(path)
    with h5py.File(path) as file:
        offset = file[INDICES].id.get_offset()
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    assert refusal(path, sparsity, None).startswith(f"{path}: {INDICES} is damaged: its checksum must be ")


def ticket(folder: Path, mask: str = "mask.mdl", **keys: Any) -> SparsityParams:
    """A group whose mask comes from one checkpoint, and its weights from another if asked for."""
    names = {"mask_checkpoint": str(folder / mask), **keys}
    return group(None, init_method="from_checkpoint", **names)


@pytest.mark.parametrize("mask_is_sparse", [True, False])
def test_a_lottery_ticket_has_the_mask_of_one_checkpoint_and_the_weights_of_another(tmp_path, mask_is_sparse):
    first = saved(tmp_path / "first.mdl", None, steps=1)
    mask = saved(tmp_path / "mask.mdl", group(0.75))[KEY] != 0
    if not mask_is_sparse:
        (tmp_path / "mask.mdl").rename(tmp_path / "sparse.mdl")
        with appliance_of(None) as appliance:
            appliance.memoryx.initialize(SEED)
            pruned = np.where(mask, 1, 0).astype(np.float32)
            appliance.memoryx.arrays.load(KEY, lambda out, start, stop: np.copyto(out, pruned[start:stop]))
            save(tmp_path / "mask.mdl", appliance, PLACE)
    with appliance_of(ticket(tmp_path, rewind_checkpoint=str(tmp_path / "first.mdl"))) as appliance:
        appliance.memoryx.initialize(SEED)
        found = dense_arrays(appliance)
        assert appliance.memoryx.arrays.sparse[SPARSE].count == COUNT
    np.testing.assert_array_equal(found[KEY], np.where(mask, first[KEY], 0))


def test_without_a_checkpoint_to_rewind_to_the_weights_are_the_first_ones(tmp_path):
    mask = saved(tmp_path / "mask.mdl", group(0.75))[KEY] != 0
    first = saved(tmp_path / "first.mdl", None, steps=0)
    with appliance_of(ticket(tmp_path)) as appliance:
        appliance.memoryx.initialize(SEED)
        found = dense_arrays(appliance)
    np.testing.assert_array_equal(found[KEY], np.where(mask, first[KEY], 0))
    assert found[KEY].any()


@pytest.mark.parametrize(("role", "purpose"), [("mask", "for its mask"), ("rewind", "to start from")])
@pytest.mark.parametrize(
    ("changes", "got"),
    [
        (dict.fromkeys((KEY, INDICES, "sparsity", STATE), "left out"), "none"),
        ({"sparsity": {SPARSE: {"shape": [12, 8]}}}, "12 x 8"),
        ({INDICES: "left out", KEY: np.zeros((4, 24), np.float32)}, "4 x 24"),
    ],
)
def test_a_checkpoint_for_a_ticket_must_have_the_weight(tmp_path, changes, got, role, purpose):
    path = rewritten(tmp_path / "other.mdl", **changes)
    saved(tmp_path / "good.mdl", None)
    if role == "mask":
        found = ticket(tmp_path, "other.mdl")
    else:
        found = ticket(tmp_path, "good.mdl", rewind_checkpoint=str(path))
    rule = f"{path}: must have the weight {SPARSE}, 8 x 12, {purpose}, got {got}"
    with appliance_of(found) as appliance, refused(CheckpointError, rule):
        appliance.memoryx.initialize(SEED)


def test_the_numbers_of_a_checkpoint_to_rewind_to_must_be_as_many_as_their_places(tmp_path):
    path = rewritten(tmp_path / "other.mdl", **{KEY: np.zeros(COUNT - 1, np.float32)})
    found = ticket(tmp_path, "other.mdl", rewind_checkpoint=str(path))
    rule = f"{path}: {KEY} must be {COUNT} float32, got {COUNT - 1} float32"
    with appliance_of(found) as appliance, refused(CheckpointError, rule):
        appliance.memoryx.initialize(SEED)
