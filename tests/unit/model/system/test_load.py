"""System files: the three that come along, those of one's own, and what can be wrong with one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.foundation.errors import ParamsError
from cstool.model.system import STATUSES, Release, System, load_system, system_names
from cstool.model.system.load import FOLDER


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


CS2 = yaml.safe_load((FOLDER / "cs2.yaml").read_text())


def cs2_data() -> Any:
    return copy.deepcopy(CS2)


def number(value: Any, status: str = "C", source: str = "a test") -> dict[str, Any]:
    return {"value": value, "status": status, "source": source}


def load_data(data: Any) -> System:
    Path("mine.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    return load_system("mine.yaml")


def message(data: Any) -> str:
    with pytest.raises(ParamsError) as raised:
        load_data(data)
    return str(raised.value)


def part_of(data: Any, path: Sequence[str]) -> Any:
    for name in path:
        data = data[name]
    return data


def numbers(data: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(data, dict) and "value" in data:
        yield key, data
    elif isinstance(data, dict):
        for name, part in data.items():
            yield from numbers(part, f"{key}.{name}".lstrip("."))


def test_three_systems_come_along():
    assert system_names() == ["cs1", "cs2", "cs3"]
    assert [load_system(name).wafer for name in system_names()] == ["WSE-1", "WSE-2", "WSE-3"]


@pytest.mark.parametrize("name", ["cs1", "cs2", "cs3"])
def test_every_number_has_a_status_and_a_source(name):
    system = load_system(name)
    written = dict(numbers(yaml.safe_load((FOLDER / f"{name}.yaml").read_text())))
    assert {key: (n["status"], n["source"]) for key, n in written.items()} == dict(system.sources)
    assert {status for status, _ in system.sources.values()} <= set(STATUSES)
    assert all(len(source) > 10 for _, source in system.sources.values())


def test_headline_figures_follow():
    """750 x 994 PEs with 48 KiB and four 16-bit multiply-adds per cycle at 0.85 GHz: the attainable 5.07 PFLOP/s."""
    cs2 = load_system("cs2")
    assert cs2.fabric.pes == 745_500
    assert cs2.fabric.pes * cs2.pe.simd["fmach"] * 2 * cs2.clock_hz == pytest.approx(5.07e15, rel=1e-3)
    assert cs2.memoryx is not None
    assert cs2.memoryx.capacity_bytes == 2_400 * 10**12
    assert load_system("cs1").memoryx is load_system("cs1").swarmx is None


def test_names_are_known_in_any_case_paths_are_read_and_sources_do_not_count_when_systems_are_compared():
    assert load_system("CS2") is load_system("cs2")
    assert load_data(cs2_data()).fabric == load_system("cs2").fabric
    data = cs2_data()
    data["clock_hz"]["source"] = "somewhere else"
    other, cs2 = load_data(data), load_system("cs2")
    assert other.sources != cs2.sources
    Path("cs2.yaml").write_text(Path("mine.yaml").read_text())
    assert load_system("./cs2.yaml") == cs2


def test_a_file_may_start_from_a_known_system_alone():
    system = load_data({"extends": "cs3", "clock_hz": number(1.1e9, "X", "what is said of its peak"), "memoryx": None})
    cs3 = load_system("cs3")
    assert (system.name, system.wafer, system.clock_hz, system.memoryx) == ("mine", "WSE-3", 1.1e9, None)
    assert (system.fabric, system.pe, system.links) == (cs3.fabric, cs3.pe, cs3.links)
    assert system.sources["clock_hz"] == ("X", "what is said of its peak")
    assert system.sources["power_w"] == cs3.sources["power_w"]
    system = load_data({"extends": "cs2", "fabric": {"width": number(1), "height": number(1)}})
    assert (system.fabric.pes, system.pe) == (1, load_system("cs2").pe)
    assert load_data({"extends": "CS3"}) == replace(load_system("cs3"), name="mine")
    known = "must be one of cs1, cs2, cs3"
    assert message({"extends": "cs4"}) == f"mine.yaml:1: extends {known}, got 'cs4'"
    assert message({"extends": ["cs2"]}) == f"mine.yaml:1: extends {known}, got ['cs2']"


OPTIONAL = ("swarmx.straggler_share", "hosts.releases.")
"""how keys begin that may be missing"""


def test_all_missing_numbers_are_named():
    data, keys = cs2_data(), [key for key, _ in numbers(cs2_data()) if not key.startswith(OPTIONAL)]
    for key in keys:
        *path, last = key.split(".")
        del part_of(data, path)[last]
    lines = yaml.safe_dump(data, sort_keys=False).splitlines()
    places = {line.split(":")[0].strip(): f":{number}" for number, line in enumerate(lines, start=1)}
    expected = {f"mine.yaml{places[key.split('.')[-2]] if '.' in key else ':1'}: {key} is missing" for key in keys}
    assert expected <= {line.partition("\n")[0] for line in message(data).splitlines()}
    assert len(keys) > 40


def test_what_is_not_known_of_hosts_and_swarmx_may_be_missing():
    data = cs2_data()
    del data["swarmx"]["straggler_share"], data["hosts"]
    system = load_data(data)
    assert (system.hosts, system.swarmx.straggler_share, system.swarmx.reduce_bytes_per_s) == (None, 0.0, None)
    assert system.software is None
    data = cs2_data()
    data["hosts"]["releases"] = {"9.1": {"tokens_per_s": number(1e6)}}
    system = load_data(data)
    assert system.hosts.releases == {"9.1": Release(tokens_per_s=1e6)}
    assert system.sources["hosts.releases.9.1.tokens_per_s"] == ("C", "a test")
    data["hosts"] = None
    assert load_data(data).hosts is None


def test_a_release_has_a_name_with_a_point_and_there_is_at_least_one():
    data = cs2_data()
    data["hosts"]["releases"] = {"newest": {}}
    assert message(data).endswith(": hosts.releases must have names such as 2.0, got 'newest'")
    data["hosts"]["releases"] = {}
    assert message(data).endswith(": hosts.releases must hold at least 1, got {}")


KNOWN = "known are cs1, cs2, cs3, and paths of YAML files"
WRONG: list[tuple[str, Any, str]] = [
    ("pe.sram_bytes.value", 0, "pe.sram_bytes.value must be at least 1, got 0"),
    ("pe.sram_bytes.value", 1.5, "pe.sram_bytes.value must be a whole number, got 1.5"),
    ("pe.sram_bytes.value", "48 KiB", "pe.sram_bytes.value must be a whole number, got '48 KiB'"),
    ("pe.sram_bytes.value", True, "pe.sram_bytes.value must be a whole number, got true"),
    ("clock_hz.value", float("inf"), "clock_hz.value must be a finite number, got inf"),
    ("pe.vector_op_cycles.value", 2**63, "pe.vector_op_cycles.value must be at most 1000000, got 9223372036854775808"),
    ("pe.simd.fmach.value", 2**63, "pe.simd.fmach.value must be at most 1000000, got 9223372036854775808"),
    ("pe.sram_bytes.value", 2**63, "pe.sram_bytes.value must be at most 1000000000, got 9223372036854775808"),
    ("memoryx.index_bytes.value", 2**63, "memoryx.index_bytes.value must be at most 1000000, got 9223372036854775808"),
    ("clock_hz.value", 1e300, "clock_hz.value must be at most 1e+30, got 1e+300"),
    ("clock_hz.value", 0, "clock_hz.value must be greater than 0, got 0"),
    ("clock_hz.status", "R3", "clock_hz.status must be R1, R2, D, X, C or F, got 'R3'"),
    ("fabric.width.value", 10_001, "fabric.width.value must be at most 10000, got 10001"),
    ("fabric.width.value", 0, "fabric.width.value must be at least 1, got 0"),
    ("fabric.widht", number(3), "fabric.widht is not a known key\nhint: did you mean width?"),
    ("fabric.width", 750, "fabric.width must be a mapping, got 750"),
    ("links.io_colors.value", 24, "links.io_colors.value must be less than colors (24), got 24"),
    ("pe.code_bytes.value", 48128, "pe.sram_bytes.value must be more than code_bytes and stack_bytes together (49152), "
     "got 49152"),
    ("pe.efficiency.value", 0, "pe.efficiency.value must be at least 0.001, got 0"),
    ("pe.efficiency.value", 1.01, "pe.efficiency.value must be at most 1.0, got 1.01"),
    ("idle_power_w.value", 22_801, "idle_power_w.value must be at most power_w (22800), got 22801.0"),
    ("memoryx.units_bytes.value", [], "memoryx.units_bytes.value must hold at least 1, got []"),
    ("memoryx.units_bytes.value", 3, "memoryx.units_bytes.value must be a list, got 3"),
    ("memoryx.units_bytes.value", [2 * 10**15, 10**12, 2_400 * 10**12], "memoryx.units_bytes.value must ascend and "
     "end with capacity_bytes (2400000000000000), got [2000000000000000, 1000000000000, 2400000000000000]"),
    ("memoryx.units_bytes.value", [2_400 * 10**12] * 2, "memoryx.units_bytes.value must ascend and end with "
     "capacity_bytes (2400000000000000), got [2400000000000000, 2400000000000000]"),
    ("memoryx.units_bytes.value", [0, 2_400 * 10**12], "memoryx.units_bytes.value.0 must be at least 1, got 0"),
    ("memoryx.capacity_bytes.value", 3 * 10**15, "memoryx.units_bytes.value must ascend and end with capacity_bytes "
     "(3000000000000000), got a list"),
    ("memoryx.flops.value", 0, "memoryx.flops.value must be greater than 0, got 0"),
    ("memoryx.index_bytes.value", 0, "memoryx.index_bytes.value must be at least 1, got 0"),
    ("pe.banks.value", 0, "pe.banks.value must be at least 1, got 0"),
    ("pe.accumulator_cache_bytes.value", -4, "pe.accumulator_cache_bytes.value must be at least 0, got -4"),
    ("swarmx.fan_out.value", 1, "swarmx.fan_out.value must be at least 2, got 1"),
    ("memoryx", 3, "memoryx must be a mapping, got 3"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "expected"), WRONG, ids=[f"{key}={value}" for key, value, _ in WRONG])
def test_a_wrong_value_is_named(key, value, expected):
    data, (*path, last) = cs2_data(), key.split(".")
    part_of(data, path)[last] = value
    where, _, found = message(data).partition(": ")
    assert found == expected
    line = int(where.removeprefix("mine.yaml:"))
    assert expected.split()[0].split(".")[-1] in Path("mine.yaml").read_text().splitlines()[line - 1]


def test_all_mistakes_are_told_at_once():
    data = {"extends": "cs2", "clock_hz": {"value": 1e9, "status": "C"}}
    assert message(data) == "mine.yaml:2: clock_hz.source is missing"
    data = {"extends": "cs2", "clock_hz": number(-1), "fabric": {"width": number(0)}, "colour": 3}
    assert message(data) == (
        "mine.yaml:3: clock_hz.value must be greater than 0, got -1\n"
        "mine.yaml:8: fabric.width.value must be at least 1, got 0\n"
        "mine.yaml:11: colour is not a known key"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cs4", f"cs4: is not a known system\nhint: did you mean cs3? {KNOWN}"),
        ("wafer", f"wafer: is not a known system\nhint: {KNOWN}"),
        ("none.yaml", "none.yaml: there is no such file"),
        ("list.yaml", "list.yaml:1: the file must be a mapping, got [1]"),
        ("broken.yaml", "broken.yaml:2:1: not valid YAML: while parsing a flow mapping expected ',' or '}', but got "),
    ],
)
def test_what_is_no_system_file_is_refused(name, expected):
    Path("list.yaml").write_text("- 1\n")
    Path("broken.yaml").write_text("fabric: {width: 3\n")
    with pytest.raises(ParamsError) as raised:
        load_system(name)
    assert str(raised.value).removesuffix("'<stream end>'") == expected
