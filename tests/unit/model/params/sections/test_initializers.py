"""Initializers: each name is the distribution that the vendor and torch.nn.init mean by it."""

import math
from typing import Any

import pytest

from cstool.model.ir import Initializer
from cstool.model.params import InitializerParams
from tests.unit.model.params.conftest import each_meaning, each_message, told

FAN_IN, FAN_OUT = 3, 5
M = "trainer.init.model.embedding_initializer"
NAMES = (
    "normal, truncated_normal, uniform, constant, zeros, ones, xavier_normal, glorot_normal, xavier_uniform, "
    "glorot_uniform, kaiming_normal, kaiming_uniform, variance_scaling, lecun_normal or lecun_uniform"
)


def given(keys: dict[str, Any] | str) -> dict[str, Any]:
    return {"init.model": {"name": "gpt2", "embedding_initializer": keys}}


def normal(std: float, mean: float = 0.0) -> Initializer:
    return Initializer("normal", mean, pytest.approx(std, rel=1e-14))


def truncated(std: float, low: float, high: float, mean: float = 0.0) -> Initializer:
    return Initializer("truncated_normal", mean, pytest.approx(std, rel=1e-14), low, high)


def uniform(bound: float) -> Initializer:
    return Initializer("uniform", low=pytest.approx(-bound, rel=1e-14), high=pytest.approx(bound, rel=1e-14))


def cut(variance: float) -> Initializer:
    """A normal distribution cut off at -2 and 2, whatever its width, that would have `variance` if cut at two of it."""
    bell = math.exp(-2) / math.sqrt(2 * math.pi)
    within = math.erf(math.sqrt(2))
    std_of_cut = math.sqrt(1 - 4 * bell / within)
    return truncated(math.sqrt(variance) / std_of_cut, -2.0, 2.0)


@pytest.mark.parametrize(
    ("keys", "initializer"),
    [
        ({"name": "normal"}, normal(0.05)),
        ({"name": "normal", "mean": 1.0, "std": 2.0}, normal(2.0, 1.0)),
        ({"name": "truncated_normal"}, truncated(0.05, -0.1, 0.1)),
        ({"name": "truncated_normal", "mean": 1.0, "std": 2.0}, truncated(2.0, -4.0, 4.0, 1.0)),
        ({"name": "truncated_normal", "std": 2.0, "a": -1.0, "b": 3}, truncated(2.0, -1.0, 3.0)),
        ({"name": "truncated_normal", "std": 2.0, "a": -1.0}, truncated(2.0, -1.0, 4.0)),
        ({"name": "truncated_normal", "mean": 0.5, "std": 0.0}, Initializer("constant", mean=0.5)),
        ({"name": "uniform"}, uniform(0.05)),
        ({"name": "uniform", "a": -0.5, "b": 0.5}, uniform(0.5)),
        ({"name": "uniform", "a": 0.0, "b": 1.0}, Initializer("uniform", low=0.0, high=1.0)),
        ({"name": "constant", "val": 3.0}, Initializer("constant", mean=3.0)),
        ({"name": "zeros"}, Initializer("constant", mean=0.0)),
        ({"name": "ones"}, Initializer("constant", mean=1.0)),
        ({"name": "xavier_normal"}, normal(math.sqrt(2 / 8))),
        ({"name": "xavier_normal", "gain": 3.0}, normal(3 * math.sqrt(2 / 8))),
        ({"name": "glorot_normal", "gain": 3.0}, normal(3 * math.sqrt(2 / 8))),
        ({"name": "xavier_uniform"}, uniform(math.sqrt(6 / 8))),
        ({"name": "xavier_uniform", "gain": 3.0}, uniform(3 * math.sqrt(6 / 8))),
        ({"name": "glorot_uniform", "gain": 3.0}, uniform(3 * math.sqrt(6 / 8))),
        ({"name": "kaiming_normal"}, normal(math.sqrt(2) / math.sqrt(3))),
        ({"name": "kaiming_normal", "mode": "fan_out"}, normal(math.sqrt(2) / math.sqrt(5))),
        ({"name": "kaiming_normal", "a": 2.0}, normal(math.sqrt(2 / 5) / math.sqrt(3))),
        ({"name": "kaiming_normal", "a": 2.0, "nonlinearity": "relu"}, normal(math.sqrt(2) / math.sqrt(3))),
        ({"name": "kaiming_uniform"}, uniform(math.sqrt(3) * math.sqrt(2) / math.sqrt(3))),
        ({"name": "kaiming_uniform", "a": 1.0, "mode": "fan_out"}, uniform(math.sqrt(3) / math.sqrt(5))),
        ({"name": "variance_scaling"}, cut(1 / 3)),
        ({"name": "variance_scaling", "scale": 2.0}, cut(2 / 3)),
        ({"name": "variance_scaling", "mode": "fan_out"}, cut(1 / 5)),
        ({"name": "variance_scaling", "mode": "fan_avg"}, cut(1 / 4)),
        ({"name": "variance_scaling", "distribution": "normal"}, normal(math.sqrt(1 / 3))),
        ({"name": "variance_scaling", "distribution": "uniform", "mode": "fan_avg"}, uniform(math.sqrt(3 / 4))),
        ({"name": "lecun_normal"}, cut(1 / 3)),
        ({"name": "lecun_normal", "scale": 2.0, "mode": "fan_out"}, cut(2 / 5)),
        ({"name": "lecun_uniform"}, uniform(math.sqrt(3 / 3))),
        ({"name": "lecun_uniform", "scale": 2.0, "mode": "fan_avg"}, uniform(math.sqrt(6 / 4))),
        ({"name": "lecun_uniform", "distribution": "normal"}, normal(math.sqrt(1 / 3))),
    ],
)
def test_an_initializer_of_the_file_becomes_one_of_the_graph(load, keys, initializer):
    assert load(given(keys)).model.embedding_initializer_params.initializer(FAN_IN, FAN_OUT) == initializer


