"""Event files: what is written is what TensorBoard's own reader reads, whatever befalls the file."""

import errno
import os
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from cstool.training.run.report import events as events_module
from cstool.training.run.report.events import Events, crc32c, scalars_event, version_event
from tests.event_files import scalars_of
from tests.examples import examples

STANDARD = {b"": 0, b"123456789": 0xE3069283, bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43}
"""source: RFC 3720, appendix B.4, and the check value of CRC-32/ISCSI"""


@given(st.binary(max_size=300) | st.sampled_from(sorted(STANDARD)))
def test_the_checksum_is_that_of_its_twin_and_of_the_standard(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    assert crc32c(data) == crc ^ 0xFFFFFFFF
    assert {known: crc32c(known) for known in STANDARD} == STANDARD


TAGS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200)
SCALARS = st.lists(
    st.tuples(st.integers(0, 2**62), st.dictionaries(TAGS, st.floats(width=32, allow_nan=False), min_size=1)),
    min_size=1,
)


@given(SCALARS)
@example([(1, {"large": 1e300, "small": -1e300})])
@examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_in_float32_with_infinities(tmp_path_factory, written):
    folder = tmp_path_factory.mktemp("events")
    with Events(folder) as events:
        for step, values in written:
            events.scalars(step, values)
    expected = defaultdict(list)
    for step, values in written:
        for tag, value in values.items():
            with np.errstate(over="ignore"):
                expected[tag].append((step, float(np.float32(value))))
    assert scalars_of(folder) == expected


def test_nothing_is_made_before_there_is_something_to_write(tmp_path):
    with Events(tmp_path / "events") as events:
        events.train_from(1)
        events.scalars(1, {})
    assert not (tmp_path / "events").exists()
    with Events(None) as events:
        events.scalars(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_what_runs_again_counts_once_an_evaluation_alone_lets_everything_count(tmp_path):
    """A run of 6 steps is killed, and goes on from the checkpoint of step 4; so fast that the clock does not move."""
    for steps in (range(1, 7), range(5, 9)):
        with Events(tmp_path) as events:
            events.train_from(steps[0])
            for step in steps:
                events.scalars(step, {"loss": float(step + steps[0])})
    assert len(list(tmp_path.iterdir())) == 2
    with Events(tmp_path) as events:
        events.scalars(2, {"eval/loss": 2.0})
    # Files of others do not confuse it.
    (tmp_path / "events.out.tfevents.none").write_bytes(b"")
    expected = [(step, step + 1.0) for step in range(1, 5)] + [(step, step + 5.0) for step in range(5, 9)]
    assert scalars_of(tmp_path) == {"loss": expected, "eval/loss": [(2, 2.0)]}


def test_a_file_that_is_cut_anywhere_is_read_up_to_there(tmp_path):
    with Events(tmp_path) as events:
        for step in (1, 2, 3):
            events.scalars(step, {"loss": float(step)})
        whole = events.path.read_bytes()
    begin, each = len(version_event(0.0)), len(scalars_event(0.0, 1, {"loss": 1.0}))
    assert len(whole) == begin + 3 * each
    for size in range(len(whole)):
        events.path.write_bytes(whole[:size])
        records = max(0, (size - begin) // each)
        assert scalars_of(events.path).get("loss", []) == [(step, float(step)) for step in range(1, records + 1)]


def full_disk(monkeypatch: pytest.MonkeyPatch, room_bytes: int) -> Callable[[], None]:
    """Let a disk take so many bytes more; return what makes room again."""
    write, left = os.write, [room_bytes]

    def partly(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = write(descriptor, data[: left[0]])
        left[0] -= taken
        return taken

    monkeypatch.setattr(events_module.os, "write", partly)
    return monkeypatch.undo


CANNOT = "The run goes on; TensorBoard will lack what comes until they can."


@pytest.mark.parametrize("room_bytes", [0, 10, 100, 130])
def test_a_full_disk_is_warned_of_once_and_what_fits_later_is_written(tmp_path, monkeypatch, caplog, room_bytes):
    caplog.set_level("INFO", "cstool")
    with Events(tmp_path) as events:
        events.train_from(1)
        make_room = full_disk(monkeypatch, room_bytes)
        for step in range(1, 9):
            events.scalars(step, {"loss": float(step)})
        make_room()
        events.scalars(9, {"loss": 9.0})
    why = "No space left on device"
    assert caplog.messages == [f"{tmp_path}: events cannot be written, got: {why}. {CANNOT}"]
    found = scalars_of(tmp_path)["loss"]
    assert found[-1] == (9, 9.0)
    assert found[:-1] == [(step, float(step)) for step in range(1, len(found))]
    assert len(found) < 9


def test_a_folder_that_cannot_be_made_is_warned_of_once(tmp_path, caplog):
    caplog.set_level("INFO", "cstool")
    (tmp_path / "taken").write_text("")
    with Events(tmp_path / "taken" / "events") as events:
        for step in (1, 2):
            events.scalars(step, {"loss": 1.0})
    why = "Not a directory"
    assert caplog.messages == [f"{tmp_path}/taken/events: events cannot be written, got: {why}. {CANNOT}"]
