"""Frozen weights and adapters: counted by hand, as the compiler has them, and what must hold whatever is frozen."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.foundation.errors import ParamsError
from cstool.model.graphs.statistics import count_statistics
from cstool.model.graphs.tuning import tuned
from cstool.model.ir import Graph, MatMul, OpKind
from cstool.model.params import load_params
from cstool.model.params.sections.tuning import Adapters, Tuning, is_of_adapter, parse_adapters, parse_frozen
from cstool.plan.compiler.compile import PASSES
from cstool.plan.compiler.kernel_work import kernel_works
from cstool.plan.compiler.program import Program
from cstool.plan.estimation import Estimate, EstimateOptions, Estimator, make_request
from tests.examples import examples
from tests.models import FAMILIES, decoder, encoder_decoder, preferences, vision
from tests.unit.plan.compiler.programs import a_request, compiled, small_system
from tests.unit.plan.estimation.requests import gpt, shared


def at(*, shape: dict[str, Any] | None = None, **asked: Any) -> Estimate:
    return shared(gpt(**(shape or {})), **asked).at(1)


def with_adapters(rank: int, *layers: str) -> Tuning:
    return Tuning(adapters=(Adapters(rank, layers),))


def planned(graph: Graph) -> Program:
    return compiled(graph, PASSES, a_request(small_system(40, 60)))


LAYER = "transformer_decoder.layers.{}.self_attn."


@pytest.mark.parametrize(
    ("layers", "shapes"),
    [
        ("q", [(1024, 1024)]),
        ("q,v", [(1024, 1024), (1024, 1024)]),
        ("up,down", [(1024, 4096), (4096, 1024)]),
        ("all", [(1024, 1024)] * 4 + [(1024, 4096), (4096, 1024)]),
    ],
)
def test_adapters_have_rank_times_inputs_and_outputs(layers, shapes):
    """Four layers: r (d_in + d_out) for each matrix; nothing else is trained, has a gradient, or an optimizer state."""
    found = at(adapters=f"rank=16,layers={layers}")
    count = 4 * sum(16 * (inputs + outputs) for inputs, outputs in shapes)
    graph, need = found.artifact.graph, found.artifact.memoryx
    assert graph.trained_count == count
    assert graph.parameter_count == at().artifact.graph.parameter_count + count
    assert (need.gradient_bytes, need.optimizer_bytes) == (4 * count, 2 * 4 * count)


@pytest.mark.parametrize(("rank", "published"), [pytest.param(1, 4.7e6, marks=pytest.mark.lab), (8, 37.7e6)])
def test_adapters_of_gpt3_are_as_many_as_published(rank, published):
    """Hu et al. (2021), table 4: 4.7 and 37.7 million on query and value of GPT-3; a quarter less time per token.

    The paper measured GPUs, 32.5 and 43.1 tokens/s each (footnote 5); layers are computed again as often as before.
    """
    whole, found = (
        Estimator(make_request(load_params("gpt3_175b"), EstimateOptions("cs2", adapters=adapters))).at(1)
        for adapters in (None, f"rank={rank},layers=q,v")
    )
    assert found.artifact.graph.trained_count == pytest.approx(published, rel=0.01)
    assert 0.7 < found.step_s / whole.step_s < 0.9
    assert whole.artifact.recompute == found.artifact.recompute


def test_deltas_stop_at_the_first_adapter():
    """Of the first layer query, key and value have none to pass on; of all others they have."""
    graph = tuned(decoder(layers=3), with_adapters(2, "q"))
    assert [segment.count for segment in graph.segments[1:3]] == [1, 2]
    found = {
        segment.name_of(kernel.name): kernel.cycles
        for segment, kernels in zip(graph.segments, planned(graph).streaming.kernels, strict=True)
        for kernel in kernels
    }
    first, second = (found[f"{LAYER.format(n)}proj_q_dense_layer"] for n in (0, 1))
    assert (first.delta.ingress > 0, second.delta.ingress > 0, first.gradient.compute > 0) == (False, True, True)


def test_a_kernel_takes_the_first_half_of_an_adapter_along():
    """Query, key and value with two rows more for each A; of these alone there is a gradient."""
    adapters, query = with_adapters(2, "q", "v"), LAYER.format("{n}") + "proj_q_dense_layer"
    works = {work.kernel.name: work for works in kernel_works(planned(tuned(decoder(), adapters))) for work in works}
    for name, sizes in ((query, (8, 3 * 8 + 2 * 2, 2 * 2)), (f"{query}.lora_B", (2, 8, None))):
        (product,) = (item for item in works[name].work if isinstance(item, MatMul))
        assert (product.inputs, product.outputs, product.trained) == sizes
    # A rotary key has no adapter: it joins query, key and value, not a kernel of its own.
    program = planned(tuned(decoder(**FAMILIES["llama"]), adapters))
    kernels = {kernel.name: kernel.ops for of_segment in program.kernels for kernel in of_segment}
    rotary = LAYER.format("{n}") + "rotary_"
    assert f"{rotary}k" in kernels[query]
    assert kernels[f"{query}.lora_B"][-1] == f"{rotary}q"


def test_useful_flops_and_what_is_kept_by_hand():
    """Layers frozen: forward and delta of their products, no gradient; attention and output layer as before."""
    whole, frozen = (count_statistics(g).sample_flops for g in (decoder(), tuned(decoder(), Tuning(("*layers*",)))))
    # 8 tokens, width 8, filter 16: query, key, value, output; two of the filter.
    products = 2 * 8 * (4 * 8 * 8 + 2 * 8 * 16)
    assert (frozen.forward, frozen.backward) == (whole.forward, whole.backward - products)
    # Frozen products do not keep what they multiply.
    for graph, keeps in ((decoder(), True), (tuned(decoder(), Tuning(("*ffn*",))), False)):
        program = planned(graph)
        kept = {name for kernels in program.kernels for kernel in kernels for name in kernel.keeps}
        assert any(name.endswith("linear_layer.activation") for name in kept) is keeps


MODULES = ("*embedding*", "*norm*", "*proj_q*", "*proj_v*", "*proj_output*", "*ffn.0*", "*ffn.1*")


@examples(12)
@given(order=st.permutations(MODULES), layers=st.integers(1, 4))
def test_freezing_more_is_never_slower_and_never_needs_more(order, layers):
    found = []
    for count in range(0, len(order), 2):
        frozen = ",".join(order[:count]) or None
        found.append(at(frozen=frozen, shape={"num_hidden_layers": layers}))
    for less, more in pairwise(found):
        assert more.step_s <= less.step_s * (1 + 1e-9)
        assert more.flops <= less.flops
        assert more.artifact.memoryx.total_bytes <= less.artifact.memoryx.total_bytes


@pytest.mark.parametrize("layers", ["q", *(pytest.param(names, marks=pytest.mark.lab) for names in ("q,v", "all"))])
def test_a_larger_rank_is_never_faster(layers):
    found = [at(adapters=f"rank={rank},layers={layers}") for rank in (1, 4, 16, 64, 256)]
    for small, large in pairwise(found):
        assert large.step_s >= small.step_s * (1 - 1e-9)
        assert large.artifact.memoryx.total_bytes > small.artifact.memoryx.total_bytes


@pytest.mark.parametrize(
    ("family", "mode"),
    [
        pytest.param(family, mode, marks=[] if (n + m) % 2 and n % 5 == 0 else pytest.mark.lab)
        for n, family in enumerate(FAMILIES)
        for m, mode in enumerate(("weight_streaming", "pipelined"))
    ],
)
def test_every_family_compiles_with_adapters_and_with_frozen_layers(family, mode):
    graph = decoder(layers=3, **FAMILIES[family])
    request = a_request(small_system(100, 80), execution_mode=mode)
    variants = [with_adapters(1, "q", "v"), Tuning(("first:1",)), Tuning(("*norm*",))]
    # Stages are placed one by one: a third of them for a family.
    for variant in variants if mode == "weight_streaming" else variants[[*FAMILIES].index(family) % 3 :][:1]:
        changed = tuned(graph, variant)
        program = compiled(changed, PASSES, request)
        assert program.mode == mode
        assert set(changed.trained_weights) < set(changed.weights)


@pytest.mark.parametrize("graph", [encoder_decoder(), vision(layers=2), preferences(layers=2)])
def test_other_models_compile_with_adapters_a_frozen_reference_gets_none(graph):
    changed = tuned(graph, with_adapters(1, "*"))
    assert compiled(changed, PASSES, a_request(small_system(100, 80))).mode is not None
    assert all(map(is_of_adapter, changed.trained_weights))
    if "policy_model." in "".join(graph.weights):
        assert all(name.startswith("policy_model.") for name in changed.trained_weights)
    assert tuned(graph, Tuning()) is graph


PATTERNS, SUCH_AS = "must be patterns of weights, or first:N, got", "hint: such as --adapters rank=16,layers=q,v"
NAMES = "hint: such as first:16 for embeddings and 16 layers, or '*ffn*,*embedding*' for names of weights"
BESIDE = "must be left out beside --adapters, which freeze all weights but their own"
LINEAR = (
    "must name linear layers or tables of tokens of gpt3, got qkv\n"
    "hint: they are embedding, q, k, v, o, up, down, head; or all"
)
SIDE = f"must be at most 1,024, the smaller side of {LAYER.format(0)}proj_q_dense_layer, got 1,025"
WEIGHTS = (
    "hint: they are embedding_layer.word_embeddings.weight, embedding_layer.position_embeddings.embed.weight, "
    "transformer_decoder.layers.0.norm1.weight, ..., transformer_decoder.norm.weight, transformer_decoder.norm.bias"
)
ONCE = "must have rank and layers, once each, and at most alpha, dropout, rslora beside them, got"
DROPOUT, WHOLE = "dropout must be a number from 0 to below 1, got", "rank must be a whole number, at least 1, got"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"frozen": "first:"}, f"--frozen: {PATTERNS} first:\n{NAMES}"),
        ({"frozen": "a,,b"}, f"--frozen: {PATTERNS} a,,b\n{NAMES}"),
        ({"frozen": "*", "adapters": "rank=1,layers=q"}, f"--frozen: {BESIDE}"),
        ({"adapters": "rank=16"}, f"--adapters: {ONCE} rank=16\n{SUCH_AS}"),
        ({"adapters": "rank=16,layers=q,beta=3"}, f"--adapters: {ONCE} rank=16,layers=q,beta=3\n{SUCH_AS}"),
        ({"adapters": "rank=1,layers=q,rank=2"}, f"--adapters: {ONCE} rank=1,layers=q,rank=2\n{SUCH_AS}"),
        ({"adapters": "rank=1,layers=q,alpha=x"}, f"--adapters: alpha must be a number above 0, got x\n{SUCH_AS}"),
        ({"adapters": "rank=1,layers=q,dropout=1"}, f"--adapters: {DROPOUT} 1\n{SUCH_AS}"),
        ({"adapters": "rank=1,layers=q,rslora=2"}, f"--adapters: rslora must be true or false, got 2\n{SUCH_AS}"),
        ({"adapters": "rank=0,layers=q"}, f"--adapters: {WHOLE} 0\n{SUCH_AS}"),
        ({"adapters": "rank=big,layers=q"}, f"--adapters: {WHOLE} big\n{SUCH_AS}"),
        # What the model does not have.
        ({"frozen": "first:99"}, "--frozen: must be of at most the 4 layers of gpt3, got first:99"),
        ({"adapters": "rank=2,layers=q,qkv"}, f"--adapters: {LINEAR}"),
        ({"adapters": "rank=1025,layers=q"}, f"--adapters: rank {SIDE}"),
        ({"frozen": "*"}, "--frozen: must leave weights of gpt3 to train, got *"),
        ({"frozen": "encoder.*"}, f"--frozen: must be of weights of gpt3, got encoder.*\n{WEIGHTS}"),
    ],
)
def test_what_is_not_written_as_it_should_be_or_the_model_does_not_have(asked, message):
    with pytest.raises(ParamsError) as raised:
        at(**asked)
    assert str(raised.value) == message
    assert parse_frozen("first:2,*ffn*") == ("first:2", "*ffn*")
    assert parse_adapters("layers=q,*ffn*,rank=4") == Adapters(4, ("q", "*ffn*"))


@pytest.mark.parametrize("sparsity", [0.5, 0.9])
def test_of_sparse_weights_the_frozen_ones_have_no_gradient_and_adapters_are_dense(sparsity):
    """All gradients are those of the adapters, r (d_in + d_out) of each matrix, whatever else is zero."""
    shape = {"sparsity": sparsity}
    found = at(shape=shape, adapters="rank=16,layers=q,v").artifact
    count = 4 * 2 * 16 * (1024 + 1024)
    streamed = sum(segment.count * kernel.gradient_bytes for segment, _, kernel in found.streamed())
    assert found.memoryx.gradient_bytes == streamed == 4 * count
    frozen, whole = (at(shape=shape, frozen=names).artifact.memoryx for names in ("*layers*", None))
    assert 0 < frozen.gradient_bytes < whole.gradient_bytes
    assert frozen.weights_bytes == whole.weights_bytes


# Mixtures of experts in an estimate, as the compiler plans them: what streams, what is multiplied, what is frozen.
MIXTURE = decoder(**FAMILIES["mixtral"])
"""a layer with four experts, of which a token meets two"""
EXPERTS, TOP_K = 4, 2
EXPERT = 3 * 16 * 16
"""weights of an expert: two gates and what comes back"""


def experts_of(graph: Graph) -> list[MatMul]:
    """Return the products of experts."""
    items = [item for works in kernel_works(planned(graph)) for work in works for item in work.work]
    return [item for item in items if isinstance(item, MatMul) and item.all_tokens is not None]


def stock_at(name: str, **asked: object) -> Estimate:
    options = EstimateOptions("cs2", execution_mode="weight_streaming", **asked)
    return Estimator(make_request(load_params(name), options)).at(1)


def test_all_experts_stream_and_a_token_meets_some():
    """8 tokens, each with 2 of 4 experts: an expert has 4 of them, and all four matrices come."""
    for item, matrices in zip(experts_of(MIXTURE), (2, 1), strict=True):
        sizes = matrices * EXPERTS * 16, matrices * EXPERTS * 256
        assert (item.experts, item.outputs, item.weights) == (EXPERTS, *sizes)
        assert item.tokens * EXPERTS == TOP_K * item.all_tokens
    flops = count_statistics(MIXTURE).flops[OpKind.EXPERT_LINEAR]
    assert (flops.forward, flops.backward) == (2 * 8 * TOP_K * EXPERT, 4 * 8 * TOP_K * EXPERT)


def test_memoryx_has_all_experts_and_no_token_is_dropped():
    """The parameters of the file count whole, whatever a token meets of them."""
    found = stock_at("mixtral_8x7b")
    graph, need = found.artifact.graph, found.artifact.memoryx
    assert need.weights_bytes == need.gradient_bytes == 4 * graph.parameter_count
    # Of 46.7 billion weights a token meets 12.9: those of two of eight experts, and all others.
    experts = sum(s.count * w.size for s in graph.segments for w in s.weights if ".experts." in w.name)
    met = graph.parameter_count - experts * 6 // 8
    assert (round(graph.parameter_count / 1e9, 1), round(met / 1e9, 1)) == (46.7, 12.9)


@pytest.mark.parametrize("chosen", [(0,), (0, 3), (0, 1, 2, 3)])
def test_experts_can_be_frozen_some_of_them_too(chosen):
    """Their rows have no gradient; all experts have as many rows, so the others keep their share."""
    graph, left = tuned(MIXTURE, Tuning(tuple(f"*.experts.{n}.?.linear*" for n in chosen))), EXPERTS - len(chosen)
    assert [item.trained for item in experts_of(graph)] == [2 * left * 16, left * 16]
    assert graph.trained_count == MIXTURE.trained_count - len(chosen) * EXPERT


def test_frozen_experts_have_no_gradient_and_pass_deltas_on():
    whole, frozen = stock_at("moe_tiny"), stock_at("moe_tiny", frozen="*.experts.*")
    assert frozen.step_s < whole.step_s
    experts = [kernel for _, _, kernel in frozen.artifact.streamed() if ".experts." in kernel.name]
    assert experts
    for kernel in experts:
        assert kernel.gradient_bytes == kernel.cycles.gradient.cycles == 0
        assert kernel.cycles.delta.ingress == kernel.cycles.forward.ingress > 0
