"""The tables of all keys, held against what loading does with each of them."""

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import yaml

from cstool.foundation.errors import ParamsError
from cstool.foundation.yaml_lines.section import Section
from cstool.model.params.keys import BY_PLACE, KeyFate, key_tables, legacy_tables
from cstool.model.params.sections.attention_rules import AttentionRules
from cstool.model.params.sections.dataloader import DataloaderParams
from cstool.model.params.sections.decoder import DecoderParams
from cstool.model.params.sections.encoder import EncoderParams, FineTunedParams
from cstool.model.params.sections.encoder_decoder_loaders import TokenLinesParams
from cstool.model.params.sections.encoder_loaders import EncoderLoaderParams
from cstool.model.params.sections.hooks import CALLBACK_SECTIONS, TensorBoardLogger
from cstool.model.params.sections.model import MODELS
from cstool.model.params.sections.optimizers import Optimizer
from cstool.model.params.sections.schedules import Schedule, _Cosine, _Decay
from cstool.model.params.sections.sparsity import CyclingShare
from cstool.model.params.sections.vision_loaders import ImageLoaderParams, TransformParams
from tests.unit.model.params.conftest import LEGACY, SMALL, put

TABLES = key_tables()
NEEDED: dict[str, dict[str, Any]] = {"trainer.init.sparsity.update": {"freq": 1}}
"""what must stand beside other keys of a place for them to be looked at"""


def wrong(key: KeyFate) -> Any:
    """Return a value that no key of this kind takes."""
    return 5 if key.values.startswith("a mapping") else {"unheard_of": [1]}


def file_with(place: str, keys: Sequence[KeyFate], values: Sequence[Any]) -> str:
    """Return the small file with keys set at a place of the tables, in a list each in an entry of its own."""
    where, _, kind = place.rstrip(")").partition(" (")
    selector, _, names = kind.partition(": ")
    chosen = {selector: names.split(", ")[0]} if kind else {}
    in_list = where.endswith(".*")
    entries: list[dict[str, Any]] = []
    for key, value in zip(keys, values, strict=True):
        content = {} if key.name == "steps" else copy.deepcopy(NEEDED.get(where, {}))
        put(content, key.name, value) if in_list else content.update({key.name: value})
        entries.append({**chosen, **content})
    filled: Any = entries if in_list else {name: value for entry in entries for name, value in entry.items()}
    for part in reversed(where.removesuffix(".*").split(".")):
        filled = [filled] if part == "*" else {part: filled}
    data = copy.deepcopy(SMALL)
    section = where.removeprefix("trainer.init.model.").partition(".")[0]
    if "." not in section and section not in DecoderParams.field_keys():
        owners = (name for name, model in MODELS.items() if section in model.field_keys())
        data["trainer"]["init"]["model"]["name"] = next(owners, SMALL["trainer"]["init"]["model"]["name"])
        if "policy_model" in where:
            data["trainer"]["init"]["model"]["policy_model"] = {"name": "gpt2"}
    if where.startswith("trainer.init.optimizer"):
        del data["trainer"]["init"]["optimizer"]
    return yaml.safe_dump(merged(data, filled))


def merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {name: merged(below.get(name), above.get(name, below.get(name))) for name in {**below, **above}}


def messages_on(load, place: str, *keys: KeyFate, values: Sequence[Any] = ()) -> list[list[str]]:
    """Return what loading says of each of the keys, or of what is below it, when they have wrong values, or these."""
    where = place.partition(" ")[0]
    inner, last = where.removesuffix(".*").replace("*", "0"), where.endswith(".*")
    dotted = [f"{inner}.{number}.{key.name}" if last else f"{inner}.{key.name}" for number, key in enumerate(keys)]
    return messages_with(load, file_with(place, keys, values or [*map(wrong, keys)]), dotted)


def messages_with(load, text: str, dotted: Sequence[str]) -> list[list[str]]:
    try:
        load(text)
    except ParamsError as error:
        texts = [message.split(": ", 1)[1] for message, _ in error.problems]
        words = [(text, [f"{word.rstrip(':')}." for word in text.split()]) for text in texts]
        return [[t for t, found in words if any(word.startswith(f"{key}.") for word in found)] for key in dotted]
    return [[] for _ in dotted]


def has_fate(key: KeyFate, found: list[str]) -> bool:
    """Whether what loading says of a key whose value is wrong is what the table says of it."""
    match key.fate:
        case "noted":
            return (found == []) == (key.values.partition(";")[0] == "any")
        case "refused":
            return found != [] and all(text.startswith("not supported: ") for text in found)
        case _:
            return found != [] and not any(text.endswith(f".{key.name} is not a known key") for text in found)


def with_another_fate(
    keys: Sequence[KeyFate], ask: Callable[..., list[list[str]]], has: Callable[[KeyFate, list[str]], bool]
) -> list[KeyFate]:
    """Return keys of which loading says something else than the table, all wrong at once; what one hides, alone."""
    told = ask(*keys)
    alone = [key for key, found in zip(keys, told, strict=True) if not (any(told) and has(key, found))]
    return [key for key in alone if not has(key, *ask(key))]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.places[0])
