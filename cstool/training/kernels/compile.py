"""Compile the kernels that a run needs before it begins, or load them from the cache.

A need is a text, the name of some kernels: the kind of an op and the words of its forms, as in "attention biases
dropout", or another word, as in "magnitudes". Kernels of a need are compiled by calls with the types of a run.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cstool.model.ir import OP_RULES, Graph, Initializer, Op, OpKind, texts_of
from cstool.training.kernels import (
    block_products,
    cached_attention,
    cached_positions,
    choosing,
    crew,
    elementary,
    embedding,
    linear,
    loss,
    magnitudes,
    mixture,
    quantized,
    random,
    rowwise,
    skipping,
    sparse,
    spin,
)
from cstool.training.kernels._cache import kernel_folder
from cstool.training.kernels.activation import FUNCTIONS, GATES
from cstool.training.kernels.attention import by_pairs
from cstool.training.kernels.attention_form import Attention
from cstool.training.kernels.attention_rows import add_by_bucket, sum_by_bucket
from cstool.training.kernels.bfloat16 import BFLOAT16, convert
from cstool.training.kernels.call import Array, Call
from cstool.training.kernels.driver import Table
from cstool.training.kernels.fma import FmaGemm
from cstool.training.kernels.gemm import NUMPY
from cstool.training.kernels.gemm_providers import BFLOAT16_NAME, EMULATED, FLOAT32, choose_gemm
from cstool.training.kernels.quantized_rows import FORMATS
from cstool.training.kernels.recording import NotRecordableError, Recording, recorded
from cstool.training.kernels.table import KERNELS


def _float32(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def _lend(_name: str, shape: tuple[int, ...]) -> Array:
    return np.empty(shape, np.float32)


def _bfloat16(*shape: int) -> Array:
    return np.zeros(shape, BFLOAT16)


_WIDE = _float32(2, 8)
"""activations, only to be read"""
_NOTHING_DROPPED = random.Dropout(0.0, (0, 0), 0, 0, 1)

BFLOAT16_KERNELS, PRODUCT_KERNELS, SPARSE_KERNELS, ANSWERING_KERNELS = "bfloat16", "products", "sparse", "answering"
MAGNITUDES, TABLES, CHOOSING_KERNELS, SKIPPING_KERNELS = "magnitudes", "tables", "choosing", "skipping"
"""needs of other kernels than those of ops; `PRODUCT_KERNELS` is a provider of products of bfloat16, or of float32"""
UPDATE_KERNELS, FIRST_VALUES = "updates", "first_values"
"""first words of needs: the name of an optimizer follows, or of an initializer"""
QUANTIZED_KERNELS = "quantized"
"""first word of needs: the name of a format of weights follows"""
ROWS, SLICES = "rows", "slices"
"""words for parts of the kernels of a model that answers"""
DROPOUT, BIASES, BENT, FORWARD, PAIRS = "dropout", "biases", "bent", "forward", "pairs"
"""forms of an op: has dropout; adds something to scores, or hides some; bends logits; never goes backward; is computed
pair by pair, see `attention.by_pairs`"""


def _run(
    kind: OpKind,
    *weights: Array,
    inputs: tuple[Array, ...] = (_WIDE,),
    y: Array | None = None,
    delta_y: Array | None = None,
    delta_x: Array | None = None,
    forms: Collection[str] = (),
    tokens: int = 2,
    **attributes: Any,
) -> None:
    """Run an op forward and backward on a sample, of two tokens by default; arrays not given are float32."""
    rules = OP_RULES[kind]
    target = _float32(2, 8) if delta_x is None else delta_x
    call = Call(
        attributes,
        sequence=tokens,
        inputs=inputs,
        outputs=(y if y is not None else _float32(2) if rules.losses else _float32(2, 8),),
        kept={name: _float32(*shape) for name, shape in rules.statistics_shapes(attributes, tokens).items()},
        scratch=_lend,
        gemm=EMULATED if BFLOAT16 in (inputs[0].dtype, *(weight.dtype for weight in weights)) else NUMPY,
        delta_outputs=(_float32(2, 8) if delta_y is None else delta_y,),
        delta_inputs=tuple(np.empty_like(target) for _ in inputs),
        accumulate=(delta_x is None,),
        dropout=_NOTHING_DROPPED if DROPOUT in forms else None,
        weights=weights,
        gradients=[np.empty(weight.shape, np.float32) for weight in weights],
        stop=4,
    )
    KERNELS[kind].forward(call)
    if FORWARD not in forms:
        KERNELS[kind].backward(call)


def _results(forms: Collection[str]) -> Array:
    return _bfloat16(2, 8) if BFLOAT16_KERNELS in forms else _float32(2, 8)


def _layer_norm(forms: Collection[str]) -> None:
    _run(OpKind.LAYER_NORM, _float32(8), _float32(8), y=_results(forms), forms=forms, epsilon=1e-5)


def _rms_norm(forms: Collection[str]) -> None:
    _run(OpKind.RMS_NORM, _float32(8), y=_results(forms), forms=forms, epsilon=1e-5)


def _activation(forms: Collection[str], kind: OpKind = OpKind.ACTIVATION, inputs: int = 1) -> None:
    attributes: dict[str, Any] = {"function": next(form for form in forms if form in FUNCTIONS), "forms": forms}
    if BFLOAT16_KERNELS not in forms:
        _run(kind, inputs=(_WIDE,) * inputs, **attributes)
        return
    bits = _bfloat16(2, 8)
    # A delta that is a sum of several panels is float32, any other bfloat16.
    for delta_y in (bits, _WIDE):
        _run(kind, inputs=(bits,) * inputs, y=_bfloat16(2, 8), delta_y=delta_y, delta_x=bits, **attributes)
    # The result is float32 where a norm follows.
    _run(kind, inputs=(bits,) * inputs, **{**attributes, "forms": [*forms, FORWARD]})


def _rotary(forms: Collection[str]) -> None:
    attributes: dict[str, Any] = {"head_width": 4, "frequencies": (1.0,), "amplitude": 1.0}
    if FORWARD in forms:
        cached_positions.turn_new(_WIDE, _two_news(), 2, attributes, _float32(2, 8))
        return
    turns: dict[str, Any] = {**attributes, "forms": forms}
    if BFLOAT16_KERNELS not in forms:
        _run(OpKind.ROTARY, **turns)
        return
    bits = _bfloat16(2, 8)
    for delta_y in (bits, _WIDE):
        # After a norm of heads deltas are float32.
        for delta_x in (bits, _float32(2, 8)):
            _run(OpKind.ROTARY, inputs=(bits,), y=bits, delta_y=delta_y, delta_x=delta_x, **turns)


def _attention(forms: Collection[str]) -> None:
    if BIASES in forms:
        table, buckets, biases = _float32(2, 2), np.zeros(3, np.int64), _float32(2, 3)
        add_by_bucket(table, buckets, biases)
        if FORWARD in forms:
            return
        sum_by_bucket(biases, buckets, table)
    if PAIRS in forms and BFLOAT16_KERNELS not in forms:
        x = _float32(128, 64)
        attributes = Attention(2, 2, 128, 0.5, slopes=(1.0, 1.0) if BIASES in forms else ())._asdict()
        more: dict[str, Any] = {"y": x.copy(), "delta_y": x, "delta_x": x, "tokens": 128}
        _run(OpKind.ATTENTION, inputs=(x, x, x), forms=forms, **more, **attributes)
        return
    attributes = Attention(2, 2, 2, 0.5, softcap=2.0 if BIASES in forms else None)._asdict()
    x, more = _WIDE, {}
    if BFLOAT16_KERNELS in forms:
        x = _bfloat16(2, 8)
        more = {"y": _bfloat16(2, 8), "delta_y": x, "delta_x": x}
    _run(OpKind.ATTENTION, inputs=(x, x, x), forms=forms, **more, **attributes)
    if BFLOAT16_KERNELS not in forms:
        # Products of so few numbers are NumPy's.
        a = _float32(1, 1, 1, 2, 2)
        block_products.multiply(a, a, np.empty_like(a), _lend)


def _residual(forms: Collection[str]) -> None:
    delta_x = _bfloat16(2, 8) if BFLOAT16_KERNELS in forms else None
    _run(OpKind.RESIDUAL, inputs=(_WIDE, _WIDE), delta_x=delta_x, forms=forms)


def _embedding(forms: Collection[str]) -> None:
    table = _bfloat16(4, 8) if BFLOAT16_KERNELS in forms else _float32(4, 8)
    ids = np.zeros(2, np.int32)
    _run(OpKind.EMBEDDING, table, inputs=(ids,), forms=forms)
    if not {FORWARD, BFLOAT16_KERNELS}.intersection(forms):
        embedding.scatter(_WIDE, ids, 0, 4, -1, _float32(4, 8))


def _positions(forms: Collection[str]) -> None:
    if FORWARD in forms:
        cached_positions.add_new_positions(_WIDE, _two_news(), _WIDE, 0, _float32(2, 8))
        return
    _run(OpKind.POSITION_EMBEDDING, _float32(2, 8), forms=forms)
    _run(OpKind.FIXED_POSITION_EMBEDDING, forms=forms)


def _scale(forms: Collection[str]) -> None:
    _run(OpKind.SCALE, factor=2.0, forms=forms)


def _gather(forms: Collection[str]) -> None:
    _run(OpKind.GATHER, inputs=(_WIDE, np.zeros(2, np.int32)), forms=forms)


def _loss(forms: Collection[str]) -> None:
    classes = _bfloat16(4, 8) if BFLOAT16_KERNELS in forms else _float32(4, 8)
    inputs = _float32(2, 8), np.zeros(2, np.int32), _float32(2)
    bends: dict[str, Any] = {"logits_scale": 1.0, "logits_softcap": 2.0 if BENT in forms else None}
    _run(OpKind.SOFTMAX_LOSS, classes, inputs=inputs, forms=forms, **bends)


def _routed() -> tuple[Array, Array]:
    """Choices of two experts each, and weights for them."""
    return np.array([[0, 1], [1, 0]], np.int32), _float32(2, 2)


def _router(_forms: Collection[str]) -> None:
    choices, weights = _routed()
    functions = mixture.SOFTMAX, mixture.SIGMOID, 0.0
    mixture.route(_float32(2, 2), *functions, weights, choices, _float32(2, 2))
    mixture.route_back(_float32(2, 2), *functions, choices, weights, _float32(2, 2))


def _dispatch(forms: Collection[str]) -> None:
    choices, _ = _routed()
    mixture.dispatch(_WIDE, choices, 2, (_bfloat16 if BFLOAT16_KERNELS in forms else _float32)(4, 8))
    mixture.dispatch_back(_float32(4, 8), choices, 2, _float32(2, 8), True)


def _experts(_forms: Collection[str]) -> None:
    choices, _ = _routed()
    mixture.sum_rows_of(choices.reshape(-1), 0, _float32(4, 8), _float32(8))
    mixture.fill_without_rows(np.zeros(1, np.int64), _float32(8), np.float32(0))


def _balance_loss(forms: Collection[str]) -> None:
    choices, probabilities = _routed()
    _run(OpKind.BALANCE_LOSS, inputs=(_float32(2), probabilities, choices), y=_float32(1, 1), forms=forms)


def _combine(forms: Collection[str]) -> None:
    (choices, weights), of = _routed(), _bfloat16 if BFLOAT16_KERNELS in forms else _float32
    mixture.combine(of(4, 8), weights, choices, 2, _float32(2, 8))
    mixture.combine_back(_WIDE, of(4, 8), weights, choices, 2, of(4, 8), _float32(2, 2))


def _magnitudes(_forms: Collection[str]) -> None:
    magnitudes.sum_squares(_float32(8))
    magnitudes.first_non_finite(_float32(8))


def _tables(_forms: Collection[str]) -> None:
    """Compile the driver, and the kernels in the place of NumPy's functions where calls are written down."""
    into, x = Recording(), _float32(2, 2)
    into.mark()
    with recorded(into):
        elementary.add(x, x, x)
        elementary.copy(x, np.empty_like(x))
        elementary.fill(np.empty_like(x), 1.0)
        elementary.sum_rows(x, _float32(2))
        with contextlib.suppress(NotRecordableError):  # without the BLAS of NumPy's wheels
            elementary.dot_heads(x, x, 1, _float32(1, 2))
    table = Table(into)
    table.run()
    crew.compile_crew(table)
    magnitudes.check_finite(np.zeros((1, 2)))


