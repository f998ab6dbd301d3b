"""Random numbers inside kernels, for dropout and first values of weights: the bits of `foundation.random_keys`."""

import math
from typing import NamedTuple

import numpy as np

from cstool.foundation.random_keys import MULTIPLIER_0, MULTIPLIER_1, WEYL_0, WEYL_1
from cstool.model.ir import Initializer
from cstool.training.kernels import elementary
from cstool.training.kernels._jit import elementwise, inlined

_u = np.uint64
_M0, _M1, _W0, _W1 = _u(MULTIPLIER_0), _u(MULTIPLIER_1), _u(WEYL_0), _u(WEYL_1)
_LOW, _32, _0 = _u(0xFFFFFFFF), _u(32), _u(0)

_WORDS = 1024
"""words that `fill` draws together"""


class Dropout(NamedTuple):
    """The elements to drop.

    Element e of sample s in step t is word e % 4 of block e // 4, whose counter is that number's low word, its high
    word, s, t. It is kept when the word is at least `rate` x 2^32, and then divided by 1 - `rate`.

    Args:
        rate: probability of being dropped, in [0, 1)
        key: of the layer, as from `cstool.foundation.random_keys.key_of`
        step: of training
        sample: index in the global batch of the first sample of the grain
        tokens_per_sample: rows of an activation that make one sample
    """

    rate: float
    key: tuple[int, int]
    step: int
    sample: int
    tokens_per_sample: int


Draws = tuple[int, float, int, int, int, int, int]
"""a `Dropout` as kernels take it: threshold, factor on kept elements, key words, step, sample, tokens per sample

An op that never drops anything gives None: of a kernel without random numbers there is half as much to compile.
"""

_KEEP_ALL: Draws = (0, 1.0, 0, 0, 0, 0, 1)


def draws_of(dropout: Dropout | None, drops: bool = False) -> Draws | None:
    """Return the form in which kernels take a dropout; without one, everything is kept.

    Args:
        dropout: None for none
        drops: whether there is one at other times: then None is not returned, for which kernels are compiled once more
    """
    if dropout is None or dropout.rate == 0.0:
        return _KEEP_ALL if dropout is not None or drops else None
    factor = 1.0 / (1.0 - dropout.rate)
    return (round(dropout.rate * 2**32), factor, *dropout.key, dropout.step, dropout.sample, dropout.tokens_per_sample)


@inlined
def _round(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    p0 = (c0 & _LOW) * _M0
    p1 = (c2 & _LOW) * _M1
    return (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW


@inlined
def _block(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """Return the four words of a counter, all as uint64."""
    # Written out: LLVM vectorises over counters only if there is no loop over rounds inside.
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _W0) & _LOW, (k1 + _W1) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _u(2) * _W0) & _LOW, (k1 + _u(2) * _W1) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _u(3) * _W0) & _LOW, (k1 + _u(3) * _W1) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _u(4) * _W0) & _LOW, (k1 + _u(4) * _W1) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _u(5) * _W0) & _LOW, (k1 + _u(5) * _W1) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _u(6) * _W0) & _LOW, (k1 + _u(6) * _W1) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _u(7) * _W0) & _LOW, (k1 + _u(7) * _W1) & _LOW)
    c0, c1, c2, c3 = _round(c0, c1, c2, c3, (k0 + _u(8) * _W0) & _LOW, (k1 + _u(8) * _W1) & _LOW)
    return _round(c0, c1, c2, c3, (k0 + _u(9) * _W0) & _LOW, (k1 + _u(9) * _W1) & _LOW)


