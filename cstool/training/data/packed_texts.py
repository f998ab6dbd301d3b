"""Several texts in one sample: their places, from the vendor's spans and positions.

A token at position p of its own text, which goes on for r tokens, has position id p and attention span r - 1 - p: it is
seen from there on by that many tokens, by itself and, where attention looks back, by the p before it. Padding has
zeros.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing/vsl_pretraining_token_generator.py;
`create_vsl_mask` in common/utils/model/transformer_utils.py.
"""

import numpy as np

from cstool.training.data.dataset import Array


def text_numbers(positions: Array, spans: Array) -> tuple[Array, Array]:
    """Number each token by its text in its sample.

    Args:
        positions, spans: (n, S) int32

    Returns:
        (n, S) int32, counted from 1, and (n, S) bool, where spans and positions are none of texts back to back
    """
    begins = positions == 0
    wrong = np.zeros(begins.shape, bool)
    wrong[:, 0] = ~begins[:, 0]
    wrong[:, 1:] |= ~begins[:, 1:] & (positions[:, 1:] != positions[:, :-1] + 1)
    wrong[:, 1:] |= ~begins[:, 1:] & (spans[:, 1:] != spans[:, :-1] - 1)
    ends = np.ones_like(begins)
    ends[:, :-1] = begins[:, 1:]
    wrong |= ends != (spans == 0)
    numbers: Array = np.cumsum(begins, axis=1, dtype=np.int32)
    return numbers, wrong