def _first_values(forms: Collection[str]) -> None:
    for name in forms:
        random.fill(Initializer(name, 0.0, 1.0, -1.0, 1.0), (0, 0), 0, _float32(8))


def _sparse_linear(forms: Collection[str]) -> None:
    of = _bfloat16 if BFLOAT16_KERNELS in forms else _float32
    pattern, _ = sparse.make_pattern(np.arange(8), (4, 8))
    sparse.positions(pattern)
    x, values, written = of(2, 8), of(8), of(4, 8)
    sparse.transpose_values(pattern, values, of(8))
    sparse.expand(pattern, values, written)
    sparse.expand(pattern, _float32(8), _float32(4, 8))
    sparse.collect(pattern, _float32(4, 8), _float32(8))
    if FORWARD not in forms:
        # A panel that is a whole layer has a whole array for its outputs, any other a slice of columns: two types.
        for delta_y in (of(2, 4), of(2, 8)[:, :4]):
            # The result of a product may be float32 where operands are bfloat16.
            for to in {of, _float32}:
                sparse.sparse_linear_delta(delta_y, pattern.transposed, values, to(2, 8), True, _lend)
            sparse.sparse_linear_gradient(x, delta_y, pattern, _float32(8), _lend)
        return
    for to in {of, _float32}:
        sparse.sparse_linear_forward(x, pattern, values, None, to(2, 4), _lend)
        sparse.sparse_linear_forward(x, pattern, values, None, to(2, 8)[:, :4], _lend)