def test_a_distribution_that_follows_from_the_shape_is_that_of_each_matrix():
    for name in ("variance_scaling", "lecun_normal", "xavier_normal", "kaiming_uniform"):
        params = InitializerParams.model_validate({"name": name})
        assert params.initializer(2, 8) != params.initializer(3, 9)
    for name in ("variance_scaling", "lecun_normal", "lecun_uniform"):
        params = InitializerParams.model_validate({"name": name, "mode": "fan_avg"})
        assert params.initializer(0, 1) == params.initializer(1, 1)  # a fan below one counts as one


@each_meaning("""\
normal => {name: normal, mean: 0.0, std: 0.05}
{name: normal, gain: 2.0, val: 1.0, std: 3} => {name: normal, mean: 0.0, std: 3.0}
truncated_normal => {name: truncated_normal, mean: 0.0, std: 0.05}
uniform => {name: uniform}
{name: uniform, a: 0.0, b: 1.0, std: 2.0} => {name: uniform, a: 0.0, b: 1.0}
{name: constant, val: 1.0, a: 3.0} => {name: constant, val: 1.0}
{name: zeros, val: 1.0} => {name: zeros}
ones => {name: ones}
xavier_normal => {name: xavier_normal, gain: 1.0}
glorot_normal => {name: glorot_normal, gain: 1.0}
xavier_uniform => {name: xavier_uniform, gain: 1.0}
glorot_uniform => {name: glorot_uniform, gain: 1.0}
kaiming_normal => {name: kaiming_normal, mode: fan_in, nonlinearity: leaky_relu}
kaiming_uniform => {name: kaiming_uniform, mode: fan_in, nonlinearity: leaky_relu}
variance_scaling => {name: variance_scaling, scale: 1.0, mode: fan_in, distribution: truncated_normal}
lecun_normal => {name: lecun_normal, scale: 1.0, mode: fan_in, distribution: truncated_normal}
lecun_uniform => {name: lecun_uniform, scale: 1.0, mode: fan_in, distribution: uniform}
""")
def test_only_the_keys_that_count_for_a_name_are_dumped_with_their_defaults(load, written, expected):
    model = load(given(written)).model
    assert model.dump()["embedding_initializer"] == expected
    assert InitializerParams.model_validate(expected) == load(given(expected)).model.embedding_initializer_params


