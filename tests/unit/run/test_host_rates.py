"""What was measured of this host: kept, read, and left alone where it makes no sense."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.errors import EstimateError
from cstool.run.report import host_rates
from cstool.run.report.host_rates import load_rates, save_rates
from tests.hosts import round_rates


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "cache" / "host.yaml"
    monkeypatch.setattr(host_rates, "rates_file", lambda: path)
    return path


def test_rates_come_back_as_they_were_and_people_can_read_them_those_of_another_machine_do_not(file):
    assert load_rates() is None
    assert save_rates(round_rates()) == file
    assert load_rates() == round_rates()
    assert file.read_text().startswith("# This host as a system, measured by `cstool estimate --system host`.")
    for other in (replace(round_rates(), cpu="another"), replace(round_rates(), cores=999)):
        save_rates(other)
        assert load_rates() is None


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: "not: [yaml",
        lambda d: "",
        lambda d: yaml.safe_dump([1, 2]),
        lambda d: yaml.safe_dump(without(d, "costs")),
        lambda d: yaml.safe_dump(without(d, "step_s")),
        lambda d: yaml.safe_dump(d | {"step_s": -1.0}),
        lambda d: yaml.safe_dump(d | {"read_bytes_per_s": 0}),
        lambda d: yaml.safe_dump(d | {"costs": without(d["costs"], "rotary forward")}),
        lambda d: yaml.safe_dump(d | {"costs": d["costs"] | {"linear forward": {"call_s": 1.0}}}),
        lambda d: yaml.safe_dump(d | {"update_s": {"Adam": 1.0}}),
        lambda d: yaml.safe_dump(d | {"update_s": d["update_s"] | {"Lion": "fast"}}),
        lambda d: yaml.safe_dump(d | {"extra": 1}),
    ],
)
def test_a_file_that_makes_no_sense_counts_as_none(file, damage):
    save_rates(round_rates())
    file.write_text(damage(yaml.safe_load(file.read_text())))
    assert load_rates() is None


def test_a_folder_that_cannot_be_written(file):
    file.parent.write_text("a file where a folder should be")
    with pytest.raises(EstimateError) as found:
        save_rates(round_rates())
    assert str(found.value) == f"{file}: cannot be written: File exists\nhint: CSTOOL_CACHE_DIR names another folder"