def _two_news() -> cached_attention.News:
    return cached_attention.News.of([0], [2])


def _answering(forms: Collection[str]) -> None:
    """Compile products of rows into a whole array, or into a slice of columns, which is another type; or the rest."""
    x, is_narrow = _float32(2, 8), BFLOAT16_KERNELS in forms
    if ROWS in forms or SLICES in forms:
        y = _float32(2, 4) if ROWS in forms else _float32(2, 8)[:, :4]
        weight = (_bfloat16 if is_narrow else _float32)(4, 8)
        rowwise.linear_by_turns(x, weight, None, y, np.zeros(1, np.int64), 0)
        rowwise.linear(x, weight, None, y)
    elif not is_narrow:
        one, news, cache = np.zeros(1, np.int64), _two_news(), _float32(1, 2, 4, 4)
        table = np.zeros((1, 1), np.int64)
        cached_attention.append(x, news, cache, table)
        scores, form = _float32(cached_attention.BLOCK_TOKENS, 4), Attention(2, 2, 4, 0.5)
        biases = form.biases(x.dtype, needed=False)
        cached_attention.cached_attention(
            x, news, cached_attention.Pages(cache, cache, table), form, biases, (0, 2), _float32(2, 8), scores
        )
        rowwise.take_rows(x, one, _float32(1, 8))
        loss.bend_logits(x, 2.0, None)
        spin.publish(one, 0, 1)
        spin.spin(one, 0, 1, 1)
        nothing = Table(Recording())
        nothing.run()
        crew.compile_crew(nothing)


