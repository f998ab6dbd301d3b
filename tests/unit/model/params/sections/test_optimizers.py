"""The optimizer section: one class, the vendor's defaults."""

import pytest

from tests.unit.model.params.conftest import each_meaning, each_message, told

UNUSUAL = {"Adam": {"amsgrad": False, "maximize": False}}
UNUSUAL["Adafactor"] = {"clip_threshold": 1.0, "beta1": None, "relative_step": False, "warmup_init": False}


@each_meaning("""\
SGD => {learning_rate: 0.1, weight_decay: 0.0, momentum: 0.0, dampening: 0.0, nesterov: false}
Adam => {learning_rate: 0.1, weight_decay: 0.0, betas: [0.9, 0.999], eps: 1e-6, correct_bias: true}
AdamW => {learning_rate: 0.1, weight_decay: 0.0, betas: [0.9, 0.999], eps: 1e-6, correct_bias: true}
Lion => {learning_rate: 0.1, weight_decay: 0.0, betas: [0.9, 0.99]}
Adafactor => {learning_rate: 0.1, weight_decay: 0.0, eps: [1e-30, 1e-3], clip_threshold: 1.0, decay_rate: -0.8,
    scale_parameter: true}
""")
def test_an_optimizer_has_the_defaults_and_the_form_of_the_vendor_unless_the_file_asks_for_pytorchs(
    load, written, expected
):
    params = load({"init.optimizer": {written.lower(): {"lr": 0.1, **UNUSUAL.get(written, {})}}})
    assert (type(params.optimizer).__name__, params.optimizer.dump(), params.notes) == (written, expected, ())
    asked = load({"init.optimizer": {written: {"lr": 0.1, "form": "pytorch"}}}).optimizer
    assert (params.optimizer.form, asked.form, asked.dump()["form"]) == ("vendor", "pytorch", "pytorch")


def test_adafactor_trains_no_sparse_weights(failure):
    text = failure({"init.optimizer": {"Adafactor": {"lr": 0.1}}, "init.sparsity": 0.5})
    assert text.endswith(
        "trainer.init.sparsity must not be given with Adafactor, got 0.5\n"
        "hint: of sparse weights Adafactor keeps no state: AdamW, Lion or SGD trains them"
    )


@pytest.mark.parametrize("name", ["lr", "learning_rate"])
def test_the_rate_is_that_of_the_optimizer_unless_there_are_schedulers(load, name):
    optimizer = {"SGD": {name: 0.25}}
    params = load({"init.optimizer": optimizer})
    assert (params.learning_rate(0), params.learning_rate(10**6)) == (0.25, 0.25)
    schedulers = [{"ConstantLR": {"learning_rate": 0.5}}]
    assert load({"init.optimizer": optimizer, "init.schedulers": schedulers}).learning_rate(0) == 0.5


@each_message("""\
AdamW => 7: @ must be a mapping with one name, got 'AdamW'\nhint: the names are SGD, Adam, AdamW, Lion, Adafactor
{AdamW: {}, SGD: {}} => 7: @ must hold one name, got ['AdamW', 'SGD']
    hint: the names are SGD, Adam, AdamW, Lion, Adafactor
AdamM: {} => 8: @.AdamM is not a known name\nhint: did you mean Adam?
lamb: {} => 8: not supported: @.lamb\nhint: supported: SGD, Adam, AdamW, Lion, Adafactor
Foo: {} => 8: @.Foo is not a known name\nhint: the names are SGD, Adam, AdamW, Lion, Adafactor
SGD: null => 8: @.SGD.learning_rate is missing\nhint: or give schedulers
SGD: 5 => 8: @.SGD must be a mapping, got 5
SGD: {lr: 0.1, learning_rate: 0.1} => 9: @.SGD.lr is another name of learning_rate: give one of the two
SGD: {lr: 1e-3x} => 9: @.SGD.lr must be a number, got '1e-3x'
SGD: {lr: 1, nesterov: true} => 10: @.SGD.nesterov must be false without momentum or with dampening, got true
Adam: {lr: 1, betas: 0.9} => 10: @.Adam.betas must be two numbers, got 0.9
Adam: {lr: 1, betas: [0.9, 0.9, 0.9]} => 10: @.Adam.betas must be two numbers, got [0.9, 0.9, 0.9]
Adam: {lr: 1, betas: [0.9, 1.0]} => 12: @.Adam.betas.1 must be less than 1, got 1.0
Adam: {lr: 1, amsgrad: true} => 10: not supported: @.Adam.amsgrad: true\nhint: leave it out
Adafactor: {lr: 1, clip_threshold: 2.0} => 10: not supported: @.Adafactor.clip_threshold: 2.0\nhint: supported: 1.0
SGD: {lr: 1, momentun: 0.9} => 10: @.SGD.momentun is not a known key\nhint: did you mean momentum?
""")
def test_an_optimizer_that_makes_no_sense_is_an_error(failure, written, message):
    assert failure({"init.optimizer": written}) == told(message, "trainer.init.optimizer")
