"""Checksums are those of zlib, whichever library is at hand, and those of pieces make that of the whole."""

import functools
import importlib.util
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.training.store import crc32 as module
from cstool.training.store.crc32 import combine_crc32, crc32

BYTES = st.binary(max_size=300)
PERIOD = 2**32 - 1
"""zero bytes after which a checksum comes round: the polynomial is primitive, of degree 32"""


def test_the_quick_library_is_used_where_it_is_installed_else_zlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "isal", None)
    spec = importlib.util.spec_from_file_location("crc32_anew", module.__file__)
    spec.loader.exec_module(anew := importlib.util.module_from_spec(spec))
    assert anew._crc32 is zlib.crc32
    monkeypatch.undo()
    assert module._crc32 is pytest.importorskip("isal.isal_zlib").crc32


@given(BYTES, st.integers(0, 2**32 - 1))
def test_a_checksum_is_that_of_zlib_also_of_a_view(data, value):
    assert crc32(data, value) == zlib.crc32(data, value)
    assert crc32(memoryview(data)[1:]) == zlib.crc32(data[1:])


@given(st.lists(BYTES, max_size=5))
def test_the_pieces_make_the_whole_wherever_it_is_cut(pieces):
    of_pieces = [(zlib.crc32(piece), len(piece)) for piece in pieces]
    whole = functools.reduce(lambda crc, piece: combine_crc32(crc, *piece), of_pieces, 0)
    assert whole == zlib.crc32(b"".join(pieces))


@given(BYTES, st.integers(0, 2**17), st.integers(0, 3))
def test_a_second_piece_of_any_length(first, zeros, rounds):
    combined = combine_crc32(zlib.crc32(first), zlib.crc32(bytes(zeros)), rounds * PERIOD + zeros)
    assert combined == zlib.crc32(first + bytes(zeros))


def test_a_second_piece_of_8_gib_of_zeros_made_by_doubling():
    crc, length = zlib.crc32(b"\0"), 1
    while length < 2**33:
        crc, length = combine_crc32(crc, crc, length), 2 * length
    # 2**33 zeros are two periods and two.
    assert crc == zlib.crc32(b"\0\0")