def _skipping(forms: Collection[str]) -> None:
    x, y, tallies, one = _float32(2, 32), _float32(2, 4), np.zeros(2, np.int64), np.zeros(1, np.int64)
    weight = (_bfloat16 if BFLOAT16_KERNELS in forms else _float32)(4, 32)
    packed = skipping.pack(weight)
    assert packed is not None
    for target in (y, _float32(2, 8)[:, :4]):
        skipping.skipping_linear(x, weight, packed, None, target, tallies)
        skipping.skipping_linear_by_turns(x, weight, packed, None, target, tallies, one, 0, is_first=True)


def _choosing(_forms: Collection[str]) -> None:
    floats, integers, zeros = np.ones(1), np.ones(1, np.int64), np.zeros(2, np.int64)
    masks = -integers, np.zeros((0, 1), np.uint8)
    rows = choosing.Rows(floats, floats, floats, floats, integers, integers, zeros, integers, floats, *masks)
    tops = np.zeros((1, 1), np.int64), _float32(1, 1)
    choosing.choose_rows(_float32(1, 8), 0, 1, rows, integers.copy(), _float32(1), *tops)


def _quantized(forms: Collection[str]) -> None:
    """Compile products with quantised weights, into whole arrays and into slices of columns, and rows of tables."""
    for name in forms:
        weight, x = quantized.quantize(_float32(4, 8), name), _float32(2, 8)
        rows = quantized.lend_rows(2, weight)
        quantized.quantize_rows(x, weight.group, rows)
        for y in (_float32(2, 4), _float32(2, 8)[:, :4]):
            quantized.quantized_linear(rows, weight, None, y)
            quantized.quantized_linear_by_turns(rows, weight, None, y, np.zeros(1, np.int64), 0)
        weight.gather(np.zeros(2, np.int32), 0, 4, x)


