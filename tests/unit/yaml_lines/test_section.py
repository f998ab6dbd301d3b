"""What holds for every section of the schema."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cstool.params.sections.dataloader import DataloaderParams, SinkTokensParams
from cstool.params.sections.initializers import InitializerParams
from cstool.params.sections.model import DecoderParams, FcMnistParams
from cstool.params.sections.optimizers import OPTIMIZERS
from cstool.params.sections.schedules import SCHEDULES
from cstool.params.sections.sparsity import SHARES, SparsityParams, UpdateParams
from cstool.params.sections.trainer import (
    CALLBACK_SECTIONS,
    AutorestartParams,
    BackendParams,
    CheckpointParams,
    ClusterParams,
    FitKeys,
    InitKeys,
    LoggingParams,
    LoopParams,
    PrecisionParams,
    TrainerKeys,
    ValidateAllKeys,
    ValidateKeys,
)
from cstool.yaml_lines.section import Section

SECTIONS: list[type[Section]] = [
    AutorestartParams,
    BackendParams,
    CheckpointParams,
    ClusterParams,
    DataloaderParams,
    DecoderParams,
    FcMnistParams,
    FitKeys,
    InitKeys,
    InitializerParams,
    LoggingParams,
    LoopParams,
    PrecisionParams,
    SinkTokensParams,
    SparsityParams,
    TrainerKeys,
    UpdateParams,
    ValidateAllKeys,
    ValidateKeys,
    *CALLBACK_SECTIONS.values(),
    *SHARES.values(),
    *OPTIMIZERS.values(),
    *SCHEDULES.values(),
]


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
