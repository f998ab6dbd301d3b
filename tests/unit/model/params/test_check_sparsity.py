"""The sparsity section: groups, algorithms, schedules, and what older releases called otherwise."""

import pytest
import yaml

from tests.unit.model.params.conftest import each_meaning, each_message, told

KEY = "init.sparsity"
COSINE = {"type": "cosine", "init": 0.3, "half_period": 100}


@each_meaning("""\
null => []
[] => []
0.3 => [{algorithm: static, init_method: random, sparsity: 0.3}]
sparsity: 0.3 => [{algorithm: static, init_method: random, sparsity: 0.3}]
[sparsity: 0.3] => [{algorithm: static, init_method: random, sparsity: 0.3}]
[0.3] => [{algorithm: static, init_method: random, sparsity: 0.3}]
schedule: 0.3 => [{algorithm: static, init_method: random, sparsity: 0.3}]
sparsity: {type: constant, value: 0.5} =>
    [{algorithm: static, init_method: random, sparsity: {type: constant, value: 0.5}}]
[{sparsity: 0.3, param_filter: a*}, {sparsity: 0, param_filter: [b, c]}] =>
    [{algorithm: static, init_method: random, sparsity: 0.3, param_filter: [a*]},
    {algorithm: static, init_method: random, sparsity: 0.0, param_filter: [b, c]}]
{sparsity: 0.5, algorithm: RigL} => [{algorithm: rigl, init_method: random, sparsity: 0.5, drop_fraction: 0.3}]
{sparsity: 0.5, algorithm: set} => [{algorithm: set, init_method: random, sparsity: 0.5, drop_fraction: 0.3}]
[{algorithm: dropconnect, sparsity: 0.2}, {algorithm: dropconnect, sparsity: 0.2, samples: 5}] =>
    [{algorithm: dropconnect, sparsity: 0.2}, {algorithm: dropconnect, sparsity: 0.2, samples: 5}]
[{algorithm: gmp, sparsity: {type: exp, init: 0.1, gamma: -1}}, {algorithm: gmp, sparsity: {type: COSINE, init: 0.3,
    half_period: 5}}] =>
    [{algorithm: gmp, init_method: random, sparsity: {type: exp, init: 0.1, gamma: -1.0, final: 1.0}},
    {algorithm: gmp, init_method: random, sparsity: {type: cosine, init: 0.3, half_period: 5.0, minimum: 0.0}}]
""")
def test_a_number_a_group_and_lists_are_groups_in_their_order_with_defaults(load, written, expected):
    assert [group.dump() for group in load({KEY: written}).sparsity] == expected


WHOLE = yaml.safe_load("""
- {algorithm: rigl, init_method: topk, param_filter: ['*weight'], update: {freq: 100, start: 5, stop: 3584},
   balance_in_groups: 4, sparsity: 0.75, drop_fraction: {type: cosine, init: 0.3, half_period: 3584.0, minimum: 0.1}}
- {algorithm: gmp, init_method: from_zeros, update: {steps: [0, 5, 9]},
   sparsity: {type: exp, init: 0.0, gamma: -0.001, final: 0.9}}
- {algorithm: gmp, init_method: random, sparsity: [0.1, 0.5, 0.3]}
- {algorithm: gmp, init_method: random, sparsity: {type: linear, init: 0.1, slope: 0.001}}
- {algorithm: set, init_method: checkerboard, sparsity: {type: power, init: 0.5, beta: 0.999},
   drop_fraction: {type: constant, value: 0.2}}
""")


@pytest.mark.parametrize("group", WHOLE)
def test_a_whole_group_is_read_and_written(load, group):
    assert load({KEY: {**group, "balance_out_groups": None}}).sparsity[0].dump() == group


def test_checkpoints_of_a_group_are_resolved_like_any_path(load, folder):
    (folder / "b.mdl").touch()
    written = {"init_method": "from_checkpoint", "mask_checkpoint": "a.mdl", "rewind_checkpoint": "b.mdl"}
    [group] = load({KEY: written}).sparsity
    assert group.dump() == {
        "algorithm": "static",
        "init_method": "from_checkpoint",
        "mask_checkpoint": str(folder / "a.mdl"),
        "rewind_checkpoint": str(folder / "b.mdl"),
    }
    assert load({KEY: {name: value for name, value in written.items() if "rewind" not in name}}).sparsity != (group,)


WORDS = {"SHARE": "must be at least 0 and less than 1", "SCHEDULES": "gmp, set and rigl take a schedule"}


