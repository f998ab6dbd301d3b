"""The tables of all keys, held against what loading does with each of them."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cstool.errors import ParamsError
from cstool.params.keys import BY_PLACE, KeyFate, key_tables, legacy_tables
from cstool.params.sections.attention_rules import AttentionRules
from cstool.params.sections.dataloader import DataloaderParams
from cstool.params.sections.decoder import DecoderParams
from cstool.params.sections.encoder import EncoderParams, FineTunedParams
from cstool.params.sections.encoder_decoder_loaders import TokenLinesParams
from cstool.params.sections.encoder_loaders import EncoderLoaderParams
from cstool.params.sections.model import MODELS
from cstool.params.sections.optimizers import Optimizer
from cstool.params.sections.schedules import Schedule, _Cosine, _Decay
from cstool.params.sections.sparsity import CyclingShare
from cstool.params.sections.trainer import CALLBACK_SECTIONS, TensorBoardLogger
from cstool.params.sections.vision_loaders import ImageLoaderParams, TransformParams
from cstool.yaml_lines.section import Section
from tests.unit.params.conftest import SMALL

TABLES = key_tables()
LISTED = [(place, key) for table in TABLES for place in table.places for key in table.keys]


NEEDED: dict[str, dict[str, Any]] = {"trainer.init.sparsity.update": {"freq": 1}}
"""what must stand beside other keys of a place for them to be looked at"""


def file_with(place: str, name: str, value: Any) -> str:
    """Return the small file with one key set at a place of the tables."""
    where, _, kind = place.rstrip(")").partition(" (")
    *inside, last = name.split(".")
    content: Any = {last: value}
    for part in reversed(inside):
        content = {part: content}
    if kind:
        selector, _, names = kind.partition(": ")
        content = {selector: names.split(", ")[0], **content}
    content = {**({} if name == "steps" else NEEDED.get(where, {})), **content}
    for part in reversed(where.split(".")):
        content = [content] if part == "*" else {part: content}
    data = copy.deepcopy(SMALL)
    section = where.removeprefix("trainer.init.model.").partition(".")[0]
    if "." not in section and section not in DecoderParams.field_keys():
        owners = (name for name, model in MODELS.items() if section in model.field_keys())
        data["trainer"]["init"]["model"]["name"] = next(owners, SMALL["trainer"]["init"]["model"]["name"])
        if "policy_model" in where:
            data["trainer"]["init"]["model"]["policy_model"] = {"name": "gpt2"}
    if where.startswith("trainer.init.optimizer"):
        del data["trainer"]["init"]["optimizer"]
    return yaml.safe_dump(merged(data, content))


def merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {name: merged(below.get(name), above.get(name, below.get(name))) for name in {**below, **above}}


def messages_on(load, place: str, key: KeyFate) -> list[str]:
    """Return what loading says of the key, or of what is below it, when its value is one that no key takes."""
    wrong = 5 if key.values.startswith("a mapping") else {"unheard_of": [1]}
    dotted = f"{place.partition(' ')[0].replace('*', '0')}.{key.name}"
    return messages_with(load, file_with(place, key.name, wrong), dotted)


def messages_with(load, text: str, dotted: str) -> list[str]:
    try:
        load(text)
    except ParamsError as error:
        texts = [message.split(": ", 1)[1] for message, _ in error.problems]
        return [text for text in texts if any(f"{word.rstrip(':')}.".startswith(f"{dotted}.") for word in text.split())]
    return []


@pytest.mark.parametrize(("place", "key"), LISTED, ids=[f"{place}.{key.name}" for place, key in LISTED])
def test_every_key_has_the_fate_that_the_table_says(load, place, key):
    found = messages_on(load, place, key)
    match key.fate:
        case "noted":
            assert (found == []) == (key.values.partition(";")[0] == "any")
        case "refused":
            assert found != []
            assert all(text.startswith("not supported: ") for text in found)
        case "acted on" | "see below":
            assert found != []
            assert not any(text.endswith(f".{key.name} is not a known key") for text in found)


def test_a_key_in_no_table_is_refused_as_unknown(load):
    unknown = KeyFate("unheard_of", "", "")
    for table in TABLES:
        for place in table.places:
            (found,) = messages_on(load, place, unknown)
            assert found.endswith(("unheard_of is not a known key", "unheard_of is not a known name")), place


def sections(above: type[Section] = Section) -> Iterator[type[Section]]:
    for section in above.__subclasses__():
        yield section
        yield from sections(section)


SECTIONS = sorted((s for s in sections() if s.__module__.startswith("cstool.params.")), key=lambda s: s.__name__)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_no_key_both_has_an_effect_and_has_none(section):
    assert section.without_effect.isdisjoint([*section.field_keys(), *section.supported])


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_another_name_leads_to_a_field(section):
    assert set(section.other_names.values()) <= set(section.field_keys())


NO_MAPPINGS = {Optimizer, Schedule, _Cosine, _Decay, CyclingShare, AttentionRules, EncoderParams, FineTunedParams}
NO_MAPPINGS |= {DataloaderParams, EncoderLoaderParams, TokenLinesParams, ImageLoaderParams, TransformParams}
"""bases of others, and what is a list in the file"""


def test_no_section_of_the_schema_is_left_out():
    # The loader itself knows model_name, which is the model's name in old files.
    listed = {frozenset(key.name for key in table.keys if key.name != "model_name") for table in TABLES}
    named = {**CALLBACK_SECTIONS, TensorBoardLogger.__name__: TensorBoardLogger}
    for name, section in named.items():
        assert any({f"{name}.{key}" for key in section.field_keys()} <= keys for keys in listed)
    for section in {*SECTIONS} - NO_MAPPINGS - {*named.values()}:
        hidden = {field.alias or name for name, field in section.model_fields.items() if field.exclude}
        known = set(section.known_keys()) - hidden - {name for owner, name in BY_PLACE if owner is section}
        assert not known or known in listed, section


def test_values_and_defaults_are_those_of_the_schema():
    rows = {(table.places[0].partition(" ")[0], key.name): key for table in TABLES for key in table.keys}
    init = "trainer.init"
    assert rows[f"{init}.loop", "max_steps"] == KeyFate("max_steps", "acted on", "a whole number from 1")
    assert rows[f"{init}.logging", "log_level"] == KeyFate(
        "log_level", "acted on", "DEBUG, INFO, WARNING, ERROR", "INFO"
    )
    assert rows[f"{init}.model", "dropout_rate"].default == "0.1"
    assert rows[f"{init}.model", "share_embedding_weights"].values == "true, false"
    assert rows[f"{init}.optimizer.SGD", "lr"].values == "another name of learning_rate"
    assert rows[f"{init}.optimizer.Adam", "amsgrad"] == KeyFate("amsgrad", "refused", "false")


LEGACY: dict[str, Any] = {
    "model": SMALL["trainer"]["init"]["model"],
    "optimizer": {"optimizer_type": "AdamW", "learning_rate": 0.1},
    "train_input": SMALL["trainer"]["fit"]["train_dataloader"],
    "runconfig": {},
}
LEGACY_ROWS = [(table.places[0], key) for table in legacy_tables() for key in table.keys]


def legacy_file_with(place: str, name: str, value: Any) -> str:
    data = copy.deepcopy(LEGACY)
    if place == "sections":
        data[name] = value
    elif name == "main_scheduler":
        data["optimizer"]["learning_rate"] = [{"scheduler": "Constant", name: value}] * 2
    elif place == "optimizer.learning_rate":
        data["optimizer"]["learning_rate"] = {"scheduler": "Linear", name: value}
    else:
        data.setdefault(place, {})[name] = value
        if name.startswith("beta"):
            data["optimizer"] |= {"beta1": value, "beta2": value}
    return yaml.safe_dump(data)


@pytest.mark.parametrize(("place", "key"), LEGACY_ROWS, ids=[f"{place}.{key.name}" for place, key in LEGACY_ROWS])
def test_every_key_of_the_older_layout_has_the_fate_that_the_table_says(load, place, key):
    below = f"{place}.0" if key.name == "main_scheduler" else place
    dotted = key.name if place == "sections" else f"{below}.{key.name}"
    found = messages_with(load, legacy_file_with(place, key.name, {"unheard_of": [1]}), dotted)
    match key.fate:
        case "noted":
            assert not any(text.endswith(f"{key.name} is not a known key") for text in found)
            if key.values == "any":
                assert found == []
        case "refused":
            assert found != []
            assert all(text.startswith("not supported: ") for text in found)
        case "acted on" | "see below":
            assert found != []


def test_a_key_that_moved_is_as_another_one_that_is_listed():
    listed = {f"{place.partition(' ')[0]}.{key.name}" for place, key in LISTED}
    for _, key in LEGACY_ROWS:
        if key.values.startswith("as ") and ".callbacks." not in key.values:
            assert key.values.removeprefix("as ") in listed
