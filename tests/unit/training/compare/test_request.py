"""What is asked for, and which runs answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from cstool.foundation.errors import CstoolError, ParamsError
from cstool.model.params import Params, load_params
from cstool.model.params.sections.model import MODELS
from cstool.training.compare.request import Request, check_params, run_params, sparse_groups
from tests.unit.cli.test_compile import TRAINER


@pytest.fixture
def load(tmp_path):
    """Load a params file with a sparsity section and other keys of `trainer.init`."""

    def load_with(sparsity: object = None, **init: object) -> Params:
        loader = TRAINER["fit"]["train_dataloader"]
        fit = {"train_dataloader": loader, "val_dataloader": loader}
        trainer = {"init": {**TRAINER["init"], "sparsity": sparsity, **init}, "fit": fit}
        (tmp_path / "x.yaml").write_text(yaml.safe_dump({"trainer": trainer}))
        return load_params(tmp_path / "x.yaml")

    return load_with


def refusal(params: Params, sparsity: float | None = 0.9, asked_by: str = "--sparsity") -> str:
    with pytest.raises(CstoolError) as error:
        sparse_groups(params, sparsity, asked_by)
    return str(error.value).replace(str(params.path), "FILE")


def test_without_a_section_a_number_is_static_zeros_at_random_and_the_file_decides_where_nothing_is_typed(load):
    (group,) = sparse_groups(load(), 0.75, "--sparsity")
    assert (group.sparsity, group.algorithm, group.init_method, group.param_filter) == (0.75, "static", "random", None)
    params = load({"sparsity": 0.3, "algorithm": "rigl", "update": {"freq": 5}})
    assert sparse_groups(params, None, "--sparsity") == params.sparsity


def test_a_number_takes_the_place_of_that_of_every_group(load):
    ffn, attention = {"param_filter": "*ffn*0.linear_layer.weight"}, {"param_filter": "*proj_q_dense_layer.weight"}
    params = load([{"sparsity": 0.3, "algorithm": "set", **ffn}, {"sparsity": 0.5, "init_method": "topk", **attention}])
    groups = [(g.sparsity, g.algorithm, g.init_method) for g in sparse_groups(params, 0.9, "--sparsity")]
    assert groups == [(0.9, "set", "random"), (0.9, "static", "topk")]


@pytest.mark.parametrize("schedule", [{"type": "linear", "init": 0.0, "slope": 0.1}, [0.1, 0.2]])
def test_a_number_does_not_take_the_place_of_a_schedule(load, schedule):
    params = load([{"sparsity": 0.3, "param_filter": "*q_dense*"}, {"sparsity": schedule, "algorithm": "gmp"}])
    rule = "must be a number for --sweep to take its place, got a schedule"
    hint = "leave out --sweep to validate what the file asks for"
    told = f"FILE:23: trainer.init.sparsity.1.sparsity {rule}\nhint: {hint}"
    assert refusal(params, asked_by="--sweep") == told


def test_what_is_no_comparison_is_refused(load):
    assert refusal(load(), None) == (
        "FILE: must ask for sparsity, which validate compares with dense: there is no trainer.init.sparsity, and no "
        "--sparsity\nhint: add --sparsity 0.9; to evaluate a checkpoint, `cstool run --mode eval --params FILE`"
    )
    assert refusal(load(optimizer={"Adafactor": {"learning_rate": 0.01}})) == (
        "--sparsity: must not be given with Adafactor, got 0.9\n"
        "hint: of sparse weights Adafactor keeps no state: AdamW, Lion or SGD trains them"
    )
    model = {"name": "dpo", "dpo": {"beta": 0.1}, "policy_model": TRAINER["init"]["model"]}
    assert refusal(replace(load(), model=MODELS["dpo"].model_validate(model))) == (
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
    loop, checkpoint = {"num_steps": 9, "eval_frequency": 2}, {"autoload_last_checkpoint": False, "steps": 3}
    params = load(loop=loop, checkpoint=checkpoint)
    found = run_params(params, sparse_groups(params, 0.5, "--sparsity"), tmp_path / "run", 20)
    assert (found.loop.max_steps, found.loop.num_steps, found.loop.eval_interval(20)) == (20, None, None)
    assert (found.checkpoint.steps, found.checkpoint.autoload_last_checkpoint) == (20, True)
    assert (found.model_dir, found.checkpoint_path) == (tmp_path / "run", None)
    assert [group.sparsity for group in found.sparsity] == [0.5]
    assert (found.model, found.optimizer, found.seed) == (params.model, params.optimizer, params.seed)


def test_what_does_not_count_is_noted_and_held_out_data_are_needed(load):
    params = load()
    assert check_params(params) == ()
    rule = "trainer.fit.ckpt_path does not count: every run begins with the weights that the seed gives"
    assert check_params(load_params(params.path, overrides=["trainer.fit.ckpt_path=a.mdl"])) == (rule,)
    params = load_params(params.path, overrides=["trainer.fit.val_dataloader=null"])
    with pytest.raises(ParamsError, match="val_dataloader is missing: validate compares the losses on data"):
        check_params(params)
