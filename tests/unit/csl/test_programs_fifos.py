"""FIFOs: what empty and full ones do to operations that wait for them, and to those that do not."""

from pathlib import Path

import pytest

from tests.unit.csl.one_pe import OnePE

ARCHS = pytest.mark.parametrize("arch", ["wse2", "wse3"])


@ARCHS
def test_an_operation_tells_whether_a_fifo_let_it_end(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]i16);
var src = @zeros([8]i16);
var buffer = @zeros([4]i16);
const fifo = @allocate_fifo(buffer);
const src_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> src[i] });
const out_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{8} -> out[i] });
const one = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{1} -> out[i + 9] });
""",
        """
const empty = @mov16(one, fifo);
if (!empty) { out[10] = 1; }
for (@range(i16, 8)) |i| { src[i] = i + 1; }
const ok = @mov16(fifo, 41);
if (ok) { out[8] = 1; }
const got = @mov16(one, fifo);
if (got) { out[11] = 1; }
@mov16(fifo, src_dsd, .{ .async = true });
@mov16(out_dsd, fifo, .{ .async = true });
""",
        arch,
    )
    out = pe["out"]
    assert out[:8].tolist() == [1, 2, 3, 4, 5, 6, 7, 8], out
    assert out[8:12].tolist() == [1, 41, 1, 1], out


@ARCHS
def test_registers_that_hold_fifos(tmp_path: Path, arch: str) -> None:
    pe = OnePE(
        tmp_path,
        """
var out = @zeros([16]i16);
var src = @zeros([8]i16);
var buffer = @zeros([4]i16);
const fifo = @allocate_fifo(buffer);
const src_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> src[i] });
const out_dsd = @get_dsd(mem1d_dsd, .{ .tensor_access = |i|{4} -> out[i] });
const fd = @get_dsr(dsr_fifo_dest, 4);
const fs = @get_dsr(dsr_fifo_src1, 4);
const plain = @get_dsr(dsr_dest, 5);
""",
        """
for (@range(i16, 8)) |i| { src[i] = i + 1; }
@load_to_dsr(fd, fifo);
@load_to_dsr(fs, fifo);
@load_to_dsr(plain, out_dsd);
if (@mov16(fd, src_dsd)) { out[8] = 1; }
if (!@mov16(fd, @as(i16, 3))) { out[9] = 1; }
var done: bool = @mov16(plain, fs);
out[10] = @as(i16, done);
while (@mov16(fd, @as(i16, 3))) { out[11] += 1; }
""",
        arch,
    )
    out = pe["out"]
    assert out[:4].tolist() == [1, 2, 3, 4], out
    assert out[8:12].tolist() == [1, 1, 1, 4], out
