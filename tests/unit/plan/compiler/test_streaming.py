"""Weight streaming: the largest micro-batch, the account of the fullest PE, the modelled step, what does not fit."""

import math
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from cstool.model.ir import ExecutionMode, Graph, Layout, OpKind, PhaseCycles, Recompute, StreamingPlan
from cstool.model.system import System, load_system
from cstool.plan.compiler.compile import run_passes
from cstool.plan.compiler.kernel_work import kernel_works
from cstool.plan.compiler.memory import goes_in_parts, recompute_options
from cstool.plan.compiler.program import Misfit, Program
from cstool.plan.compiler.stream_costs import Choice
from cstool.plan.compiler.stream_memory import StreamMemory
from cstool.plan.compiler.stream_search import FAR, SIZES, Search
from cstool.plan.compiler.streaming import plan_streaming
from cstool.plan.timing.pe import Pe
from cstool.plan.timing.streaming import hop_latency_cycles, stream_of, streamed_phases
from tests.examples import examples
from tests.models import FAMILIES, PREFERENCES, decoder, fc_mnist, preferences
from tests.unit.plan.compiler.programs import (
    MEMORY_PASSES,
    UP_TO_STREAMING,
    a_request,
    compiled,
    every_family,
    kernel_cycles,
    small_system,
)

STREAMING = ExecutionMode.WEIGHT_STREAMING
GRAPHS = [
    decoder(layers=5),
    decoder(layers=6, **FAMILIES["llama"]),
    decoder(layers=7, **FAMILIES["bloom"]),
    fc_mnist(40, 30, 20),
]
SOME_GRAPHS = [*GRAPHS[:2], *(pytest.param(graph, marks=pytest.mark.lab) for graph in GRAPHS[2:])]


def plan_of(program: Program) -> StreamingPlan:
    assert program.streaming is not None, program.misfits
    return program.streaming


def streamed(graph: Graph, system: System, batch_size: int = 4, **request: Any) -> Program:
    return compiled(graph, UP_TO_STREAMING, a_request(system, batch_size, **request))


def with_room(system: System, data_bytes: int) -> System:
    """The system with PEs that have so many bytes beside code and stack."""
    return with_pe(system, sram_bytes=system.pe.code_bytes + system.pe.stack_bytes + data_bytes)


def with_pe(system: System, **changes: Any) -> System:
    return replace(system, pe=replace(system.pe, **changes))


def with_links(system: System, **changes: Any) -> System:
    return replace(system, links=replace(system.links, **changes))


def without_hops(system: System) -> System:
    return replace(system, swarmx=replace(system.swarmx, hop_s=0.0))