def test_a_key_that_does_not_count_changes_nothing():
    plain = InitializerParams.model_validate({"name": "normal", "std": 2.0})
    more = InitializerParams.model_validate({"name": "normal", "std": 2.0, "gain": 3.0, "a": -1.0, "mode": "fan_out"})
    assert more.initializer(3, 5) == plain.initializer(3, 5)


SCALED = [
    ({"name": "normal", "mean": 1.0, "std": 2.0}, Initializer("normal", 1.0, 1.0)),
    ({"name": "truncated_normal", "mean": 1.0, "std": 2.0}, Initializer("truncated_normal", 1.0, 1.0, -2.0, 2.0)),
    ({"name": "truncated_normal", "std": 2.0, "a": -1, "b": 3}, Initializer("truncated_normal", 0.0, 1.0, -0.5, 1.5)),
    ({"name": "uniform", "a": -1.0, "b": 1.0}, Initializer("uniform", low=-1.0, high=1.0)),
    ({"name": "constant", "val": 1.0}, Initializer("constant", mean=1.0)),
]


@pytest.mark.parametrize(("keys", "initializer"), SCALED)
def test_scaling_narrows_the_normal_ones_and_leaves_the_others(keys, initializer):
    assert InitializerParams.model_validate(keys).scaled(0.5).initializer(3, 5) == initializer


@each_message("""\
foo => 5: @.name must be NAMES, got 'foo'
Normal => 5: @.name must be NAMES, got 'Normal'
[normal] => 5: @ must be a mapping, got ['normal']
std: 1.0 => 5: @.name is missing
name: null => 6: @.name is missing
{name: normal, stdd: 1.0} => 7: @.stdd is not a known key\nhint: did you mean std?
{name: normal, xyz: 1.0} => 7: @.xyz is not a known key
    hint: the keys here are name, mean, std, val, a, b, gain, mode, nonlinearity, scale, distribution
name: eye => 6: not supported: @.name: eye\nhint: supported: LISTED
{name: normal, mean: '0'} => 7: @.mean must be a number, got '0'\nhint: write 0, without quotes
{name: uniform, a: 1.0, b: 0.5} => 8: @.b must be greater than a (1), got 0.5
{name: truncated_normal, a: 0.5, b: 0.5} => 8: @.b must be greater than a (0.5), got 0.5
{name: xavier_normal, gain: 0} => 7: @.gain must be greater than 0, got 0
{name: variance_scaling, mode: fan} => 7: @.mode must be fan_in, fan_out or fan_avg, got 'fan'
{name: variance_scaling, distribution: gamma} =>
    7: @.distribution must be truncated_normal, normal or uniform, got 'gamma'
{name: kaiming_normal, nonlinearity: tanh} => 7: @.nonlinearity must be leaky_relu or relu, got 'tanh'
constant => 5: @ must give val, the constant
{name: kaiming_normal, mode: fan_avg} => 5: @ must have mode fan_in or fan_out, as kaiming has
    hint: variance_scaling has fan_avg
{name: uniform, a: 1.0} => 5: @ must have a below b, and they are 1 and 0.05\nhint: give both
{name: truncated_normal, a: 1.0} => 5: @ must have a below b, and they are 1 and 0.1\nhint: give both
{name: truncated_normal, mean: 3.0} => 5: @ must have its mean (3) within 2 std of its bounds, and they are -0.1 and 0.1
    hint: give a and b
""")
def test_an_initializer_that_cannot_be_had_is_an_error(failure, written, message):
    assert failure(given(written)) == told(message, M, NAMES=NAMES, LISTED=NAMES.replace(" or ", ", "))
