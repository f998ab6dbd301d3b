"""Mixtures of experts in an estimate, as the compiler plans them: what streams, what is multiplied, what is frozen."""

import pytest

from cstool.compiler.compile import PASSES
from cstool.compiler.kernel_work import kernel_works
from cstool.estimation import Estimate, make_request
from cstool.estimation.point import Estimator
from cstool.estimation.variants import Variants
from cstool.ir import Graph, MatMul, OpKind
from cstool.models.statistics import count_statistics
from cstool.params import load_params
from tests.models import FAMILIES, decoder
from tests.unit.compiler.programs import a_request, compiled, small_system

EXPERTS, TOP_K = 4, 2
EXPERT = 3 * 16 * 16
"""weights of an expert of the small mixture: two gates and what comes back"""


def mixture() -> Graph:
    """Return a layer with four experts, of which a token meets two."""
    return decoder(**FAMILIES["mixtral"])


def experts_of(graph: Graph, **changes: int) -> list[tuple[MatMul, ...]]:
    """Return the products of experts in each kernel that has any."""
    program = compiled(graph, PASSES, a_request(small_system(40, 60), **changes))
    products = [
        tuple(item for item in work.work if isinstance(item, MatMul) and item.all_tokens is not None)
        for works in kernel_works(program)
        for work in works
    ]
    return [found for found in products if found]


def at(name: str, **asked: object) -> Estimate:
    """Return an estimate of a stock file, its weights streamed."""
    return Estimator(make_request(load_params(name), "cs2", execution_mode="weight_streaming", **asked)).at(1)


def test_all_experts_stream_and_a_token_meets_some():
    """8 tokens, each with 2 of 4 experts: an expert has 4 of them, and all four matrices come."""
    gates, back = experts_of(mixture())
    for (item,), matrices in ((gates, 2), (back, 1)):
        assert (item.experts, item.outputs, item.weights) == (
            EXPERTS,
            matrices * EXPERTS * 16,
            matrices * EXPERTS * 256,
        )
        assert item.all_tokens is not None
        assert item.tokens * EXPERTS == TOP_K * item.all_tokens
    flops = count_statistics(mixture()).flops[OpKind.EXPERT_LINEAR]
    assert flops.forward == 2 * 8 * TOP_K * EXPERT
    assert flops.backward == 2 * flops.forward


def test_memoryx_has_all_experts_and_no_token_is_dropped():
    """The parameters of the file count whole, whatever a token meets of them."""
    found = at("mixtral_8x7b")
    graph, need = found.artifact.graph, found.artifact.memoryx
    assert need.weights_bytes == need.gradient_bytes == 4 * graph.parameter_count
    # Of 46.7 billion weights a token meets 12.9: those of two of eight experts, and all others.
    experts = sum(s.count * w.size for s in graph.segments for w in s.weights if ".experts." in w.name)
    met = graph.parameter_count - experts * 6 // 8
    assert (round(graph.parameter_count / 1e9, 1), round(met / 1e9, 1)) == (46.7, 12.9)


@pytest.mark.parametrize("chosen", [(0,), (0, 3), (0, 1, 2, 3)])
def test_experts_can_be_frozen_some_of_them_too(chosen):
    """Their rows have no gradient; all experts have as many rows, so the others keep their share."""
    patterns = tuple(f"*.experts.{number}.?.linear*" for number in chosen)
    graph = Variants(patterns)(mixture())
    gates, back = experts_of(graph)
    left = EXPERTS - len(chosen)
    assert [(gates[0].trained, back[0].trained)] == [(2 * left * 16, left * 16)]
    assert graph.trained_count == mixture().trained_count - len(chosen) * EXPERT


def test_frozen_experts_have_no_gradient_and_pass_deltas_on():
    whole, frozen = at("moe_tiny"), at("moe_tiny", frozen="*.experts.*")
    assert frozen.step_s < whole.step_s
    experts = [kernel for _, _, kernel in frozen.artifact.streamed() if ".experts." in kernel.name]
    assert experts
    for kernel in experts:
        assert kernel.gradient_bytes == kernel.cycles.gradient.cycles == 0
        assert kernel.cycles.delta.ingress == kernel.cycles.forward.ingress > 0