@each_message("""\
1.0 => @ SHARE, got 1.0
-0.1 => @ SHARE, got -0.1
[0.5, x] => @.1 must be a number or a mapping, got 'x'
[0.5, 2] => @.1 SHARE, got 2
{} => @.sparsity is missing
sparsity: null => @.sparsity is missing
sparsity: x => @.sparsity must be a number, a list of numbers, or a mapping with a type, got 'x'
{sparsity: 0.5, schedule: 0.5} => @.schedule is another name of sparsity: give one of the two
{sparsity: 0.5, algorithm: riggl} => @.algorithm must be static, gmp, set, rigl or dropconnect, got 'riggl'
{sparsity: 0.5, init_method: ones} =>
    @.init_method must be random, topk, from_zeros, checkerboard or from_checkpoint, got 'ones'
sparsity: [0.1, 0.2] => @.sparsity must be a number for algorithm static\nhint: SCHEDULES
{sparsity: 0.5, algorithm: gmp} => @.sparsity must change over time for algorithm gmp, got 0.5
    hint: algorithm static keeps it as it is
{sparsity: 0.5, update: {freq: 5}} => @.update needs algorithm gmp, set or rigl, and that is static
{sparsity: 0.5, drop_fraction: 0.1} => @.drop_fraction needs algorithm set or rigl, and that is static
{sparsity: 0.5, algorithm: set, balance_in_groups: 2} => @.balance_in_groups needs algorithm rigl, and that is set
{sparsity: 0.5, algorithm: rigl, balance_in_groups: 2, balance_out_groups: 2} =>
    @.balance_out_groups cannot stand beside balance_in_groups, got 2\nhint: keep one of the two
{sparsity: 0.5, param_filter: []} => @.param_filter must be a pattern of names or a list of them, got []
    hint: for example '*linear_layer.weight'
{sparsity: 0.5, algorithm: rigl, drop_fraction: {init: 0.3}} => @.drop_fraction.type is missing
    hint: the names are constant, linear, exp, power, cosine
{sparsity: 0.5, algorithm: rigl, drop_fraction: {type: sine, init: 0.3, half_period: 100}} =>
    @.drop_fraction.type must be one of constant, linear, exp, power, cosine, got 'sine'
{sparsity: 0.5, algorithm: rigl, drop_fraction: {type: cosine, init: 0.3, half_period: 0}} =>
    @.drop_fraction.half_period must be greater than 0, got 0
{sparsity: 0.5, algorithm: rigl, drop_fraction: {type: cosine, init: 0.3, half_period: 100, minimum: 0.4}} =>
    @.drop_fraction.minimum must be at most init (0.3), got 0.4
{sparsity: 0.5, algorithm: rigl, drop_fraction: {type: cosine, init: 0.3, half_period: 100, period: 1}} =>
    @.drop_fraction.period is not a known key\nhint: did you mean half_period?
{sparsity: [0.5, 1.5], algorithm: gmp} => @.sparsity.1 must be less than 1, got 1.5
{sparsity: [], algorithm: gmp} => @.sparsity must hold at least 1, got []
{sparsity: 0.5, algorithm: set, update: {start: 5}} => @.update must hold freq or steps
    hint: for example {freq: 100, stop: 3584}
{sparsity: 0.5, algorithm: set, update: {freq: 5, steps: [1]}} => @.update must hold steps or freq, not both
{sparsity: 0.5, algorithm: set, update: {freq: 1, start: 5, stop: 5}} =>
    @.update.stop must be greater than start (5), got 5
{sparsity: 0.5, algorithm: set, update: {steps: [3, 3]}} => @.update.steps must increase, got [3, 3]
{sparsity: 0.5, algorithm: set, update: 100} => @.update must be a mapping, got 100
{sparsity: [0.1, 0.2], algorithm: dropconnect} => @.sparsity must be a number for algorithm dropconnect\nhint: SCHEDULES
{sparsity: 0.5, algorithm: dropconnect, init_method: topk} =>
    @.init_method needs algorithm static, gmp, set or rigl, and that is dropconnect
{sparsity: 0.5, samples: 3} => @.samples needs algorithm dropconnect, and that is static
init_method: from_checkpoint => @.mask_checkpoint is missing\nhint: the zeros of that checkpoint are the mask
{init_method: from_checkpoint, mask_checkpoint: a.mdl, sparsity: 0.5} =>
    @.sparsity does not go with from_checkpoint, got 0.5\nhint: mask_checkpoint says which weights are zero
{init_method: from_checkpoint, mask_checkpoint: a.mdl, algorithm: gmp} =>
    @.init_method needs algorithm static to be from_checkpoint, and that is gmp
{init_method: from_checkpoint, mask_checkpoint: 5} => @.mask_checkpoint must be a path, got 5
{sparsity: 0.5, mask_checkpoint: a.mdl} => @.mask_checkpoint needs init_method from_checkpoint, and that is random
{sparsity: 0.5, init_method: topk, rewind_checkpoint: a.mdl} =>
    @.rewind_checkpoint needs init_method from_checkpoint, and that is topk
""")
def test_a_section_that_makes_no_sense_is_an_error(fault, written, message):
    assert fault({KEY: written}) == told(message, "trainer.init.sparsity", **WORDS)


def test_keys_of_older_releases_point_to_those_of_today(failure):
    old = {"sparsity": 0.75, "type": "rigl", "drop_fraction": COSINE, "schedule": {"freq": 100, "stop": 3584}}
    old["param_name_patterns"] = [".*weight"]
    assert failure({KEY: old}) == (
        "x.yaml:14: trainer.init.sparsity.type is called algorithm since release 2.2\n"
        "hint: write algorithm: rigl\n"
        "x.yaml:19: trainer.init.sparsity.schedule is called update since release 2.2\n"
        "hint: schedule now is another name of sparsity, the share of zeros\n"
        "x.yaml:22: trainer.init.sparsity.param_name_patterns is called param_filter since release 2.2\n"
        "hint: param_filter takes patterns as file names have them, not regular expressions: '*linear_layer.weight'"
    )