def layouts_that_fit(program: Program, size: int, recompute: Recompute, in_parts: bool = False) -> Iterator[Layout]:
    """Try every number of groups, and tokens over all rows or in whole rows of banks; add up the account of kernels.

    In parts: as few as fit.
    """
    fabric, works = program.request.system.fabric, kernel_works(program)
    room = program.request.system.pe.sram_bytes
    # A row of 8 banks is 16 bytes.
    per_row = 16 * 8 // program.request.operand_bits
    for groups in range(1, min(size, fabric.width) + 1):
        of_group = math.ceil(size / groups) * program.tokens
        memory = StreamMemory(program, works, fabric.width // groups, recompute, in_parts=in_parts)
        even = math.ceil(of_group / fabric.height)
        for tokens in (even, math.ceil(even / per_row) * per_row):
            rows = math.ceil(of_group / tokens)
            for parts in range(1, tokens + 1 if in_parts else 2):
                layout = Layout(groups, fabric.width // groups, rows, tokens, parts)
                accounts = [memory.account(need, layout) for need in memory.needs]
                if all(sum(entry.bytes for entry in account) <= room for account in accounts):
                    if parts > 1 or not in_parts:
                        yield layout
                    break


def cycles(program: Program, layout: Layout, size: int, recompute: Recompute) -> int:
    """Add up the cycles of a step, kernel by kernel, layer by layer, micro-batch by micro-batch."""
    system = program.request.system
    pe, last, total = Pe(system, program.request.operand_bits), len(program.graph.segments) - 1, 0
    for number, (segment, kernels) in enumerate(zip(program.graph.segments, kernel_works(program), strict=True)):
        for work in kernels * segment.count:
            stream = stream_of(system, program.request.operand_bits)
            parts = layout.parts if 0 < number < last else 1
            own = replace(layout, tokens_per_pe=math.ceil(layout.tokens_per_pe / parts))
            phases = streamed_phases(
                pe, work.work, own, size, stream, needs_delta=work.needs_delta, tokens=program.tokens
            )
            again = recompute.levels if 0 < number < last else 0
            passes = [*[phases.forward] * (1 + again), phases.gradient, phases.delta] * parts
            hops = hop_latency_cycles(pe, layout)
            total += sum(limits.cycles + (hops if limits.cycles else 0) for limits in passes)
    return total * math.ceil(program.request.samples_per_csx / size)


@examples(40)
@given(
    graph=st.sampled_from(GRAPHS),
    width=st.integers(1, 12),
    height=st.integers(1, 12),
    data_bytes=st.one_of(st.integers(1000, 9000), st.just(40_000)),
    batch_size=st.sampled_from([1, 5, 6, 13, 24]),
    operand_bits=st.sampled_from([16, 32]),
)
@example(graph=GRAPHS[0], width=8, height=3, data_bytes=40_000, batch_size=5, operand_bits=16)
@example(graph=GRAPHS[0], width=6, height=1, data_bytes=40_000, batch_size=5, operand_bits=16)
@example(graph=GRAPHS[0], width=2, height=1, data_bytes=1_450, batch_size=5, operand_bits=16)
@example(graph=GRAPHS[1], width=1, height=1, data_bytes=3_350, batch_size=6, operand_bits=16)
@example(graph=GRAPHS[2], width=2, height=1, data_bytes=1_400, batch_size=1, operand_bits=16)
@pytest.mark.takes("tries every layout that there is")
def test_the_choice_is_that_of_trying_everything(graph, width, height, data_bytes, batch_size, operand_bits):
    """As little recomputation as can be; of the largest micro-batches that fit then, the one that is fastest."""
    system = with_room(small_system(width, height), data_bytes)
    request = a_request(system, batch_size, operand_bits=operand_bits, recompute="needed")
    program = compiled(graph, MEMORY_PASSES, request)
    planned = plan_streaming(program)
    even = sorted({math.ceil(batch_size / count) for count in range(1, batch_size + 1)}, reverse=True)
    # Of these batches, equal micro-batches leave a gap only where the number is prime.
    sizes = even if batch_size in (5, 13) else [size for size in even if batch_size % size == 0]
    blocks = sum(segment.count for segment in graph.segments[1:-1])
    for recompute in recompute_options(blocks):
        layouts = {size: found for size in sizes if (found := list(layouts_that_fit(program, size, recompute)))}
        if tried := list(layouts)[:SIZES]:
            plan, size = plan_of(planned), planned.micro_batches[STREAMING]
            assert planned.recompute[STREAMING] == recompute
            assert plan.micro_batches == math.ceil(batch_size / size)
            assert sum(entry.bytes for entry in plan.sram) <= system.pe.sram_bytes
            assert kernel_cycles(planned) == cycles(program, plan.layout, size, recompute)
            search, works = Search(program), kernel_works(program)
            best = min(
                search.step_cycles(
                    program, Choice(layout, StreamMemory(program, works, layout.columns, recompute), size, 0.0)
                )
                for size in tried
                for layout in layouts[size]
            )
            event(f"{planned.step_cycles[STREAMING] / best:.2f} of the best as wide as can be")
            assert planned.step_cycles[STREAMING] <= best * FAR
            return
    for recompute in recompute_options(blocks)[1:]:
        if found := list(layouts_that_fit(program, 1, recompute, in_parts=True)):
            assert planned.recompute[STREAMING] == recompute
            best = min(cycles(program, layout, 1, recompute) for layout in found)
            assert kernel_cycles(planned) == cycles(program, planned.streaming.layout, 1, recompute) <= best
            event(f"in {planned.streaming.layout.parts} parts")
            return
    assert planned.streaming is None
    assert list(planned.misfits) == [STREAMING]


@pytest.mark.takes("all layouts of a model, found twice")
@pytest.mark.parametrize(
    ("graph", "width"),
    [(GRAPHS[0], 8), *(pytest.param(graph, 24, marks=pytest.mark.lab) for graph in GRAPHS[1:])],
    ids=lambda graph: getattr(graph, "name", None),
)
def test_fastest_is_never_slower(graph, width):
    """What could be had for the asking is what is had when asked for."""
    gains = 0
    for data_bytes in range(400, 4000, 600):
        system = with_room(small_system(width, 10), data_bytes)
        needed, fastest = (streamed(graph, system, 12, recompute=how) for how in ("needed", "fastest"))
        if needed.streaming is None:
            assert fastest.misfits == needed.misfits
            continue
        least, without = (program.step_cycles[STREAMING] for program in (fastest, needed))
        assert least <= without
        assert fastest.others == ()
        offered = [other.step_cycles for other in needed.others]
        if least < without:
            gains += 1
            assert offered == [least]
            size = fastest.micro_batches[STREAMING]
            why = f"with --recompute fastest: micro-batches of {size}, activations recomputed"
            assert needed.others[0].why == why
        else:
            assert offered in ([], [without])
    assert gains or graph.name == "fc_mnist"


@pytest.mark.parametrize("graph", SOME_GRAPHS, ids=lambda graph: graph.name)
@pytest.mark.parametrize("size", [(12, 18), pytest.param((60, 40), marks=pytest.mark.lab)])
def test_a_faster_machine_is_never_slower(graph, size):
    # So slow a link that both it and the datapath count, and no step waits for SwarmX.
    slow = without_hops(with_links(small_system(*size, io_bytes_per_s=2e9), hop_cycles=4, ramp_cycles=8))

    def step_s(system: System) -> float:
        return streamed(graph, system, 12).step_cycles[STREAMING] / system.clock_hz

    base = step_s(slow)
    for times in (2, 3, 50):
        assert step_s(replace(slow, io_bytes_per_s=slow.io_bytes_per_s * times)) <= base
        assert step_s(replace(slow, clock_hz=slow.clock_hz * times)) <= base
    assert step_s(replace(slow, io_bytes_per_s=slow.io_bytes_per_s * 50)) < base
    assert max(step_s(with_links(slow, hop_cycles=1)), step_s(with_links(slow, ramp_cycles=1))) < base


def test_a_matrix_of_100_000_by_100_000_fits_one_wafer_in_one_piece():
    """10^10 weights are streamed past activations, row by row of the matrix: no blocks, whatever its size."""
    cs2 = load_system("cs2")
    program = streamed(fc_mnist(100_000, 100_000), cs2, 900)
    plan = plan_of(program)
    square = plan.kernels[0][1]
    assert (square.name, square.weight_count, square.outputs) == ("fc_layers.1", 100_000**2 + 100_000, 100_000)
    # All of the micro-batch at once, the rows of the matrix once.
    assert program.micro_batches[STREAMING] == 900
    assert (plan.micro_batches, plan.layout.groups) == (1, 1)
    columns, tokens = plan.layout.columns, plan.layout.tokens_per_pe
    i = -(-100_000 // columns)
    # Links off the wafer limit it, also where each PE has 134 inputs; sums over 747 of the 750 columns end sooner.
    assert (columns, tokens, i, square.inputs_per_pe) == (747, 1, 134, 134)
    # Every row of PEs uses each weight once; two rows of the matrix, 2 bytes each, are under way.
    assert square.axpys_per_weight == plan.layout.rows == 900
    assert plan.prefetch_bytes == 2 * 100_000 * 2
    assert plan.fullest_kernel == "fc_layers.1"
    assert {entry.name: entry.bytes for entry in plan.sram} == {
        "code": cs2.pe.code_bytes,
        "stack": cs2.pe.stack_bytes,
        "weights or gradients in flight": 2 * i * 4,
        "accumulators": 2 * 4,
        "biases and norms": i * 4,
        "x": 2 * 2,
        "labels": 4,
        "mask": 2,
        **{f"fc_layers.{n}.{made}": i * 2 for n in (0, 1) for made in ("y", "activation")},
    }


def test_streamed_bytes_are_those_of_every_pass_of_every_weight():
    graph = decoder(layers=4, **FAMILIES["llama"])
    program = streamed(graph, with_room(small_system(10, 10), 350), 12)
    plan, levels = plan_of(program), program.recompute[STREAMING].levels
    assert levels > 0
    assert plan.micro_batches > 1
    passes = {"embedding_layer": 1, "transformer_decoder.layers": 2 + levels, "transformer_decoder.norm": 2}
    passes["lm_head"] = 2
    weights = [
        next(count for prefix, count in passes.items() if weight.name.startswith(prefix)) * weight.size
        for weight in graph.weights.values()
    ]
    assert plan.streamed_bytes == plan.micro_batches * 2 * sum(weights)
    # Of the table, only the rows that were asked for.
    table = graph.weights["embedding_layer.word_embeddings.weight"]
    rows = min(table.shape[0], program.micro_batches[STREAMING] * program.tokens)
    sent = graph.parameter_count - table.size + rows * table.shape[1]
    assert plan.gradient_bytes == plan.micro_batches * 4 * sent


def test_a_sample_that_is_too_large_goes_through_layers_in_parts():
    """As few as fit; all that streams past a layer does so once for each."""
    graph = decoder(layers=6, **FAMILIES["llama"])
    system = with_room(small_system(2, 1), 1_850)
    program = streamed(graph, system, 5, recompute="needed")
    plan, levels = plan_of(program), program.recompute[STREAMING].levels
    assert (plan.layout, plan.micro_batches, levels) == (Layout(1, 2, 1, 8, parts=3), 5, 2)
    assert plan.layout.part == Layout(1, 2, 1, 3)
    assert program.notes[STREAMING] == (
        "activations are recomputed in the backward pass, 2 times per layer: nothing fits otherwise",
        "a layer takes a sample in 3 parts, 3 of a PE's 8 tokens at a time: its weights come for each of them",
    )
    for kernels, segment in zip(plan.kernels, graph.segments, strict=True):
        parts = 3 if segment.count > 1 else 1
        for kernel in kernels:
            assert (kernel.parts, kernel.stream_bytes) == (parts, parts * 2 * kernel.weight_count)
    room = system.pe.sram_bytes
    assert max(kernel.sram_bytes for kernels in plan.kernels for kernel in kernels) <= room
    # With a part less it does not fit.
    memory = StreamMemory(program, kernel_works(program), 2, program.recompute[STREAMING], in_parts=True)
    fewer = replace(plan.layout, parts=2)
    assert memory.fullest(plan.layout).total_bytes(plan.layout) <= room < memory.fullest(fewer).total_bytes(fewer)


def test_whose_tokens_see_later_ones_does_not_go_in_parts():
    """An encoder's layer needs all tokens at once; so does a layer of two that differ, in one block."""
    for family, graph in every_family(layers=4).items():
        inner = graph.segments[1:-1] if family != "fc_mnist" else ()
        causal = [all(op.attributes["causal"] for op in s.ops if op.kind is OpKind.ATTENTION) for s in inner]
        attentions = [sum(op.kind is OpKind.ATTENTION for op in segment.ops) for segment in inner]
        assert [goes_in_parts(segment) for segment in inner] == [
            each and count <= 1 for each, count in zip(causal, attentions, strict=True)
        ]


@pytest.mark.parametrize("name", PREFERENCES)
def test_a_frozen_reference_is_planned_without_deltas(name):
    """Its layers, which could go in parts, have none that later tokens wait for."""
    graph = preferences(**{**PREFERENCES[name], "layers": 2})
    plan, none = plan_of(streamed(graph, small_system(8, 4))), PhaseCycles(0, 0, 0, 0, 0)
    assert plan.layout.parts == 1
    for segment, kernels in zip(graph.segments, plan.kernels, strict=True):
        if segment.weights and all(weight.frozen for weight in segment.weights):
            assert all(kernel.cycles.delta == kernel.cycles.gradient == none for kernel in kernels)


@pytest.mark.parametrize("free_bytes", [0, 3, 4, 64])
def test_sparse_kernels_have_accumulators_in_all_that_is_free(free_bytes):
    """A token to a PE: an accumulator takes 4 bytes; where weights are dense, two are enough."""
    graph = decoder()
    nonzeros = tuple(
        MappingProxyType({w.name: 20 for w in s.weights if w.name.endswith("ffn.0.linear_layer.weight")})
        for s in graph.segments
    )
    whole = small_system(40, 60)
    program = run_passes(Program(graph, a_request(whole), nonzeros), MEMORY_PASSES, None)
    works = kernel_works(program)
    needs = StreamMemory(program, works, 40, Recompute(0)).needs
    (need,) = (need for need in needs if need.work.is_sparse)
    layout = Layout(1, 40, 60, 1)
    tight = replace(program.request, system=with_pe(whole, sram_bytes=need.total_bytes(layout) + free_bytes))
    memory = StreamMemory(replace(program, request=tight), works, 40, Recompute(0))
    in_flight = {n.work.is_sparse: memory.outputs_in_flight(n.segment, n.work, layout) for n in memory.needs}
    assert in_flight == {False: 2, True: 2 + free_bytes // 4}


def test_all_groups_of_columns_use_each_weight():
    """4 samples of 8 tokens: each of two groups has 2, a token in each of 16 rows; 8 inputs need 8 columns."""
    plan = plan_of(streamed(decoder(), without_hops(small_system(40, 60))))
    assert plan.layout == Layout(groups=2, columns=8, rows=16, tokens_per_pe=1)
    uses = {"proj_q_dense_layer": 32, "self_attn": 0, "proj_output_dense_layer": 32, "linear_layer": 32}
    assert {kernel.name.rpartition(".")[2]: kernel.axpys_per_weight for kernel in plan.kernels[1]} == uses


def misfit_of(graph: Graph, *asked: Any, **request: Any) -> Misfit:
    program = streamed(graph, *asked, **request)
    assert program.streaming is None
    return program.misfits[STREAMING]


def test_a_micro_batch_that_does_not_fit_is_named_with_what_it_needs():
    system, graph = with_pe(small_system(6, 8), sram_bytes=8_000), decoder(layers=3)
    found = misfit_of(graph, system, 64, micro_batch_size=64, is_micro_batch_exact=True)
    # Closest come six groups of a column. Code, stack, 8 keys and values, their deltas and scores; 11 tokens: the
    # model's inputs; of 16 bytes each 2 inputs of layers, 5 activations and 5 deltas; 2 statistics of 8 bytes.
    assert 5120 + 1024 + 512 + 512 + 64 + 11 * (4 + 4 + 2 + (2 + 5 + 5) * 16 + 2 * 8) == 9_630
    assert str(found) == (
        "transformer_decoder.layers.{n}.self_attn (8 tokens, queries of 8, keys of 8): a micro-batch of 64 samples "
        "must fit the SRAM of small, 8,000 bytes per PE, with all that the backward pass needs, even if every layer "
        "is recomputed, got 9,630 bytes"
    )
    # As a wish, it is not granted: the largest that fits without recomputation is taken, as if nothing were asked for.
    wished, free = (streamed(graph, system, 64, micro_batch_size=n, recompute="needed") for n in (64, None))
    assert wished.micro_batches == free.micro_batches == {STREAMING: 8}
    assert wished.streaming == free.streaming


def test_a_wafer_of_one_pe_holds_what_it_can():
    one = small_system(1, 1)
    assert plan_of(streamed(fc_mnist(4, 3), one, 2)).layout == Layout(1, 1, 1, 2)
    # Code, stack, two rows of weights, a bias, two sums; the image, label and mask; two activations and a delta of
    # 4000, a delta of 3.
    assert 5120 + 1024 + 2 * 4000 * 4 + 3 * 4 + 2 * 4 + 784 * 2 + 4 + 2 + 3 * 4000 * 2 + 3 * 2 == 63_744
    assert str(misfit_of(fc_mnist(4000, 3), one, 2)) == (
        "fc_layers.1 (4,000 inputs, 3 outputs): one sample must fit the SRAM of small, 49,152 bytes per PE, "
        "with all that the backward pass needs, got 63,744 bytes"
    )


@pytest.mark.parametrize("graph", [decoder(layers=2), fc_mnist(40, 30)], ids=lambda graph: graph.name)
def test_operands_of_32_bits_take_twice_the_memory_of_activations(graph):
    narrow, wide = (
        {entry.name: entry.bytes for entry in plan_of(streamed(graph, small_system(8, 8), 1, operand_bits=bits)).sram}
        for bits in (16, 32)
    )
    assert list(narrow) == list(wide)
    activations = {name.removeprefix("delta ") for name in narrow} & {t.name for s in graph.segments for t in s.tensors}
    assert activations
    for name in narrow:
        if name.removeprefix("delta ") in activations:
            assert wide[name] == 2 * narrow[name]
        elif name.startswith("statistics") or name in ("code", "stack", "accumulators", "biases and norms"):
            assert wide[name] == narrow[name]


@pytest.mark.parametrize(
    ("num_csx", "asked", "size", "notes"),
    [
        (1, 6, 6, ()),
        (1, None, 6, ()),
        (1, 4, 4, ()),
        (4, 4, 3, ()),
        (1, 5, 4, ("micro-batches of 4: those of 5 that the file asks for are cut evenly from 12 samples",)),
        (1, 12, 6, ("micro-batches of 6: those of 12 that the file asks for do not fit",)),
    ],
)
def test_what_a_file_asks_for_is_a_wish(num_csx, asked, size, notes):
    system = with_room(small_system(3, 8), 1400)
    program = streamed(decoder(), system, 12, num_csx=num_csx, micro_batch_size=asked)
    assert (program.micro_batches[STREAMING], program.notes[STREAMING]) == (size, notes)


def test_weights_that_memoryx_cannot_hold_and_a_mode_that_is_not_asked_for():
    whole, graph = small_system(20, 20), fc_mnist(6)
    assert graph.parameter_count == 784 * 6 + 6 + 6 * 10 + 10
    enough, less = (
        replace(whole, memoryx=replace(whole.memoryx, capacity_bytes=4780 * 4 * 4 - missing)) for missing in (0, 1)
    )
    assert plan_of(streamed(graph, enough)).micro_batches == 1
    assert str(misfit_of(graph, less)) == (
        "4,780 weights with optimizer state and gradients: must fit MemoryX of small, 76,479 bytes, got 76,480 bytes"
    )
    program = compiled(decoder(), MEMORY_PASSES, a_request(execution_mode="pipelined"))
    assert plan_streaming(program) is program
