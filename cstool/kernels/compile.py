"""Compile every kernel ahead of the run, or load it from the cache."""

import contextlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from cstool.kernels import (
    activation,
    attention,
    cached_attention,
    embedding,
    gated,
    loss,
    magnitudes,
    norm,
    random,
    residual,
    rotary,
    rowwise,
    sparse,
    spin,
)
from cstool.kernels._cache import kernel_folder


def _float32(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def _lend(_name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.empty(shape, np.float32)


def _norm() -> None:
    x, row = _float32(2, 8), _float32(8)
    mean, rstd = _float32(2), _float32(2)
    norm.layer_norm_forward(x, row, row, 1e-5, _float32(2, 8), mean, rstd)
    norm.layer_norm_backward(x, row, mean, rstd, x, _float32(2, 8), True, _float32(8), _float32(8))
    norm.rms_norm_forward(x, row, 1e-5, _float32(2, 8), rstd)
    norm.rms_norm_backward(x, row, rstd, x, _float32(2, 8), True, _float32(8))


def _activation() -> None:
    x = _float32(2, 8)
    activation.activation_forward("gelu", x, None, _float32(2, 8), None)
    activation.activation_backward("gelu", x, None, x, _float32(2, 8), None, None)
    gated.gated_activation_forward("silu", x, x, None, None, _float32(2, 8), None)
    deltas = _float32(2, 8), _float32(2, 8)
    gated.gated_activation_backward("silu", x, x, None, None, x, *deltas, None, None, None)


def _residual() -> None:
    x = _float32(2, 8)
    residual.residual_forward(x, x, None, _float32(2, 8), None)


def _attention() -> None:
    x, lse = _float32(2, 8), _float32(2, 2)
    delta_q, delta_k, delta_v = _float32(2, 8), _float32(2, 8), _float32(2, 8)
    form = attention.Attention(2, 2, 2, 0.5)
    attention.attention_forward(x, x, x, form, _float32(2, 8), lse, None, _lend)
    attention.attention_backward(x, x, x, x, lse, x, form, delta_q, delta_k, delta_v, None, _lend)


def _rotary() -> None:
    rotary.rotary_forward(_float32(2, 8), 4, 2, (1.0,), 1.0, _float32(2, 8))


def _embedding() -> None:
    ids, x = np.zeros(2, np.int32), _float32(2, 8)
    embedding.embedding_forward(ids, _float32(4, 8), 0, 4, _float32(2, 8))
    embedding.embedding_backward(ids, x, 0, 4)
    embedding.position_forward(x, _float32(2, 8), 2, _float32(2, 8), None)
    embedding.position_backward(x, 2, _float32(2, 8), _float32(2, 8), None)
    residual.scale_forward(x, 2.0, _float32(2, 8), None)


def _loss() -> None:
    labels, mask = np.zeros(2, np.int32), _float32(2)
    x, weight, state = _float32(2, 8), _float32(4, 8), _float32(loss.STATE_ROWS, 2)
    loss.softmax_loss_begin(state)
    loss.softmax_loss_forward(x, weight, None, 0, labels, state, _lend)
    for softcap in (None, 2.0):
        deltas = _float32(2, 8), False, _float32(4, 8), None
        loss.softmax_loss_backward(x, weight, None, 0, labels, mask, 1.0, state, *deltas, _lend, logits_softcap=softcap)


def _magnitudes() -> None:
    magnitudes.sum_squares(_float32(8))
    magnitudes.first_non_finite(_float32(8))


def _sparse_linear() -> None:
    x = _float32(2, 8)
    pattern, _ = sparse.make_pattern(np.arange(8), (4, 8))
    sparse.positions(pattern)
    values, written = _float32(8), _float32(4, 8)
    sparse.expand(pattern, values, written)
    sparse.collect(pattern, written, values)
    # A panel that is a whole layer has a whole array for its outputs, any other a slice of columns: two types.
    for y in (_float32(2, 4), _float32(2, 8)[:, :4]):
        sparse.sparse_linear_forward(x, pattern, values, None, y, _lend)
        sparse.sparse_linear_backward(x, y, pattern, values, _float32(2, 8), True, _float32(8), _lend)


def _inference() -> None:
    x = _float32(2, 8)
    rowwise.rowwise_linear(x, _float32(4, 8), None, _float32(2, 4), 0, 4)
    one = np.zeros(1, np.int64)
    news, cache = cached_attention.News(one, one, one + 2, one), _float32(1, 4, 8)
    cached_attention.append(x, news, cache)
    scores = _float32(cached_attention.BLOCK_TOKENS, 4)
    form = attention.Attention(2, 2, 4, 0.5)
    cached_attention.cached_attention(x, news, cache, cache, form, (0, 2), _float32(2, 8), scores)
    loss.bend_logits(x, 2.0, None)
    spin.publish(one, 0, 1)
    spin.spin(one, 0, 1, 1)


def _random() -> None:
    random.dropout_apply(None, _float32(2, 8), _float32(2, 8))
    random.fill("uniform", (0, 0), 0, _float32(8), 0.0, 1.0, -1.0, 1.0)
    random.fill("normal", (0, 0), 0, _float32(8), 0.0, 1.0, -1.0, 1.0)


_GROUPS: tuple[tuple[str, Callable[[], None]], ...] = (
    ("random numbers", _random),
    ("norms", _norm),
    ("activations", _activation),
    ("residual", _residual),
    ("attention", _attention),
    ("rotary positions", _rotary),
    ("embeddings", _embedding),
    ("softmax loss", _loss),
    ("magnitudes", _magnitudes),
    ("sparse linear", _sparse_linear),
    ("inference", _inference),
)


_NO_OTHERS: Mapping[str, Callable[[], None]] = MappingProxyType({})
_MARK = "complete"
"""the file in the folder of kernels that says that all of them are there"""


def kernels_cached() -> bool:
    """Say whether an earlier `compile_kernels` has left all kernels in the cache."""
    folder = kernel_folder().path
    return folder is not None and (folder / _MARK).exists()


def compile_kernels(
    progress: Callable[[str, int, int], None], others: Mapping[str, Callable[[], None]] = _NO_OTHERS
) -> None:
    """Call every kernel once with the types of a run, so that none is compiled while lanes wait for it.

    Args:
        progress: called with (what comes next, groups done, groups in all) before each group
        others: groups of kernels that other rooms have, and what calls all of such a group
    """
    groups = (*_GROUPS, *others.items())
    for done, (name, call) in enumerate(groups):
        progress(name, done, len(groups))
        call()
    if (folder := kernel_folder().path) is not None:
        with contextlib.suppress(OSError):  # it is told where a kernel cannot be written
            (folder / _MARK).touch()
