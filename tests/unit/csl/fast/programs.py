"""Code for tests that need none."""

import numpy as np

from cstool.csl.fast.code import Code

_PAIRS = np.zeros((0, 2), np.int32)
NO_CODE = Code(
    np.zeros((0, 6), np.int32), np.zeros(0, np.int64), (), {}, 0, np.zeros(0, np.int64), _PAIRS, _PAIRS, _PAIRS, _PAIRS
)
