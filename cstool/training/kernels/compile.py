"""Compile every kernel ahead of the run, or load it from the cache."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from cstool.model.ir import OP_RULES, Initializer, OpKind
from cstool.training.kernels import cached_attention, linear, loss, magnitudes, mixture, random, rowwise, sparse, spin
from cstool.training.kernels._cache import kernel_folder
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.bfloat16 import BFLOAT16, convert
from cstool.training.kernels.call import Array, Call
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.gemm_providers import BFLOAT16_NAME, EMULATED, choose_gemm
from cstool.training.kernels.table import KERNELS


def _float32(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def _lend(_name: str, shape: tuple[int, ...]) -> Array:
    return np.empty(shape, np.float32)


def _bfloat16(*shape: int) -> Array:
    return np.zeros(shape, BFLOAT16)


_WIDE = _float32(2, 8)
"""activations, only to be read"""


def _run(
    kind: OpKind,
    *weights: Array,
    inputs: tuple[Array, ...] = (_WIDE,),
    y: Array | None = None,
    delta_y: Array | None = None,
    delta_x: Array | None = None,
    **attributes: Any,
) -> None:
    """Run an op forward and backward on a sample of two tokens; arrays that are not given are float32."""
    rules = OP_RULES[kind]
    target = _float32(2, 8) if delta_x is None else delta_x
    call = Call(
        attributes,
        sequence=2,
        inputs=inputs,
        outputs=(y if y is not None else _float32(2) if rules.losses else _float32(2, 8),),
        kept={name: _float32(*shape) for name, shape in rules.statistics_shapes(attributes, 2).items()},
        scratch=_lend,
        gemm=EMULATED if BFLOAT16 in (inputs[0].dtype, *(weight.dtype for weight in weights)) else NUMPY,
        delta_outputs=(_float32(2, 8) if delta_y is None else delta_y,),
        delta_inputs=tuple(np.empty_like(target) for _ in inputs),
        accumulate=(delta_x is None,),
        weights=weights,
        gradients=[np.empty(weight.shape, np.float32) for weight in weights],
        stop=4,
    )
    KERNELS[kind].forward(call)
    KERNELS[kind].backward(call)


def _norms(y: Array | None = None) -> None:
    _run(OpKind.LAYER_NORM, _float32(8), _float32(8), y=y, epsilon=1e-5)
    _run(OpKind.RMS_NORM, _float32(8), y=y, epsilon=1e-5)
    _run(OpKind.HEAD_NORM, _float32(4), y=y, epsilon=1e-5, heads=2)


def _activations(x: Array = _WIDE, **own: Any) -> None:
    _run(OpKind.ACTIVATION, inputs=(x,), function="gelu", **own)
    _run(OpKind.GATED_ACTIVATION, inputs=(x, x), function="silu", **own)


def _rotary(x: Array = _WIDE, **own: Any) -> None:
    _run(OpKind.ROTARY, inputs=(x,), head_width=4, frequencies=(1.0,), amplitude=1.0, **own)


def _attention(x: Array = _WIDE, **own: Any) -> None:
    _run(OpKind.ATTENTION, inputs=(x, x, x), **Attention(2, 2, 2, 0.5)._asdict(), **own)


def _embeddings() -> None:
    _run(OpKind.EMBEDDING, _float32(4, 8), inputs=(np.zeros(2, np.int32),))
    _run(OpKind.POSITION_EMBEDDING, _float32(2, 8))
    _run(OpKind.SCALE, factor=2.0)


def _loss(classes: Array = _float32(4, 8)) -> None:  # noqa: B008  (only read)
    for softcap in (None, 2.0):
        inputs = _float32(2, 8), np.zeros(2, np.int32), _float32(2)
        _run(OpKind.SOFTMAX_LOSS, classes, inputs=inputs, logits_scale=1.0, logits_softcap=softcap)


def _mixture(of: Callable[..., Array] = _float32) -> None:
    choices, weights = np.array([[0, 1], [1, 0]], np.int32), _float32(2, 2)
    mixture.dispatch(_float32(2, 8), choices, 2, of(4, 8))
    mixture.dispatch_back(_float32(4, 8), choices, 2, _float32(2, 8), True)
    mixture.combine(of(4, 8), weights, choices, 2, _float32(2, 8))
    mixture.combine_back(_float32(2, 8), of(4, 8), weights, choices, 2, of(4, 8), _float32(2, 2))
    functions = mixture.SOFTMAX, mixture.SIGMOID, 0.0
    mixture.route(_float32(2, 2), *functions, weights, choices, _float32(2, 2))
    mixture.route_back(_float32(2, 2), *functions, choices, weights, _float32(2, 2))


def _magnitudes() -> None:
    magnitudes.sum_squares(_float32(8))
    magnitudes.first_non_finite(_float32(8))


def _sparse_linear(of: Callable[..., Array] = _float32) -> None:
    pattern, _ = sparse.make_pattern(np.arange(8), (4, 8))
    sparse.positions(pattern)
    x, values, written = of(2, 8), of(8), of(4, 8)
    sparse.transpose_values(pattern, values, of(8))
    sparse.expand(pattern, values, written)
    sparse.expand(pattern, _float32(8), _float32(4, 8))
    sparse.collect(pattern, _float32(4, 8), _float32(8))
    # The result of a product may be float32 where operands are bfloat16.
    for to in {of, _float32}:
        sparse.sparse_linear_delta(of(2, 4), pattern.transposed, values, to(2, 8), True, _lend)
        sparse.sparse_linear_forward(x, pattern, values, None, to(2, 4), _lend)
        # A panel that is a whole layer has a whole array for its outputs, any other a slice of columns: two types.
        sparse.sparse_linear_forward(x, pattern, values, None, to(2, 8)[:, :4], _lend)
    for delta_y in (of(2, 4), of(2, 8)[:, :4]):
        sparse.sparse_linear_delta(delta_y, pattern.transposed, values, _float32(2, 8), True, _lend)
        sparse.sparse_linear_gradient(x, delta_y, pattern, _float32(8), _lend)


def _rowwise(x: Array, weight: Array) -> None:
    taken, y = np.zeros(1, np.int64), _float32(2, 4)
    # A panel that is a whole layer has a whole array for its outputs, any other a slice of columns: two types.
    for target in (y, _float32(2, 8)[:, :4]):
        rowwise.linear_by_turns(x, weight, None, target, taken, 0)


def _inference() -> None:
    x = _float32(2, 8)
    _rowwise(x, _float32(4, 8))
    one = np.zeros(1, np.int64)
    news, cache = cached_attention.News(one, one, one + 2, one), _float32(1, 2, 4, 4)
    cached_attention.append(x, news, cache)
    scores = _float32(cached_attention.BLOCK_TOKENS, 4)
    form = Attention(2, 2, 4, 0.5)
    biases = form.biases(x.dtype, needed=False)
    cached_attention.cached_attention(x, news, cache, cache, form, biases, (0, 2), _float32(2, 8), scores)
    loss.bend_logits(x, 2.0, None)
    spin.publish(one, 0, 1)
    spin.spin(one, 0, 1, 1)


def _random() -> None:
    random.dropout_apply(random.Dropout(0.0, (0, 0), 0, 0, 1), _float32(2, 8), _float32(2, 8))
    for name in ("uniform", "normal"):
        random.fill(Initializer(name, 0.0, 1.0, -1.0, 1.0), (0, 0), 0, _float32(8))


def _of_bfloat16() -> None:
    bits, wide = _bfloat16(2, 8), _float32(2, 8)
    _norms(bits)
    # A delta that is a sum of several panels is float32, any other bfloat16.
    for delta_y in (bits, wide):
        _activations(bits, y=_bfloat16(2, 8), delta_y=delta_y, delta_x=bits)
        _rotary(bits, y=bits, delta_y=delta_y, delta_x=bits)
        # After a norm of heads, whose deltas are float32.
        _rotary(bits, y=bits, delta_y=delta_y, delta_x=wide)
    _attention(bits, y=_bfloat16(2, 8), delta_y=bits, delta_x=bits)
    _run(OpKind.RESIDUAL, inputs=(wide, wide), delta_x=bits)
    _run(OpKind.EMBEDDING, _bfloat16(4, 8), inputs=(np.zeros(2, np.int32),))
    linear.column_sum(bits, _float32(8))
    convert(wide, bits)
    convert(_float32(2, 16)[:, :8], bits)
    convert(bits, wide)
    magnitudes.first_non_finite(bits.reshape(-1))
    _loss(_bfloat16(4, 8))


BFLOAT16_KERNELS, PRODUCT_KERNELS, SPARSE_KERNELS, ANSWERING_KERNELS = "bfloat16", "products", "sparse", "answering"
MIXTURE_KERNELS = "mixture"
"""kernels that only some runs need; `PRODUCT_KERNELS` is a provider of products of bfloat16"""

_GROUPS: tuple[tuple[str, Set[str], Callable[[], object]], ...] = (
    ("activations", set(), _activations),
    ("random numbers", set(), _random),
    ("residual", set(), partial(_run, OpKind.RESIDUAL, inputs=(_WIDE, _WIDE))),
    ("rotary positions", set(), _rotary),
    ("magnitudes", set(), _magnitudes),
    ("softmax loss", set(), _loss),
    ("embeddings", set(), _embeddings),
    ("norms", set(), _norms),
    ("attention", set(), _attention),
    ("mixture of experts", {MIXTURE_KERNELS}, _mixture),
    ("sparse linear", {SPARSE_KERNELS}, _sparse_linear),
    ("sparse linear in bfloat16", {SPARSE_KERNELS, BFLOAT16_KERNELS}, partial(_sparse_linear, _bfloat16)),
    ("inference", {ANSWERING_KERNELS}, _inference),
    ("mixture of experts in bfloat16", {MIXTURE_KERNELS, BFLOAT16_KERNELS}, partial(_mixture, _bfloat16)),
    ("bfloat16", {BFLOAT16_KERNELS}, _of_bfloat16),
    # The trial of a provider compiles it, if it is a kernel of our own.
    ("products of bfloat16", {PRODUCT_KERNELS}, partial(choose_gemm, BFLOAT16_NAME)),
    ("inference in bfloat16", {ANSWERING_KERNELS, BFLOAT16_KERNELS}, partial(_rowwise, _WIDE, _bfloat16(4, 8))),
)
"""name of a group, all needs that a run must have for it, and a function that calls all of it