def test_every_key_has_the_fate_that_the_table_says(load, table):
    for place in table.places:
        assert with_another_fate(table.keys, partial(messages_on, load, place), has_fate) == [], place


RULES = {"from": ("at least", -2), "above": ("greater than", 0), "to": ("at most", 2), "below": ("less than", 0)}
BOUND = r" (from|above|to|below) ([\d,.]*\d)"


def beyond(key: KeyFate) -> list[tuple[KeyFate, float, str]]:
    """Return a number beyond each bound that the table has of a key, and a pattern of what is said of it."""
    if key.fate != "acted on" or re.fullmatch(rf"a (whole )?number({BOUND})+(, null)?", key.values) is None:
        return []
    found = []
    for word, text in re.findall(BOUND, key.values):
        bound = text.replace(",", "")
        rule, step = RULES[word]
        number = float(bound) + step if "." in bound else int(bound) + step
        said = rf"\.{re.escape(key.name)} must be {rule} {re.escape(bound)}(\.0)?, got {re.escape(str(number))}$"
        found.append((key, number, said))
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.places[0])
def test_a_number_beyond_the_bounds_of_a_key_is_refused_with_the_bound(load, table):
    place = table.places[0]
    for side in (0, 1):
        wanted = [beyond(key)[side] for key in table.keys if len(beyond(key)) > side]
        keys, numbers = [key for key, _, _ in wanted], [number for _, number, _ in wanted]
        told = messages_on(load, place, *keys, values=numbers) if keys else []
        for (key, number, said), found in zip(wanted, told, strict=True):
            if not any(re.search(said, text) for text in found):  # another one hides it
                [found] = messages_on(load, place, key, values=[number])
            assert any(re.search(said, text) for text in found), (place, found)


def test_a_key_in_no_table_is_refused_as_unknown(load):
    unknown = KeyFate("unheard_of", "", "")
    for table in TABLES:
        for place in table.places:
            [[found]] = messages_on(load, place, unknown)
            assert found.endswith(("unheard_of is not a known key", "unheard_of is not a known name")), place


def sections(above: type[Section] = Section) -> Iterator[type[Section]]:
    for section in above.__subclasses__():
        yield section
        yield from sections(section)


SECTIONS = sorted((s for s in sections() if s.__module__.startswith("cstool.model.params.")), key=lambda s: s.__name__)


def test_no_key_both_has_an_effect_and_has_none_and_another_name_leads_to_a_field():
    for section in SECTIONS:
        assert section.without_effect.isdisjoint([*section.field_keys(), *section.supported]), section
        assert set(section.other_names.values()) <= set(section.field_keys()), section


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


def legacy_file_with(place: str, keys: Sequence[KeyFate]) -> str:
    data = copy.deepcopy(LEGACY)
    for key in keys:
        value = {"unheard_of": [1]}
        if place == "sections":
            data[key.name] = value
        elif key.name == "main_scheduler":
            data["optimizer"]["learning_rate"] = [{"scheduler": "Constant", key.name: value}] * 2
        elif place == "optimizer.learning_rate":
            data["optimizer"]["learning_rate"] = {"scheduler": "Linear", key.name: value}
        else:
            data.setdefault(place, {})[key.name] = value
            if key.name.startswith("beta"):
                data["optimizer"] |= {"beta1": value, "beta2": value}
    return yaml.safe_dump(data)


def legacy_messages(load, place: str, *keys: KeyFate) -> list[list[str]]:
    dotted = [f"{place}.0.{key.name}" if key.name == "main_scheduler" else f"{place}.{key.name}" for key in keys]
    return messages_with(load, legacy_file_with(place, keys), [key.removeprefix("sections.") for key in dotted])


def has_legacy_fate(key: KeyFate, found: list[str]) -> bool:
    if key.fate == "noted":
        return not any(text.endswith(f"{key.name} is not a known key") for text in found) and (
            found == [] or key.values != "any"
        )
    return found != [] and (key.fate != "refused" or all(text.startswith("not supported: ") for text in found))


@pytest.mark.parametrize("table", legacy_tables(), ids=lambda table: table.places[0])
def test_every_key_of_the_older_layout_has_the_fate_that_the_table_says(load, table):
    [place] = table.places
    assert with_another_fate(table.keys, partial(legacy_messages, load, place), has_legacy_fate) == []


def test_a_key_that_moved_is_as_another_one_that_is_listed():
    listed = {f"{place.partition(' ')[0]}.{key.name}" for t in TABLES for place in t.places for key in t.keys}
    moved = [key.values for table in legacy_tables() for key in table.keys if key.values.startswith("as ")]
    assert {values.removeprefix("as ") for values in moved if ".callbacks." not in values} <= listed
