"""What programs may not do with circular buffers, indexed tensors, and pointers to functions: each message in full."""

from pathlib import Path

import pytest

from cstool.csl.source import CslError
from cstool.errors import CstoolError
from tests.unit.csl.one_pe import OnePE

TEXT = """
var out = @zeros([4]i16);
fn one(v: i16) i16 { return v; }
fn none() i16 { return 0; }
var pointer: *const fn(i16) i16 = &one;
"""


@pytest.mark.parametrize(
    ("text", "body", "message"),
    [
        (
            "const ring = @get_dsd(circbuf_dsd, .{ .base_address = &out, .extent = 4 });",
            "@mov16(ring, @as(i16, 1));",
            "8:23: circular buffers (circbuf_dsd) are not simulated",
        ),
        (
            "const d = @get_dsd(mem4d_dsd, .{ .tensor_access = |i|{4} -> out[i], .wavelet_index_offset = true });",
            "@mov16(d, @as(i16, 1));",
            "8:31: a mem4d_dsd with .wavelet_index_offset is not simulated",
        ),
        ("", "out[0] = pointer.*(1, 2);", "12:10: fn(i16)i16 takes 1 argument, got 2"),
        ("", "pointer = &none;", "12:11: 'pointer' must be *const fn(i16)i16, got *const fn()i16 49154"),
        ("", "out[0] = out(1);", "12:10: only a function can be called, got [4]i16"),
    ],
)
def test_it_is_refused(tmp_path: Path, text: str, body: str, message: str) -> None:
    with pytest.raises(CslError) as error:
        OnePE(tmp_path, f"{TEXT}\n{text}", body)
    assert error.value.message.endswith(f"pe.csl:{message}")


def test_a_pointer_to_no_function_is_an_error_where_it_is_called(tmp_path: Path) -> None:
    with pytest.raises(CstoolError, match="a pointer that is called points to a function, got another"):
        OnePE(tmp_path, TEXT, "pointer = @bitcast(*const fn(i16) i16, @as(u16, 6));\nout[0] = pointer.*(1);")