Two processes compile them, from both ends: the slowest groups come first and last, so that both end at once.
"""

_NO_OTHERS: Mapping[str, Callable[[], None]] = MappingProxyType({})


def kernels_cached(needs: Collection[str] = (), others: Iterable[str] = ()) -> bool:
    """Say whether earlier calls of `compile_kernels` have left all kernels that a run needs in the cache."""
    return not _missing([*_needed(needs), *others])


def compile_kernels(
    progress: Callable[[str, int, int], None],
    others: Mapping[str, Callable[[], None]] = _NO_OTHERS,
    needs: Collection[str] = (),
) -> None:
    """Call every kernel once with the types of a run, so that none is compiled while lanes wait for it.

    Args:
        progress: called with (name of the next group, groups done, groups in all) before each group
        others: groups of kernels of other packages, and functions that call all kernels of a group
        needs: `BFLOAT16_KERNELS`, `PRODUCT_KERNELS`, `SPARSE_KERNELS`, `ANSWERING_KERNELS`, `MIXTURE_KERNELS`
    """
    groups = {**_needed(needs), **others}
    for done, (name, call) in enumerate(groups.items()):
        progress(name, done, len(groups))
        call()
        _set_mark(name)


def compile_from_the_end(others: Mapping[str, Callable[[], None]] = _NO_OTHERS, needs: Collection[str] = ()) -> None:
    """Compile groups into the cache that `compile_kernels` of another process has not reached, the last group first."""
    groups = {**_needed(needs), **others}
    # The other process compiles the first.
    for name in reversed(_missing(groups)[1:]):
        if _missing([name]):
            groups[name]()
            _set_mark(name)


def _missing(groups: Iterable[str]) -> list[str]:
    folder = kernel_folder().path
    return [name for name in groups if folder is None or not (folder / _mark(name)).exists()]


def _set_mark(group: str) -> None:
    if (folder := kernel_folder().path) is not None:
        with contextlib.suppress(OSError):  # it is told where a kernel cannot be written
            (folder / _mark(group)).touch()


def _needed(needs: Collection[str]) -> dict[str, Callable[[], object]]:
    return {name: call for name, of_run, call in _GROUPS if of_run <= set(needs)}


def _mark(group: str) -> str:
    """The file in the folder of kernels that marks a group as complete."""
    return f"complete.{group.replace(' ', '_')}"
