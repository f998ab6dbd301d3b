"""The picture of an estimate: what it says, where, and the same bytes each time."""

import time
from dataclasses import replace

import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.text import Annotation

from cstool.foundation.drawing.figure import write_figure
from cstool.foundation.drawing.plot import log_ticks
from cstool.model.ir import KernelCycles, PhaseCycles, PipelinedPlan, Region, Stage
from cstool.plan.pictures.estimate import estimate_figure
from cstool.plan.pictures.roofline import Roofline, names_text
from cstool.plan.pictures.step import stage_rows
from cstool.plan.timing.roofline import Load, kernel_loads, step_load
from tests.unit.plan.compiler.programs import stock
from tests.unit.plan.pictures.drawn import draw, drawn, said
from tests.unit.plan.pictures.estimates import PICTURES, SCALING, WITH_SPARSITIES, loads, picture, roofline
from tests.unit.plan.pictures.test_every_picture import LONG


def words_of(shown):
    return [text.get_text() for text, _ in draw(lambda: estimate_figure(shown))[1]]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.lab] * (n in LONG)) for n in PICTURES])
def test_labels_cover_no_markers_and_all_panels_say_that_they_are_modelled(name):
    figure, boxes = drawn("estimate", name)
    axes = next(axes for axes in figure.axes if "wafer's edge" in axes.get_xlabel())
    groups = [group for group in axes.collections if isinstance(group, PathCollection)]
    markers = [axes.transData.transform(offset) for group in groups for offset in group.get_offsets()]
    assert markers
    labels = [(text, box) for text, box in boxes if isinstance(text, Annotation) and text.axes is axes]
    covered = [
        text.get_text()
        for text, box in labels
        for x, y in markers
        if text.get_rotation() == 0 and box.x0 <= x <= box.x1 and box.y0 <= y <= box.y1
    ]
    assert covered == []
    panels = 3 + (PICTURES[name].scaling is not None) + bool(PICTURES[name].sparsities)
    assert sum("(modelled)" in text.get_text() for text, _ in boxes) == panels + 1
    assert sum("modelled" in axes.get_xlabel() + axes.get_ylabel() for axes in figure.findobj(Axes)) == panels


def test_what_is_on_it():
    texts = said("estimate", "both")
    assert set(texts) >= {
        "gpt3, 1,315,723,264 parameters, on 1 x cs2 (modelled)",
        "Batches of 512 samples of 2,048 tokens",
        "peak 5.07 PFLOP/s; dashed: x 0.757, what PEs are taken to sustain",
        "links: 150 GB/s each way",
        "useful FLOPs per byte over the wafer's edge, modelled [FLOP/B]",
        "modelled PFLOP/s",
        "on-wafer only",
        *("forward", "input gradient (dX)", "weight gradient (dW)", "the whole step"),
        *("tokens/s, modelled", "systems (num_csx)", "100.0%", "95.0%", "69.8%"),
        *("speedup over sparsity 0, modelled", "sparsity of the linear layers (share of zeros)", "1.50x", "2.90x"),
        "sparse products alone: 1 / (1 - sparsity)",
        *("1 system: a step takes 2 s", "SwarmX broadcast", "67.5%  1.35 s", "0%"),
        "share of the step in which it works, modelled [%]",
        *("The kernels of a step (modelled)", "kernel 5", "modelled cycles [%]", "limited by links off the wafer"),
    }
    # Each phase of each kernel is named.
    for phase in ("forward", "dX", "dW"):
        labels = " ".join(text for text in texts if text.startswith(f"{phase}: "))
        assert all(name in labels for name in ("lm_head", "qkv", "out", "ffn.0", "ffn.1")), labels
    assert not any("dW: " in text and "attention" in text for text in texts)
    # Panels that nobody asked for are left out; large numbers are told in millions.
    unasked = said("estimate", "one number of systems")
    assert not any("ideal" in text or "speedup" in text or "num_csx" in text for text in unasked)
    alone = said("estimate", "a step alone")
    assert ("the whole step" in alone, {"on-wafer only", "input gradient (dX)"} & set(alone)) == (True, set())
    assert "million tokens/s, modelled" in said("estimate", "slow")
    assert "100.0%" in said("estimate", "one point")


def test_points_are_where_the_data_are():
    figure, _ = drawn("estimate", "scaling")
    axes = next(axes for axes in figure.axes if axes.get_xlabel() == "systems (num_csx)")
    ideal, modelled = axes.get_lines()[:2]
    assert list(modelled.get_xdata()) == [point.num_csx for point in SCALING.points]
    assert list(modelled.get_ydata()) == [point.per_s for point in SCALING.points]
    assert list(ideal.get_ydata()) == [900.0 * point.num_csx for point in SCALING.points]
    axes = next(axes for axes in figure.axes if "wafer's edge" in axes.get_xlabel())
    found = sorted(tuple(map(float, offset)) for group in axes.collections for offset in group.get_offsets())
    right = axes.get_xlim()[1]
    given = [(load.flops_per_byte or right, load.flops_per_s) for load in loads()]
    assert len(found) == len(given)
    assert sorted(y for _, y in found) == pytest.approx(sorted(y for _, y in given))
    assert [x for x, _ in found[: len(given) - 2]] == pytest.approx(sorted(x for x, _ in given)[: len(given) - 2])
    roof = axes.get_lines()[0]
    assert list(roof.get_xdata())[1] == pytest.approx(5.07e15 / 150e9)
    assert list(roof.get_ydata())[1:] == [5.07e15, 5.07e15]


