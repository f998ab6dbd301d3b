"""Frozen weights and adapters: counted by hand, as the compiler has them, and what must hold whatever is frozen."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cstool.compiler.compile import PASSES
from cstool.compiler.kernel_work import kernel_works
from cstool.errors import EstimateError
from cstool.estimation import Estimate, Estimator, make_request
from cstool.estimation.adapters import Adapters, parse_adapters, with_adapters
from cstool.estimation.variants import Variants, make_variants, parse_frozen, with_frozen
from cstool.ir import Graph, MatMul, PhaseCycles, verify
from cstool.models.statistics import count_statistics
from cstool.params import load_params
from tests.examples import examples
from tests.models import FAMILIES, decoder, encoder_decoder, preferences, vision
from tests.unit.compiler.programs import a_request, compiled, small_system
from tests.unit.estimation.requests import estimator, gpt

NOTHING = PhaseCycles(0, 0, 0, 0, 0)


def at(**asked: Any) -> Estimate:
    """Return an estimate of a small GPT."""
    return estimator(gpt(**asked.pop("shape", {})), **asked).at(1)


def kernels_of(graph: Graph, **changes: Any) -> dict[str, Any]:
    """Return the kernels of a graph as planned for weight streaming: name of the first repetition -> kernel."""
    program = compiled(graph, PASSES, a_request(small_system(40, 60), **changes))
    assert program.streaming is not None
    return {
        segment.name_of(kernel.name): kernel
        for segment, kernels in zip(graph.segments, program.streaming.kernels, strict=True)
        for kernel in kernels
    }


# Counted by hand


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


@pytest.mark.parametrize(("rank", "published"), [(1, 4.7e6), (8, 37.7e6)])
def test_adapters_of_gpt3_are_as_many_as_published(rank, published):
    """Hu et al. (2021), table 4: 4.7 and 37.7 million on query and value of GPT-3; a quarter less time per token.

    The paper measured GPUs, 32.5 and 43.1 tokens/s each (footnote 5); layers are computed again as often as before.
    """
    whole, found = (
        Estimator(make_request(load_params("gpt3_175b"), "cs2", adapters=adapters)).at(1)
        for adapters in (None, f"rank={rank},layers=q,v")
    )
    assert found.artifact.graph.trained_count == pytest.approx(published, rel=0.01)
    assert 0.7 < found.step_s / whole.step_s < 0.9
    assert whole.artifact.recompute == found.artifact.recompute


def test_frozen_layers_have_no_gradient_and_no_update():
    """All layers frozen, the tables trained: their gradients leave, and no others."""
    found = at(frozen="*layers*")
    for segment, kernel, streamed in found.artifact.streamed():
        if segment.count > 1:
            assert streamed.gradient_bytes == 0
            assert streamed.cycles.gradient == NOTHING
            assert streamed.cycles.delta.cycles > 0
        assert (streamed.gradient_bytes > 0) == any(".layers." not in name for name in kernel.weights)
    trained = found.artifact.graph.trained_weights
    assert found.artifact.memoryx.gradient_bytes == 4 * sum(weight.size for weight in trained.values())


def test_what_lies_before_the_first_trained_layer_runs_forward_alone():
    """Two of four layers frozen, and the embeddings: no delta reaches them, and the first trained layer passes none."""
    untied = {"share_embedding_weights": False}
    found = at(frozen="first:2", shape=untied)
    graph = found.artifact.graph
    assert [segment.count for segment in graph.segments] == [1, 2, 1, 1, 1]
    backward = {}
    for segment, kernel, streamed in found.artifact.streamed():
        cycles = streamed.cycles
        backward[segment.name_of(kernel.name)] = (cycles.delta.ingress > 0, cycles.gradient.egress > 0)
    layer = "transformer_decoder.layers.{}.{}"
    assert backward[layer.format(0, "self_attn.proj_q_dense_layer")] == (False, False)
    assert backward[layer.format(2, "self_attn.proj_q_dense_layer")] == (True, True)
    assert backward["embedding_layer.word_embeddings"] == (False, False)
    # Its first norm is trained, so the product wants a delta, which goes no further.
    first = next(s for s in graph.segments if s.first == 2)
    assert first.name_of("residual.{n}") in graph.frozen_tensors


def test_deltas_stop_at_the_first_adapter():
    """Of the first layer query, key and value have none to pass on; of all others they have."""
    graph = with_adapters(decoder(layers=3), Adapters(2, ("q",)))
    first, rest = (Variants(adapters=Adapters(2, ("q",)))(decoder(layers=3)).segments[n] for n in (1, 2))
    assert (first.count, rest.count) == (1, 2)
    kernels = kernels_of(Variants(adapters=Adapters(2, ("q",)))(decoder(layers=3)))
    query = "transformer_decoder.layers.{}.self_attn.proj_q_dense_layer"
    assert kernels[query.format(0)].cycles.delta.ingress == 0
    assert kernels[query.format(1)].cycles.delta.ingress > 0
    assert kernels[query.format(0)].cycles.gradient.compute > 0
    verify(graph, runs=False)


def test_a_kernel_takes_the_first_half_of_an_adapter_along():
    """Query, key and value with two rows more for each A; of these alone there is a gradient."""
    graph = Variants(adapters=Adapters(2, ("q", "v")))(decoder())
    program = compiled(graph, PASSES, a_request(small_system(40, 60)))
    works = {work.kernel.name: work for works in kernel_works(program) for work in works}
    layer = "transformer_decoder.layers.{n}.self_attn"
    (product,) = (item for item in works[f"{layer}.proj_q_dense_layer"].work if isinstance(item, MatMul))
    assert (product.inputs, product.outputs, product.trained) == (8, 3 * 8 + 2 * 2, 2 * 2)
    (product,) = (item for item in works[f"{layer}.proj_q_dense_layer.lora_B"].work if isinstance(item, MatMul))
    assert (product.inputs, product.outputs, product.trained) == (2, 8, None)


def test_rotary_positions_stay_with_the_product_they_turn():
    """A rotary key has no adapter: it joins query, key and value, not a kernel of its own."""
    graph = Variants(adapters=Adapters(2, ("q", "v")))(decoder(**FAMILIES["llama"]))
    program = compiled(graph, PASSES, a_request(small_system(40, 60)))
    (kernels,) = (k for segment, k in zip(graph.segments, program.kernels, strict=True) if len(segment.ops) > 8)
    layer = "transformer_decoder.layers.{n}.self_attn"
    (first,) = (kernel for kernel in kernels if kernel.name == f"{layer}.proj_q_dense_layer")
    assert f"{layer}.rotary_k" in first.ops
    (up,) = (kernel for kernel in kernels if kernel.name == f"{layer}.proj_q_dense_layer.lora_B")
    assert up.ops[-1] == f"{layer}.rotary_q"


def test_useful_flops_by_hand():
    """Layers frozen: forward and delta of their products, no gradient; attention and output layer as before."""
    whole, frozen = (count_statistics(g).sample_flops for g in (decoder(), with_frozen(decoder(), ("*layers*",))))
    # 8 tokens, width 8, filter 16: query, key, value, output; two of the filter.
    products = 2 * 8 * (4 * 8 * 8 + 2 * 8 * 16)
    assert frozen.forward == whole.forward
    assert frozen.backward == whole.backward - products


def test_frozen_products_do_not_keep_what_they_multiply():
    graph = with_frozen(decoder(), ("*ffn*",))
    program = compiled(graph, PASSES, a_request(small_system(40, 60)))
    kept = {name for kernels in program.kernels for kernel in kernels for name in kernel.keeps}
    assert not any(name.endswith("linear_layer.activation") for name in kept)
    whole = compiled(decoder(), PASSES, a_request(small_system(40, 60)))
    assert any(name.endswith("linear_layer.activation") for k in whole.kernels for each in k for name in each.keeps)


# What must hold


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


@pytest.mark.parametrize("layers", ["q", "q,v", "all"])
def test_a_larger_rank_is_never_faster(layers):
    found = [at(adapters=f"rank={rank},layers={layers}") for rank in (1, 4, 16, 64, 256)]
    for small, large in pairwise(found):
        assert large.step_s >= small.step_s * (1 - 1e-9)
        assert large.artifact.memoryx.total_bytes > small.artifact.memoryx.total_bytes


def test_the_more_layers_are_frozen_the_faster():
    steps = [at(frozen=f"first:{count}" if count else None).step_s for count in range(5)]
    assert all(more < less for less, more in pairwise(steps))


@pytest.mark.parametrize("mode", ["weight_streaming", "pipelined"])
@pytest.mark.parametrize("family", [*FAMILIES])
def test_every_family_compiles_with_adapters_and_with_frozen_layers(family, mode):
    graph = decoder(layers=3, **FAMILIES[family])
    request = a_request(small_system(100, 80), execution_mode=mode)
    for variant in (Variants(adapters=Adapters(1, ("q", "v"))), Variants(("first:1",)), Variants(("*norm*",))):
        changed = variant(graph)
        verify(changed, runs=False)
        program = compiled(changed, PASSES, request)
        assert program.mode == mode
        assert set(changed.trained_weights) < set(changed.weights)


@pytest.mark.parametrize("graph", [encoder_decoder(), vision(layers=2), preferences(layers=2)])
def test_other_models_compile_with_adapters(graph):
    changed = Variants(adapters=Adapters(1, ("q",)))(graph)
    assert compiled(changed, PASSES, a_request(small_system(100, 80))).mode is not None
    assert all(name.endswith((".lora_A", ".lora_B")) for name in changed.trained_weights)


def test_a_reference_that_is_frozen_gets_no_adapters():
    changed = with_adapters(preferences(layers=1), Adapters(1, ("q",)))
    assert all(name.startswith("policy_model.") for name in changed.trained_weights)


def test_without_variants_the_graph_is_the_same():
    graph = decoder(layers=3)
    assert Variants()(graph) is graph


@pytest.mark.parametrize("choice", ["none", "all"])
def test_all_layers_are_computed_again_or_none(choice):
    found = at(recompute=choice)
    assert found.artifact.recompute.levels == (choice == "all")
    passes = {kernel.cycles.recomputes for segment, _, kernel in found.artifact.streamed() if segment.count > 1}
    assert passes == {int(choice == "all")}


def test_the_fastest_choice_is_the_fastest():
    params = gpt(batch_size=2048)
    steps = {
        choice: Estimator(estimator(params, recompute=choice).request).at(1).step_s
        for choice in ("none", "all", "needed", "fastest")
    }
    assert steps["fastest"] == min(steps.values())


# Bad input


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"frozen": "first:"},
            "--frozen: must be patterns of weights, or first:N, got first:\nhint: such as first:16 for embeddings and "
            "16 layers, or '*ffn*,*embedding*' for names of weights",
        ),
        (
            {"frozen": "a,,b"},
            "--frozen: must be patterns of weights, or first:N, got a,,b\nhint: such as first:16 for embeddings and 16 "
            "layers, or '*ffn*,*embedding*' for names of weights",
        ),
        (
            {"frozen": "*", "adapters": "rank=1,layers=q"},
            "--frozen: must be left out beside --adapters, which freeze all weights but their own",
        ),
        (
            {"adapters": "rank=16"},
            "--adapters: must have rank and layers, once each, got rank=16\n"
            "hint: such as --adapters rank=16,layers=q,v",
        ),
        (
            {"adapters": "rank=16,layers=q,alpha=3"},
            "--adapters: must have rank and layers, once each, got rank=16,layers=q,alpha=3\n"
            "hint: such as --adapters rank=16,layers=q,v",
        ),
        (
            {"adapters": "rank=0,layers=q"},
            "--adapters: rank must be a whole number, at least 1, got 0\nhint: such as --adapters rank=16,layers=q,v",
        ),
        (
            {"adapters": "rank=big,layers=q"},
            "--adapters: rank must be a whole number, at least 1, got big\nhint: such as --adapters rank=16,layers=q,v",
        ),
    ],
)
def test_what_is_not_written_as_it_should_be(asked, message):
    with pytest.raises(EstimateError) as raised:
        make_variants(asked.get("frozen"), asked.get("adapters"))
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"frozen": "first:99"},
            "--frozen: must be of at most the 4 layers of gpt3, got first:99",
        ),
        (
            {"adapters": "rank=2,layers=q,qkv"},
            "--adapters: layers must be linear layers of gpt3, got qkv\nhint: they are q, k, v, o, up, down; or all",
        ),
        (
            {"adapters": "rank=1025,layers=q"},
            "--adapters: rank must be at most 1,024, the smaller side of "
            "transformer_decoder.layers.0.self_attn.proj_q_dense_layer, got 1,025",
        ),
        ({"frozen": "*"}, "--frozen: must leave weights of gpt3 to train, got *"),
        (
            {"frozen": "encoder.*"},
            "--frozen: must be of weights of gpt3, got encoder.*\n"
            "hint: they are embedding_layer.word_embeddings.weight, "
            "embedding_layer.position_embeddings.embed.weight, transformer_decoder.layers.0.norm1.weight, ..., "
            "transformer_decoder.norm.weight, transformer_decoder.norm.bias",
        ),
    ],
)
def test_what_the_model_does_not_have(asked, message):
    with pytest.raises(EstimateError) as raised:
        at(**asked)
    assert str(raised.value) == message


def test_what_is_written_is_read():
    assert parse_frozen("first:2,*ffn*") == ("first:2", "*ffn*")
    assert parse_adapters("layers=q,*ffn*,rank=4") == Adapters(4, ("q", "*ffn*"))
    assert make_variants(None, None) is None


# Sparse


@pytest.mark.parametrize("sparsity", [0.5, 0.9])
def test_of_sparse_weights_the_frozen_ones_have_no_gradient_and_adapters_are_dense(sparsity):
    """All gradients are those of the adapters, r (d_in + d_out) of each matrix, whatever else is zero."""
    found = estimator(gpt(sparsity=sparsity), adapters="rank=16,layers=q,v").at(1)
    count = 4 * 2 * 16 * (1024 + 1024)
    assert found.artifact.memoryx.gradient_bytes == 4 * count
    streamed = [(segment.count, kernel) for segment, _, kernel in found.artifact.streamed()]
    assert sum(times * kernel.gradient_bytes for times, kernel in streamed) == 4 * count
    frozen = estimator(gpt(sparsity=sparsity), frozen="*layers*").at(1).artifact.memoryx
    whole = estimator(gpt(sparsity=sparsity)).at(1).artifact.memoryx
    assert 0 < frozen.gradient_bytes < whole.gradient_bytes
    assert frozen.weights_bytes == whole.weights_bytes
