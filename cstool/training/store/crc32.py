"""CRC-32 as zlib and gzip have it: as fast as the machine can, and of pieces that were read apart."""

import contextlib
import functools
import zlib
from collections.abc import Callable

_POLYNOMIAL = 0xEDB88320
"""x**32 modulo the polynomial of the CRC; the highest bit is the coefficient of x**0, the lowest of x**31"""

_ONE, _BYTE = 1 << 31, 1 << 23
"""x**0 and x**8"""


_crc32: Callable[[bytes | memoryview, int], int] = zlib.crc32
with contextlib.suppress(ImportError):  # it uses the carry-less multiplication of the processor, where there is one
    from isal import isal_zlib

    _crc32 = isal_zlib.crc32


def crc32(data: bytes | memoryview, value: int = 0) -> int:
    """Return the checksum of contiguous bytes that follow others with the checksum `value`."""
    return _crc32(data, value)


def combine_crc32(crc_a: int, crc_b: int, length_b: int) -> int:
    """Return the checksum of two pieces, one after the other, from their checksums and the length of the second.

    As zlib's crc32_combine: a checksum is a polynomial over GF(2), later bytes multiply it by a power of x
    (https://github.com/madler/zlib/blob/develop/crc32.c).
    """
    return _multiply(_power(length_b), crc_a) ^ crc_b


@functools.lru_cache
def _power(length: int) -> int:
    """Return x**(8 * length) modulo the polynomial."""
    power, square = _ONE, _BYTE
    while length:
        if length & 1:
            power = _multiply(power, square)
        square = _multiply(square, square)
        length >>= 1
    return power


def _multiply(a: int, b: int) -> int:
    """Return the product of two polynomials modulo the polynomial of the CRC."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product
