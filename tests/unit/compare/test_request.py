"""What is asked for, and which runs answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from cstool.compare.request import Request, check_params, run_params, sparse_groups
from cstool.errors import CstoolError, ParamsError
from cstool.params import Params, load_params
from cstool.params.sections.model import MODELS
from tests.unit.cli.test_compile import TRAINER


@pytest.fixture
def load(tmp_path):
    """Load a params file with a sparsity section and other keys of `trainer.init`."""

    def load_with(sparsity: object = None, **init: object) -> Params:
        loader = TRAINER["fit"]["train_dataloader"]
        trainer = {
            "init": {**TRAINER["init"], "sparsity": sparsity, **init},
            "fit": {"train_dataloader": loader, "val_dataloader": loader},
        }
        file = tmp_path / "x.yaml"
        file.write_text(yaml.safe_dump({"trainer": trainer}))
        return load_params(file)

    return load_with


def test_without_a_section_a_number_is_static_zeros_at_random(load):
    (group,) = sparse_groups(load(), 0.75, "--sparsity")
    assert (group.sparsity, group.algorithm, group.init_method, group.param_filter) == (0.75, "static", "random", None)


def test_the_file_decides_where_nothing_is_typed(load):
    params = load({"sparsity": 0.3, "algorithm": "rigl", "update": {"freq": 5}})
    assert sparse_groups(params, None, "--sparsity") == params.sparsity


def test_a_number_takes_the_place_of_that_of_every_group(load):
    ffn, attention = {"param_filter": "*ffn*0.linear_layer.weight"}, {"param_filter": "*proj_q_dense_layer.weight"}
    params = load([{"sparsity": 0.3, "algorithm": "set", **ffn}, {"sparsity": 0.5, "init_method": "topk", **attention}])
    groups = sparse_groups(params, 0.9, "--sparsity")
    assert [group.sparsity for group in groups] == [0.9, 0.9]
    assert [(group.algorithm, group.init_method) for group in groups] == [("set", "random"), ("static", "topk")]


@pytest.mark.parametrize("schedule", [{"type": "linear", "init": 0.0, "slope": 0.1}, [0.1, 0.2]])
def test_a_number_does_not_take_the_place_of_a_schedule(load, schedule):
    params = load([{"sparsity": 0.3, "param_filter": "*q_dense*"}, {"sparsity": schedule, "algorithm": "gmp"}])
    with pytest.raises(CstoolError) as error:
        sparse_groups(params, 0.9, "--sweep")
    assert error.value.message == (
        f"{params.path}:23: trainer.init.sparsity.1.sparsity must be a number for --sweep to take its place, got a "
        "schedule"
    )
    assert error.value.hint == "leave out --sweep to validate what the file asks for"


def test_no_sparsity_at_all_is_no_comparison(load):
    params = load()
    with pytest.raises(CstoolError) as error:
        sparse_groups(params, None, "--sparsity")
    assert str(error.value) == (
        f"{params.path}: must ask for sparsity, which validate compares with dense: there is no trainer.init.sparsity, "
        f"and no --sparsity\nhint: add --sparsity 0.9; to evaluate a checkpoint, `cstool run --mode eval --params "
        f"{params.path}`"
    )


def test_an_optimizer_of_dense_weights_alone_takes_no_sparsity(load):
    with pytest.raises(CstoolError) as error:
        sparse_groups(load(optimizer={"Adafactor": {"learning_rate": 0.01}}), 0.9, "--sparsity")
    assert str(error.value) == (
        "--sparsity: must not be given with Adafactor, got 0.9\n"
        "hint: of sparse weights Adafactor keeps no state: AdamW, Lion or SGD trains them"
    )


def test_a_policy_beside_its_reference_takes_no_sparsity(load):
    model = {"name": "dpo", "dpo": {"beta": 0.1}, "policy_model": TRAINER["init"]["model"]}
    params = replace(load(), model=MODELS["dpo"].model_validate(model))
    with pytest.raises(CstoolError) as error:
        sparse_groups(params, 0.9, "--sparsity")
    assert str(error.value) == (
        "--sparsity: must not be given with dpo, got 0.9\n"
        "hint: a policy with zeros would be held against a reference without them"
    )


@pytest.mark.parametrize(
    ("loop", "asked", "steps"),
    [
        ({"max_steps": 600}, None, 100),
        ({"max_steps": 30}, None, 30),
        ({"num_steps": 7}, None, 7),
        ({"num_epochs": 2}, None, 100),
        ({"max_steps": 30}, 500, 500),
    ],
)
def test_a_hundred_steps_unless_fewer_or_others_are_asked_for(load, loop, asked, steps):
    assert Request(num_steps=asked).steps(load(loop=loop)) == steps


def test_a_run_begins_afresh_and_evaluates_at_its_end_alone(load, tmp_path):
    params = load(
        loop={"num_steps": 9, "eval_frequency": 2}, checkpoint={"autoload_last_checkpoint": False, "steps": 3}
    )
    found = run_params(params, sparse_groups(params, 0.5, "--sparsity"), tmp_path / "run", 20)
    assert (found.loop.max_steps, found.loop.num_steps, found.loop.eval_interval(20)) == (20, None, None)
    assert (found.checkpoint.steps, found.checkpoint.autoload_last_checkpoint) == (20, True)
    assert (found.model_dir, found.checkpoint_path) == (tmp_path / "run", None)
    assert [group.sparsity for group in found.sparsity] == [0.5]
    assert (found.model, found.optimizer, found.seed) == (params.model, params.optimizer, params.seed)


def test_what_does_not_count_is_noted(load):
    params = load()
    assert check_params(params) == ()
    params = load_params(params.path, overrides=["trainer.fit.ckpt_path=a.mdl"])
    assert check_params(params) == (
        "trainer.fit.ckpt_path does not count: every run begins with the weights that the seed gives",
    )


def test_held_out_data_are_needed(load):
    params = load_params(load().path, overrides=["trainer.fit.val_dataloader=null"])
    with pytest.raises(ParamsError, match="val_dataloader is missing: validate compares the losses on data"):
        check_params(params)
