"""What holds for every section of the schema."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from cstool.params.keys import key_tables
from cstool.params.sections.trainer import LoggingParams
from cstool.yaml_lines.section import Section


def sections(above: type[Section] = Section) -> Iterator[type[Section]]:
    for section in above.__subclasses__():
        if section.__module__.startswith("cstool.params."):
            yield section
        yield from sections(section)


assert key_tables(), "imports all sections of params files"
SECTIONS = sorted(sections(), key=lambda section: section.__name__)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_no_key_both_has_an_effect_and_has_none(section):
    assert section.without_effect.isdisjoint([*section.field_keys(), *section.supported])


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_another_name_leads_to_a_field(section):
    assert set(section.other_names.values()) <= set(section.field_keys())


def test_a_section_cannot_be_changed():
    logging = LoggingParams()
    with pytest.raises(ValidationError):
        logging.log_steps = 5  # type: ignore[misc]
