"""The size of a micro-batch: where it may stand, which place counts, and what is wrong with it."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import ParamsError
from cstool.foundation.yaml_lines.document import Document, Place
from cstool.foundation.yaml_lines.problems import Problems
from cstool.model.params import load_params
from cstool.model.params.micro_batch import MicroBatchChoice
from tests.unit.model.params.conftest import LEGACY, each_meaning, each_message, told

FLAG = "csx.performance.micro_batch_size"
LOADER = "trainer.fit.train_dataloader.micro_batch_size"
CALLBACKS = "trainer.init.callbacks"
INTEROP = Path(__file__).parents[3] / "interop"


def flags(callback: str, value: object) -> dict[str, dict[str, object]]:
    return {callback: {FLAG: value}}


@each_meaning("""\
{} => {micro_batch_size: null, no_effect: []}
init.callbacks: [{ScopedTrainFlags: {csx.performance.micro_batch_size: 1}}] => {micro_batch_size: 1, no_effect: []}
init.callbacks: [{GlobalFlags: {csx.performance.micro_batch_size: 8}}] => {micro_batch_size: 8, no_effect: []}
fit.train_dataloader.micro_batch_size: 2 => {micro_batch_size: 2, no_effect: []}
init.callbacks: [{GlobalFlags: {csx.performance.micro_batch_size: 2, csx.debug.x: 1}}] =>
    {micro_batch_size: 2, no_effect: [init.callbacks.0.GlobalFlags.csx.debug.x]}
init.callbacks: [{GlobalFlags: {csx.performance.micro_batch_size: 2}}, {ScopedTrainFlags:
    {csx.performance.micro_batch_size: 4}}, {ScopedTrainFlags: {csx.performance.micro_batch_size: 1}}] =>
    {micro_batch_size: 1, no_effect: [init.callbacks.0.GlobalFlags.csx.performance.micro_batch_size,
        init.callbacks.1.ScopedTrainFlags.csx.performance.micro_batch_size]}
{init.callbacks: [{GlobalFlags: {csx.performance.micro_batch_size: 2}}], fit.train_dataloader.micro_batch_size: 1} =>
    {micro_batch_size: 2, no_effect: [fit.train_dataloader.micro_batch_size]}
{init.callbacks: [{ScopedTrainFlags: {csx.performance.micro_batch_size: 4}}, {GlobalFlags:
    {csx.performance.micro_batch_size: 2}}], fit.train_dataloader.micro_batch_size: 1} =>
    {micro_batch_size: 4, no_effect: [fit.train_dataloader.micro_batch_size,
        init.callbacks.1.GlobalFlags.csx.performance.micro_batch_size]}
{init.callbacks: [{ScopedValidateFlags: {csx.performance.micro_batch_size: 3}}],
    fit.val_dataloader: {data_processor: GptHDF5MapDataProcessor, data_dir: d, batch_size: 8, micro_batch_size: 3}} =>
    {micro_batch_size: null, no_effect: [init.callbacks.0.ScopedValidateFlags.csx.performance.micro_batch_size,
        fit.val_dataloader.micro_batch_size]}
