"""Steps after which masks change: dense gradients beside kernels that are dense, means by hand, lines and documents."""

from dataclasses import replace
from functools import cache

import pytest
import yaml

from cstool.model.ir import Layout, MatMul
from cstool.model.system import load_system
from cstool.plan.commands.estimate_document import updates_document
from cstool.plan.commands.estimate_facts import update_facts
from cstool.plan.compiler.mask_updates import with_dense_gradients
from cstool.plan.estimation.mask_updates import MaskUpdates, mask_updates
from cstool.plan.estimation.point import Estimator
from cstool.plan.estimation.request import EstimateOptions, make_request
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.streaming import stream_of, streamed_phases
from tests.unit.plan.estimation.requests import gpt


@cache
def estimated(sparsity: str, execution_mode: str = "weight_streaming") -> tuple:
    shape = {"hidden_size": 256, "num_hidden_layers": 2, "num_heads": 4, "filter_size": 1024}
    params = gpt(64, yaml.safe_load(sparsity), None, max_steps=1000, max_position_embeddings=128, **shape)
    request = make_request(params, EstimateOptions("cs2", execution_mode=execution_mode))
    return request, Estimator(request).at(1)


RIGL = "{algorithm: rigl, sparsity: 0.75, update: {freq: 100}}"


def test_the_gradients_of_such_a_step_are_those_of_dense_kernels_and_all_else_is_as_sparse_as_ever():
    request, found = estimated(RIGL)
    artifact = found.artifact
    names = {name for name in artifact.graph.weights if name.endswith("weight") and "layers" in name}
    grown = with_dense_gradients(request.params, artifact.system, artifact, names)
    pe, stream = Pe(artifact.system, 16), stream_of(artifact.system, 16)
    more = 0
    for (segment, _, before), (_, _, after) in zip(artifact.streamed(), grown.streamed(), strict=True):
        assert replace(after, cycles=before.cycles, gradient_bytes=before.gradient_bytes) == before
        assert replace(after.cycles, gradient=before.cycles.gradient) == before.cycles
        more += segment.count * (after.gradient_bytes - before.gradient_bytes)
        if before.name.endswith("ffn.1.linear_layer"):
            # 1,024 inputs, 256 outputs, a quarter of them not zero, and a bias.
            assert before.gradient_bytes == 4 * (1024 * 256 // 4 + 256)
            assert after.gradient_bytes == 4 * (1024 * 256 + 256)
            dense = MatMul(tokens=128, inputs=1024, outputs=256)
            layout, samples = artifact.streaming.layout, artifact.micro_batch_size
            expected = streamed_phases(pe, [dense], layout, samples, stream).gradient
            assert after.cycles.gradient.compute == expected.compute_cycles
            assert after.cycles.gradient.link == expected.link
    # 2 layers of 12 x 256 x 256 weights, three quarters of them zero.
    assert more == 4 * 2 * 12 * 256 * 256 * 3 // 4
    micro_batches = artifact.streaming.micro_batches
    assert grown.streaming.gradient_bytes == artifact.streaming.gradient_bytes + micro_batches * more
    assert grown.streaming.streamed_bytes == artifact.streaming.streamed_bytes


def test_rigl_takes_longer_where_masks_change_and_the_mean_step_is_between():
    request, found = estimated(RIGL)
    (updates,) = mask_updates(request, found)
    assert (updates.every, updates.count, updates.steps) == (100, 10, 1000)
    assert updates.update_step_s > updates.step_s == found.step_s
    assert updates.mean_step_s == pytest.approx(0.99 * updates.step_s + 0.01 * updates.update_step_s)
    # No longer than a step that is dense throughout.
    _, dense = estimated("0.0")
    assert updates.update_step_s < dense.step_s


def test_nothing_is_computed_for_gmp_and_set_or_said_of_masks_that_stay_and_every_step_may_be_an_update():
    for sparsity in (
        "{algorithm: set, sparsity: 0.75, update: {freq: 50, stop: 501}}",
        "{algorithm: gmp, sparsity: {type: linear, init: 0.5, slope: 0.0001}, update: {freq: 50, stop: 501}}",
    ):
        request, found = estimated(sparsity)
        (updates,) = mask_updates(request, found)
        assert (updates.count, updates.update_step_s, updates.mean_step_s) == (10, found.step_s, found.step_s)
    assert mask_updates(*estimated("0.75")) == ()
    assert mask_updates(*estimated(RIGL, "pipelined")) == ()
    (updates,) = mask_updates(*estimated("{algorithm: rigl, sparsity: 0.75, update: {freq: 1}}"))
    assert (updates.count, updates.mean_step_s) == (1000, updates.update_step_s)


def test_two_groups_have_a_line_each_and_only_their_own_gradients():
    groups = (
        "[{algorithm: rigl, sparsity: 0.75, param_filter: '*ffn*', update: {freq: 100}},"
        " {algorithm: rigl, sparsity: 0.75, param_filter: '*self_attn*', update: {steps: [0, 10, 20]}}]"
    )
    request, found = estimated(groups)
    ffn, attention = mask_updates(request, found)
    (both,) = mask_updates(*estimated(RIGL))
    assert found.step_s < attention.update_step_s < ffn.update_step_s < both.update_step_s
    assert (attention.every, attention.count) == (None, 2)
    names = [name for name, _ in update_facts((ffn, attention))]
    assert names == ["mask updates 0", "mask updates 1"]


def test_experts_that_are_not_alike_share_the_gradients_of_zeros():
    """4 experts of 12 x 8, a quarter not zero: of 384 gradients each has 96, whatever its tokens."""
    uneven = {"experts": 4, "busiest": 2.5, "trained": 48, "trained_nonzeros": 384}
    even, system = MatMul(2, 8, 48, nonzeros=96, all_tokens=8, **uneven), load_system("cs2")
    found = streamed_phases(Pe(system, 16), [even], Layout(1, 2, 3, 4), 2, stream_of(system, 16))
    assert found.gradient.link == 4 * 12 * 4


def test_what_is_printed():
    rigl = MaskUpdates(0, "rigl", every=100, count=10, steps=1000, update_step_s=3.0, step_s=2.0)
    listed = MaskUpdates(0, "set", every=None, count=2, steps=1000, update_step_s=2.0, step_s=2.0)
    said = "such a step makes all gradients and takes 3 s; the mean step is 2.01 s, 0.5% longer"
    assert list(update_facts([rigl])) == [("mask updates", f"rigl, every 100 steps: {said}")]
    alone = "by weights alone, which MemoryX has: such a step takes as long"
    assert list(update_facts([listed])) == [("mask updates", f"set, 2 times: {alone}")]
    assert list(update_facts([replace(rigl, every=1)]))[0][1].startswith("rigl, every step: ")
    told = {"group": 0, "algorithm": "rigl", "every_steps": 100, "updates": 10, "of_steps": 1000}
    seconds = {"update_step_s": 3.0, "step_s": 2.0, "mean_step_s": 2.01}
    assert updates_document([rigl]) == [told | seconds | {"needs_all_gradients": True}]
    assert list(update_facts([])) == updates_document([]) == []