def test_sparsities_beside_one_that_is_not_dense():
    texts = words_of(picture(**{**WITH_SPARSITIES, "sparsities": WITH_SPARSITIES["sparsities"][1:]}))
    assert {"sparse products alone: 0.5 / (1 - sparsity)", "speedup over sparsity 0.5, modelled"} <= set(texts)


@pytest.mark.lab
def test_every_number_moves_it(tmp_path):
    path = tmp_path / "a.svg"
    one = picture(scaling=SCALING, **WITH_SPARSITIES)
    points = SCALING.points
    zeros = WITH_SPARSITIES["sparsities"]
    changes = (
        {},
        {"roofline": roofline(1.1)},
        {"roofline": roofline(efficiency=0.8)},
        {"roofline": roofline(io_bytes_per_s=140e9)},
        {"busy": (replace(one.busy[0], step_s=2.2),)},
        {"busy": (one.busy[0], one.busy[0])},
        {"scaling": replace(SCALING, points=(*points[:-1], replace(points[-1], efficiency=0.5)))},
        {"scaling": replace(SCALING, points=(*points[:-1], replace(points[-1], per_s=5e4)))},
        {"sparsities": (*zeros[:2], replace(zeros[2], speedup=3.1))},
        {"sparsities": (*zeros[:2], replace(zeros[2], products=4.1))},
        {"breakdown": replace(one.breakdown, whole=1000)},
    )
    seen = set()
    for change in changes:
        write_figure(lambda change=change: estimate_figure(replace(one, **change)), path)
        seen.add(path.read_bytes())
    assert len(seen) == len(changes)


@pytest.mark.lab
def test_a_thousand_kernels_are_drawn_in_seconds(tmp_path):
    many = tuple(
        Load(f"layers.{n}.linear", phase, 10**15, 10**9 * (1 + n), 0.2 + 0.1 * (n * 7 % 1000), 1)
        for n in range(1000)
        for phase in ("forward", "delta", "gradient")
    )
    start = time.process_time()  # whatever else the machine does
    shown = picture(roofline=roofline(loads=(*many, loads()[-1])), scaling=SCALING)
    write_figure(lambda: estimate_figure(shown), tmp_path / "a.svg")
    assert time.process_time() - start < 30
    assert len((tmp_path / "a.svg").read_bytes()) < 5e6


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["L* qkv"], "L* qkv"),
        (["L* qkv", "L* out", "lm_head"], "lm_head, L* qkv, out"),
        (["L1 qkv", "L2 qkv"], "L1 qkv, L2 qkv"),
        (["a", "a"], "a"),
        ([f"L* k{n}" for n in range(9)], "L* k0, k1, k2, k3 + 5 more"),
    ],
)
def test_names_in_a_row(names, text):
    assert names_text(names) == text


def test_round_ticks():
    assert log_ticks(0.9, 25) == [1, 2, 5, 10, 20]
    assert log_ticks(1, 1e5) == [1, 10, 100, 1000, 10_000, 100_000]
    assert log_ticks(3e-9, 3e12)[:2] == [1e-7, 1e-4] or len(log_ticks(3e-9, 3e12)) < 12
    assert len(log_ticks(5.0, 7.0)) == 1


def test_every_group_of_a_roofline_has_a_label():
    """Of GPT-3 XL: labels that find no room near their points go farther away, or are shorter."""
    artifact = stock("gpt3_xl", execution_mode="weight_streaming", micro_batch_size=72)
    system, loads = artifact.system, (*kernel_loads(artifact), step_load(artifact))
    shown = Roofline(system.io_bytes_per_s, system.peak_flops(16), system.pe.efficiency, loads, "Roofline")
    phases = [text.partition(":")[0] for text in words_of(picture(roofline=shown)) if ": " in text]
    assert {load.phase for load in kernel_loads(artifact)} == {"forward", "delta", "gradient"}
    assert {"forward", "dX", "dW"} <= set(phases)


def test_stages_that_are_alike_are_one_row():
    def stage(name: str, total: int) -> Stage:
        none = PhaseCycles(0, 0, 0, 0, 0)
        cycles = KernelCycles(PhaseCycles(total, 0, 0, 0, 0), PhaseCycles(0, 5, 0, 0, 0), none)
        return Stage(name, "matmul", Region(0, 0, 1, 1), "inputs over rows", cycles, False, 1, False, ())

    names = [f"transformer_decoder.layers.{n}.self_attn" for n in range(3)]
    plan = PipelinedPlan((1, 1), 1, 1, (*map(stage, names, (7, 9, 8)), stage("lm_head", 4)), (), {}, 1, 0, 0)
    rows = stage_rows(plan)
    assert [(row.label, row.cycles) for row in rows] == [("L* attention, slowest of 3", 14), ("lm_head", 9)]
    assert list(rows[0].parts) == ["forward", "delta"]
    assert rows[0].parts["delta"].bound == "link"
    many = replace(plan, stages=tuple(stage(f"op{n}", n) for n in range(100)))
    rows = stage_rows(many)
    assert (len(rows), rows[-1].label, rows[-1].cycles) == (40, "slowest of 61 others", 65)