def _of_bfloat16(_forms: Collection[str]) -> None:
    bits, wide = _bfloat16(2, 8), _float32(2, 8)
    linear.column_sum(bits, _float32(8))
    convert(wide, bits)
    convert(_float32(2, 16)[:, :8], bits)
    convert(bits, wide)
    magnitudes.first_non_finite(bits.reshape(-1))


def _products(forms: Collection[str]) -> None:
    # The trial of a provider compiles it, if it is a kernel of our own.
    choose_gemm(*(FLOAT32, FmaGemm.name) if FLOAT32 in forms else (BFLOAT16_NAME,))


def _updates(forms: Collection[str]) -> None:
    from cstool.model.optimizers import compile_updates

    for name in forms:
        compile_updates(name)


class _Sample(NamedTuple):
    """Calls of some kernels.

    Args:
        cost: CPU time that their compilation takes, about [ms]
        call: calls all of them in a form
        forms: all words of forms: of each tuple one, or none where it has a None
        is_narrow: whether there are others for bfloat16, called with that word
    """

    cost: int
    call: Callable[[Collection[str]], None]
    forms: tuple[tuple[str | None, ...], ...] = ()
    is_narrow: bool = False


_DROPS = (None, DROPOUT)
_SAMPLES: Mapping[str, _Sample] = {
    OpKind.ATTENTION: _Sample(2500, _attention, ((None, PAIRS), (None, BIASES), _DROPS), is_narrow=True),
    OpKind.LAYER_NORM: _Sample(600, _layer_norm, is_narrow=True),
    OpKind.ACTIVATION: _Sample(500, _activation, (FUNCTIONS, _DROPS), is_narrow=True),
    OpKind.SOFTMAX_LOSS: _Sample(600, _loss, ((None, BENT),), is_narrow=True),
    OpKind.POSITION_EMBEDDING: _Sample(400, _positions, (_DROPS,)),
    OpKind.EMBEDDING: _Sample(200, _embedding, is_narrow=True),
    OpKind.RESIDUAL: _Sample(250, _residual, (_DROPS,), is_narrow=True),
    MAGNITUDES: _Sample(150, _magnitudes),
    TABLES: _Sample(600, _tables),
    FIRST_VALUES: _Sample(400, _first_values, (("normal", "truncated_normal", "uniform"),)),
    UPDATE_KERNELS: _Sample(150, _updates, (("adam", "sgd", "lion", "adafactor"),)),
    ANSWERING_KERNELS: _Sample(1500, _answering, ((ROWS, SLICES, None),), is_narrow=True),
    SKIPPING_KERNELS: _Sample(3000, _skipping, is_narrow=True),
    CHOOSING_KERNELS: _Sample(5000, _choosing),
    OpKind.RMS_NORM: _Sample(500, _rms_norm, is_narrow=True),
    OpKind.ROTARY: _Sample(300, _rotary, is_narrow=True),
    OpKind.GATED_ACTIVATION: _Sample(
        800, partial(_activation, kind=OpKind.GATED_ACTIVATION, inputs=2), (GATES, _DROPS), is_narrow=True
    ),
    OpKind.SCALE: _Sample(200, _scale, (_DROPS,)),
    OpKind.GATHER: _Sample(100, _gather),
    OpKind.ROUTER: _Sample(2500, _router),
    OpKind.EXPERT_LINEAR: _Sample(200, _experts),
    OpKind.BALANCE_LOSS: _Sample(400, _balance_loss),
    OpKind.DISPATCH: _Sample(400, _dispatch, is_narrow=True),
    OpKind.COMBINE: _Sample(400, _combine, is_narrow=True),
    SPARSE_KERNELS: _Sample(2300, _sparse_linear, ((FORWARD, None),), is_narrow=True),
    BFLOAT16_KERNELS: _Sample(400, _of_bfloat16),
    QUANTIZED_KERNELS: _Sample(2000, _quantized, ((*FORMATS,),)),
    PRODUCT_KERNELS: _Sample(900, _products, ((FLOAT32, None),)),
}
"""by the first word of a need, those that most models need first"""
_UNMASKED = 3
"""inputs of attention where no token is masked"""
_SAME_KERNELS = {
    OpKind.HEAD_NORM: OpKind.RMS_NORM,
    OpKind.FIXED_POSITION_EMBEDDING: OpKind.POSITION_EMBEDDING,
    OpKind.FIRST_TOKEN: OpKind.GATHER,
    OpKind.TOKEN_LOSS: OpKind.SOFTMAX_LOSS,
}
"""kinds of op with the kernels of another kind"""