@elementwise
def mask_memory(width, like):  # type: ignore[no-untyped-def]
    """Return memory for the masks of rows, all ones; to be called from kernels.

    It is the one allocation of a kernel, and so small that it costs no page fault.
    """
    return np.ones(4 * (width // 4 + 2), like.dtype)


@elementwise
def mask_elements(memory, draws, sample, first, count):  # type: ignore[no-untyped-def]
    """Return the mask of `count` elements of a sample from element `first` on; to be called from kernels.

    Its elements are 0 or 1 / (1 - rate). It is a view of `memory` and only to be read: nothing is written there when
    nothing is dropped.
    """
    if draws is None:
        return memory[:count]
    threshold, factor, key_0, key_1, step, first_sample, _ = draws
    if threshold == 0:
        return memory[:count]
    keep = memory.dtype.type(factor)
    drop = memory.dtype.type(0)
    least, c2, c3, k0, k1 = _u(threshold), _u(first_sample + sample), _u(step), _u(key_0), _u(key_1)
    offset = first % 4
    base = _u(first // 4)
    for b in range((offset + count + 3) // 4):
        block = base + _u(b)
        w0, w1, w2, w3 = _block(block & _LOW, block >> _32, c2, c3, k0, k1)
        i = _u(4) * _u(b)
        memory[i] = keep if w0 >= least else drop
        memory[i + _u(1)] = keep if w1 >= least else drop
        memory[i + _u(2)] = keep if w2 >= least else drop
        memory[i + _u(3)] = keep if w3 >= least else drop
    return memory[offset : offset + count]


@elementwise
def mask_row(memory, draws, token, width):  # type: ignore[no-untyped-def]
    """Return the mask of the row of a token, as `mask_elements` does; to be called from kernels."""
    if draws is None:
        return memory[:width]
    tokens_per_sample = draws[6]
    sample = token // tokens_per_sample
    return mask_elements(memory, draws, sample, (token - sample * tokens_per_sample) * width, width)


@elementwise
def _dropout(x, out, draws):  # type: ignore[no-untyped-def]
    tokens, width = x.shape
    memory = mask_memory(width, x)
    row = np.empty(width, x.dtype)
    for t in range(tokens):
        mask = mask_row(memory, draws, t, width)
        # Through a row of its own, here and in other kernels: so `out` may be x, and still the loops vectorise.
        for j in range(width):
            row[j] = mask[j] * x[t, j]
        for j in range(width):
            out[t, j] = row[j]


def dropout_apply(dropout: Dropout | None, x: np.ndarray, out: np.ndarray) -> None:
    """Drop elements of x and scale the others; forward and backward are the same.

    Args:
        dropout: the elements to drop; None keeps all
        x: (T, width) float32
        out: (T, width) float32, may be x
    """
    if dropout is not None:
        _dropout(x, out, draws_of(dropout))
    elif out is not x:
        elementary.copy(x, out)


@elementwise
def _draw_words(words, k0, k1, first):  # type: ignore[no-untyped-def]
    """Draw the words of the blocks from the one of element `first` on; return the place of its word in them."""
    base = _u(first // 4)
    for b in range(words.shape[0] // 4):
        block = base + _u(b)
        w0, w1, w2, w3 = _block(block & _LOW, block >> _32, _0, _0, _u(k0), _u(k1))
        i = _u(4) * _u(b)
        words[i] = w0
        words[i + _u(1)] = w1
        words[i + _u(2)] = w2
        words[i + _u(3)] = w3
    return first % 4


@elementwise
def _fill_uniform(out, start, k0, k1, low, width):  # type: ignore[no-untyped-def]
    words = np.empty(_WORDS, np.uint32)
    for done in range(0, out.shape[0], _WORDS - 4):
        part = out[done : done + _WORDS - 4]
        offset = _draw_words(words, k0, k1, start + done)
        for i in range(part.shape[0]):
            part[i] = low + width * ((words[offset + i] + 0.5) * 2.0**-32)


@elementwise
def _quantile(p):  # type: ignore[no-untyped-def]
    """Return the value that a standard normal variable stays below with probability p, absolute error below 1e-6.

    Source: Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988 (PPND7).
    """
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        n = ((5.9109374720e1 * r + 1.5929113202e2) * r + 5.0434271938e1) * r + 3.3871327179
        return q * n / (((6.7187563600e1 * r + 7.8757757664e1) * r + 1.7895169469e1) * r + 1.0)
    r = math.sqrt(-math.log(p if q < 0.0 else 1.0 - p))
    if r <= 5.0:
        r -= 1.6
        n = ((1.7023821103e-1 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777
        z = n / ((1.2021132975e-1 * r + 7.3700164250e-1) * r + 1.0)
    else:
        r -= 5.0
        n = ((1.7337203997e-2 * r + 4.2868294337e-1) * r + 3.0812263860) * r + 6.6579051150
        z = n / ((1.2258202635e-2 * r + 2.4197894225e-1) * r + 1.0)
    return -z if q < 0.0 else z


@elementwise
def _fill_normal(out, start, k0, k1, mean, std, p_low, p_high, low, high):  # type: ignore[no-untyped-def]
    words = np.empty(_WORDS, np.uint32)
    for done in range(0, out.shape[0], _WORDS - 4):
        part = out[done : done + _WORDS - 4]
        offset = _draw_words(words, k0, k1, start + done)
        for i in range(part.shape[0]):
            p = p_low + (p_high - p_low) * ((words[offset + i] + 0.5) * 2.0**-32)
            part[i] = min(max(mean + std * _quantile(p), low), high)


def _probability_below(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def fill(initializer: Initializer, key: tuple[int, int], start: int, out: np.ndarray) -> None:
    """Fill a part of a weight with its first values, which depend on the element alone and not on the part.

    Args:
        initializer: how the weight begins
        key: of the weight, as from `cstool.foundation.random_keys.key_of`
        start: element of the flat weight that out[0] is
        out: (n,) float32

    Raises:
        ValueError: for a name that is none of an initializer
    """
    mean, std, low, high = (float(getattr(initializer, name)) for name in ("mean", "std", "low", "high"))
    if initializer.name == "constant":
        out.fill(mean)
    elif initializer.name == "uniform":
        _fill_uniform(out, start, *key, low, high - low)
    elif initializer.name == "normal":
        _fill_normal(out, start, *key, mean, std, 0.0, 1.0, -math.inf, math.inf)
    elif initializer.name == "truncated_normal":
        below = (_probability_below((low - mean) / std), _probability_below((high - mean) / std))
        _fill_normal(out, start, *key, mean, std, *below, low, high)
    else:
        raise ValueError(f"no initializer of this name: {initializer.name}")