""")
def test_the_place_that_counts_most_is_acted_on_and_the_others_are_noted(means, written, expected):
    means(written, expected)


def test_what_leaves_it_to_the_compiler_is_as_nothing(load):
    assert "callbacks" not in load({}).resolved()["trainer"]["init"]
    for value in ("auto", "explore", {"explore": None}, {"explore": {}}, {"explore": {"min": None}}, None):
        params = load({"init.callbacks": [flags("ScopedTrainFlags", value)]})
        assert (params, params.notes) == (load({}), ()), value
    for bounds in ({"min": 2}, {"max": 4}, {"min": 4, "max": 4}):
        params = load({"init.callbacks": [flags("GlobalFlags", {"explore": bounds})]})
        assert params == load({})
        assert params.notes == (
            f"{CALLBACKS}.0.GlobalFlags.{FLAG}.explore: accepted, no effect: "
            "the compiler's search is exact and takes no hints",
        )


@pytest.mark.parametrize("callbacks", [None, [flags("ScopedTrainFlags", 4)]])
def test_what_is_typed_wins_over_the_file(load, callbacks):
    content = {"init.callbacks": callbacks, "fit.train_dataloader.micro_batch_size": 8}
    assert load(content, flags={LOADER: ("--micro_batch_size", 2)}).micro_batch_size == 2
    assert load(content, overrides=[f"{LOADER}=2"]).micro_batch_size == 2
    assert load(content, overrides=[f"{LOADER}=2"], flags={LOADER: ("--micro_batch_size", 1)}).micro_batch_size == 1


def test_the_flag_in_a_callback_can_be_typed(load):
    content = {"init.callbacks": [{"ScopedTrainFlags": {FLAG: 8, "csx.performance.other": 1}}]}
    params = load(content, overrides=[f"{CALLBACKS}.0.ScopedTrainFlags.{FLAG}=2"])
    assert params.micro_batch_size == 2
    assert params.notes == (
        f"{CALLBACKS}.0.ScopedTrainFlags.csx.performance.other: accepted, no effect",
        f"{CALLBACKS}.0.ScopedTrainFlags.{FLAG}: accepted, no effect",
    )


def test_a_file_of_the_older_layout_has_it_at_its_data(load):
    content = {**LEGACY, "train_input": {**LEGACY["train_input"], "micro_batch_size": 4}}
    params = load(yaml.safe_dump(content))
    assert (params.micro_batch_size, params.notes) == (4, ())
    assert load(yaml.safe_dump(content), flags={LOADER: ("--micro_batch_size", 2)}).micro_batch_size == 2
    content["train_input"]["micro_batch_size"] = 3
    with pytest.raises(ParamsError) as caught:
        load(yaml.safe_dump(content, sort_keys=False))
    assert str(caught.value) == (
        "x.yaml:5: train_input.micro_batch_size must divide batch_size (8), got 3\nhint: 2 and 4 are the nearest"
    )


RULE = "must be a whole number from 1, auto, explore, or explore with min and max"


@each_message("""\
0 => RULE, got 0
-1 => RULE, got -1
2.0 => RULE, got 2.0
true => RULE, got true
2147483648 => RULE, got 2147483648
Auto => RULE, got 'Auto'
[2] => RULE, got [2]
auto: {max: 2} => RULE, got a mapping
3 => must divide batch_size (8), got 3\nhint: 2 and 4 are the nearest
7 => must divide batch_size (8), got 7\nhint: 4 and 8 are the nearest
9 => must divide batch_size (8), got 9\nhint: 8 is the nearest
2147483647 => must divide batch_size (8), got 2147483647\nhint: 8 is the nearest
""")
def test_a_size_that_is_none_is_an_error(failure, written, message):
    message = told(message, RULE=RULE)
    assert failure({"fit.train_dataloader.micro_batch_size": written}) == f"x.yaml:17: {LOADER} {message}"
    assert failure({}, flags={LOADER: ("--micro_batch_size", written)}) == f"--micro_batch_size: {message}"


@each_message("""\
5 => @ must be a mapping, got 5
min: 0 => @.min must be a whole number from 1, got 0
max: 1.5 => @.max must be a whole number from 1, got 1.5
{min: 4, max: 2} => @.min must be at most max (2), got 4
mim: 4 => @.mim is not a known key\nhint: did you mean min?
""")
def test_bounds_that_make_no_sense_are_an_error(fault, written, message):
    changes = {"fit.train_dataloader.micro_batch_size": {"explore": written}}
    assert fault(changes) == told(message, f"{LOADER}.explore")


def test_a_wrong_size_that_does_not_count_is_an_error_all_the_same(failure):
    content = {"init.callbacks": [flags("ScopedTrainFlags", 2)], "fit.train_dataloader.micro_batch_size": 0}
    assert failure(content) == f"x.yaml:20: {LOADER} {RULE}, got 0"


@pytest.mark.parametrize(("name", "size"), [("params_gpt3_xl", 88), ("params_llama3p1_8b_msl_8k", 20)])
def test_files_of_the_vendor_name_theirs(name, size):
    assert load_params(INTEROP / f"{name}.yaml").micro_batch_size == size


def test_it_survives_being_resolved_and_read_again(load, folder):
    states = {"LoadCheckpointStates": {"load_checkpoint_states": "model"}}
    params = load({"init.callbacks": [flags("GlobalFlags", 2), states]})
    assert params.resolved()["trainer"]["init"]["callbacks"] == [states, {"ScopedTrainFlags": {FLAG: 2}}]
    (folder / "y.yaml").write_text(yaml.safe_dump(params.resolved()))
    assert load_params("y.yaml") == params != load({})


@given(batch_size=st.integers(1, 500), size=st.integers(1, 1200))
def test_the_nearest_divisors_are_hinted(batch_size, size):
    document = Document("x.yaml", "", {}, {(): Place("x.yaml:1", 1)})
    problems = Problems(document, Path())
    choice = MicroBatchChoice(document, problems)
    assert choice.take_from_loader({"micro_batch_size": size, "other": 1}, ("data",)) == {"other": 1}
    found = choice.size(batch_size)
    if batch_size % size == 0:
        assert (found, problems.any_found) == (size, False)
        return
    divisors = [number for number in range(1, batch_size + 1) if batch_size % number == 0]
    nearest = [*[n for n in divisors if n < size][-1:], *[n for n in divisors if n > size][:1]]
    with pytest.raises(ParamsError) as caught:
        problems.raise_found()
    verb = "are" if len(nearest) == 2 else "is"
    assert caught.value.problems[0][1] == f"{' and '.join(map(str, nearest))} {verb} the nearest"
