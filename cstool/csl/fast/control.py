"""Payloads of control wavelets in compiled code: `cstool.csl.fabric.control`, which has their bits."""

from cstool.csl.fabric.control import ADVANCE as ADVANCE
from cstool.csl.fabric.control import RESET as RESET
from cstool.csl.fabric.control import TEARDOWN as TEARDOWN
from cstool.csl.fabric.control import encode
from cstool.csl.fast.kernels import inner

ADVANCE_HIDDEN = encode(((ADVANCE, True),))
"""advances switches, and no CE gets it"""

_HIGH_SHIFT, _HIGH_MASK, _MARK, _TASK_MASK = 22, 0xFF, 1 << 31, 0x3F


@inner
def _has_more(payload):  # type: ignore[no-untyped-def]
    return (payload & _MARK) != 0 or (payload >> 25 & 0x1F) != 0


@inner
def command_of(payload):  # type: ignore[no-untyped-def]
    """The first command."""
    return payload >> _HIGH_SHIFT & 3


@inner
def ce_ignore(payload):  # type: ignore[no-untyped-def]
    """Whether the router that obeys the first command drops the wavelet at its ramp."""
    return payload >> _HIGH_SHIFT & 4


@inner
def task_of(payload):  # type: ignore[no-untyped-def]
    """The control task."""
    return payload >> 16 & _TASK_MASK


@inner
def data_of(payload):  # type: ignore[no-untyped-def]
    """The argument of the control task."""
    return 0 if _has_more(payload) else payload & 0xFFFF


@inner
def pop(payload):  # type: ignore[no-untyped-def]
    """The payload without its first command."""
    if not _has_more(payload):
        return payload & (_TASK_MASK << 16 | 0xFFFF)
    bits = (payload >> _HIGH_SHIFT & _HIGH_MASK | (payload & 0xFFFF) << 8) >> 3
    packed = (bits & _HIGH_MASK) << _HIGH_SHIFT | (payload & _TASK_MASK << 16) | bits >> 8
    return packed if _has_more(packed) or not packed & 0xFFFF else packed | _MARK