def kernels_of(graph: Graph) -> frozenset[str]:
    """Return the needs of the ops of a graph, in float32."""
    found = (_kernels_of(op, graph) for op in graph.ops)
    return frozenset(need for need in found if _first(need) in _SAMPLES)


def _kernels_of(op: Op, graph: Graph) -> str:
    kind, attributes = _SAME_KERNELS.get(op.kind, op.kind), op.attributes
    forms = [attributes["function"]] if kind in (OpKind.ACTIVATION, OpKind.GATED_ACTIVATION) else []
    if kind is OpKind.ATTENTION:
        (queries, width), (keys, _) = (graph.tensors[name].shape for name in op.inputs[:2])
        form = Attention.of(attributes, queries // texts_of(op), keys // texts_of(op))
        forms += [PAIRS] if by_pairs(form, width // form.heads) else []
        forms += [BIASES] if len(op.inputs) > _UNMASKED or form.bends else []
    if kind is OpKind.SOFTMAX_LOSS:
        bends = attributes["logits_scale"] != 1.0 or attributes["logits_softcap"] is not None
        forms += [BENT] if bends or attributes.get("label_smoothing") else []
    return " ".join([kind, *forms, *([DROPOUT] if attributes.get("dropout") else [])])


def to_answer(needs: Collection[str]) -> frozenset[str]:
    """Return what is left of the needs of a graph where it answers row by row."""
    # Tables of answers have none of the simple work for which training's have kernels.
    trains = (OpKind.ATTENTION, OpKind.SOFTMAX_LOSS, OpKind.EXPERT_LINEAR, OpKind.BALANCE_LOSS, TABLES)
    others = (need for need in needs if _first(need) not in trains)
    # Positions are added without dropout, whatever the op has.
    found = {OpKind.POSITION_EMBEDDING if _first(need) == OpKind.POSITION_EMBEDDING else need for need in others}
    if any(_first(need) == OpKind.ATTENTION and BIASES in need.split() for need in needs):
        found.add(f"{OpKind.ATTENTION} {BIASES}")
    parts = [CHOOSING_KERNELS, ANSWERING_KERNELS, f"{ANSWERING_KERNELS} {ROWS}", f"{ANSWERING_KERNELS} {SLICES}"]
    # The functions that make zeros, alone or as gates.
    if any({"relu", "squared_relu"} & {*need.split()} for need in needs):
        parts.append(SKIPPING_KERNELS)
    return frozenset([*parts, *(f"{need} {FORWARD}" for need in found)])


def in_bfloat16(needs: Collection[str]) -> frozenset[str]:
    """Return needs, and the needs of the same kernels for bfloat16."""
    found = (f"{need} {BFLOAT16_KERNELS}" for need in needs if _SAMPLES[_first(need)].is_narrow)
    return frozenset([*needs, BFLOAT16_KERNELS, *found])


def all_kernels() -> list[str]:
    """Return every need, the common forms first."""
    wide = [
        " ".join([first, *(word for word in words if word)])
        for first, sample in _SAMPLES.items()
        for words in product(*sample.forms)
    ]
    both = dict.fromkeys([*wide, *sorted(in_bfloat16(wide))])
    return sorted(both, key=lambda need: [word in need.split() for word in (BFLOAT16_KERNELS, DROPOUT, BIASES, BENT)])


def kernels_cached(needs: Collection[str]) -> bool:
    """Say whether earlier calls of `compile_kernels` have left all kernels that a run needs in the cache."""
    return not _missing(needs)


def compile_kernels(progress: Callable[[str, int, int], None], needs: Collection[str]) -> None:
    """Call every kernel once with the types of a run, so that none is compiled while lanes wait for it.

    Args:
        progress: called with (words of the next need, needs done, needs in all) before each
        needs: from `kernels_of` and others
    """
    for done, need in enumerate(_in_order(needs)):
        progress(need.replace("_", " "), done, len(needs))
        _compile(need)


def compile_from_the_end(needs: Collection[str]) -> None:
    """Compile kernels into the cache that `compile_kernels` of another process has not reached, the last need first."""
    # The other process compiles the first.
    compile_missing(reversed(_in_order(_missing(needs))[1:]))


def compile_missing(needs: Iterable[str]) -> None:
    """Compile kernels that are not in the cache when their turn comes, in the order of the needs."""
    for need in needs:
        if _missing([need]):
            _compile(need)


def _in_order(needs: Collection[str]) -> list[str]:
    """The most expensive needs first and last: two processes compile from both ends, and should end at once."""
    by_cost = sorted(needs, key=_by_cost)
    return by_cost[::2] + by_cost[1::2][::-1]


def _by_cost(need: str) -> tuple[int, str]:
    return -_SAMPLES[_first(need)].cost, need


def _first(need: str) -> str:
    return need.partition(" ")[0]


def _compile(need: str) -> None:
    first, *forms = need.split()
    _SAMPLES[first].call(forms)
    if (folder := kernel_folder().path) is not None:
        with contextlib.suppress(OSError):  # it is told where a kernel cannot be written
            _mark(folder, need).touch()


def _missing(needs: Collection[str]) -> list[str]:
    folder = kernel_folder().path
    return [need for need in needs if folder is None or not _mark(folder, need).exists()]


def _mark(folder: Path, need: str) -> Path:
    """The file that marks the kernels of a need as complete."""
    return folder / f"complete.{need.replace(' ', '.')}"
