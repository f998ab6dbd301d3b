"""The pictures of `cstool estimate`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cstool.foundation.folders import cache_root
from cstool.model.params import load_all_params
from cstool.plan.estimation import EstimateOptions, Estimator, make_request, scale, sweep_sparsity
from cstool.plan.estimation.picture import estimate_picture as picture_of

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("folder")
TINY, MNIST = (str(ROOT / "params" / f"{name}.yaml") for name in ("gpt_tiny", "fc_mnist"))


def estimator(path: str, *overrides: str, **asked: object) -> Estimator:
    params = load_all_params(Path(path), overrides=overrides, flags={})[0]
    return Estimator(make_request(params, EstimateOptions("cs2", **asked)))


LONG = [pytest.param(TINY, more, marks=pytest.mark.lab) for more in ("--num_csx 1,2", "--sparsity 0,0.9")]


@pytest.mark.parametrize(("path", "more"), [*LONG, (MNIST, "--num_csx 1,2"), (MNIST, "--json")])
def test_whatever_is_asked_for_is_drawn_beside_the_report(cstool, path, more):
    asked = ("estimate", "-p", path, *more.split())
    assert cstool(*asked, "--plot", "a.svg", "--plot", "b.PNG").said == cstool(*asked).said
    assert Path("a.svg").stat().st_size > 10_000
    assert Path("b.PNG").read_bytes().startswith(b"\x89PNG")


def test_matplotlib_waits_until_there_is_a_picture():
    """Nor does it talk where HOME cannot be written."""
    code = (
        "import sys; from cstool.cli import main; sys.argv = ['cstool', 'estimate', *sys.argv[1:]]; main(); "
        "print('matplotlib' in sys.modules, file=sys.stderr)"
    )
    for more, is_there in ((["--csv", "a.csv"], "False\n"), (["--plot", "a.svg"], "True\n")):
        environment = {**os.environ, "HOME": os.devnull, "CSTOOL_CACHE_DIR": str(cache_root())}
        for name in ("MPLCONFIGDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            environment.pop(name, None)
        command = [sys.executable, "-c", code, "-p", MNIST, *more]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stderr == is_there


def test_what_a_picture_over_systems_shows():
    base = estimator(TINY, execution_mode="weight_streaming")
    found, rows = base.at(1), scale(base, [1, 2, 5, 8])
    shown = picture_of(found, rows, [])
    assert shown.title == f"gpt2, {found.artifact.graph.parameter_count:,} parameters, on 1 to 8 x cs2 (modelled)"
    assert shown.subtitle == (
        "Batches of 24 samples of 128 tokens; weight streaming in 1 micro-batch of 24 samples (on 1 system). "
        "Everything is modelled; nothing is measured. No estimate for --num_csx 5."
    )
    assert shown.scaling is not None
    assert [point.num_csx for point in shown.scaling.points] == [1, 2, 8]
    assert [point.per_s for point in shown.scaling.points] == [rows[n].estimate.tokens_per_s for n in (0, 1, 3)]
    assert [point.efficiency for point in shown.scaling.points] == [rows[n].efficiency for n in (0, 1, 3)]
    assert (shown.scaling.unit, shown.scaling.heading) == (
        "tokens/s",
        "Throughput over systems, a batch of 24 shared out (modelled)",
    )
    assert [each.label for each in shown.busy] == ["1 system", "8 systems"]
    assert {name: work / found.step_s for name, work in shown.busy[0].work_s.items()} == found.busy
    assert shown.sparsities == ()
    assert shown.roofline.peak_flops == found.peak_flops
    assert shown.roofline.loads[-1].flops_per_s == pytest.approx(found.flops_per_s)
    assert sum(row.cycles for row in shown.breakdown.rows) == shown.breakdown.whole
    assert shown.breakdown.heading.startswith("The kernels of a step on one system, each by itself: ")


def test_what_a_picture_over_sparsities_shows():
    shares = (0.5, 0.9)
    asked = {"batch_per_csx": 24, "execution_mode": "weight_streaming"}
    estimators = {share: estimator(TINY, f"trainer.init.sparsity={share}", **asked) for share in shares}
    rows, sparse = scale(estimators[0.5], [2, 4]), sweep_sparsity(estimators, 2)
    shown = picture_of(estimators[0.5].at(2), rows, sparse)
    assert [(point.sparsity, point.speedup) for point in shown.sparsities] == [(0.5, 1.0), (0.9, sparse[1].speedup)]
    assert shown.sparsities[1].products == pytest.approx(sparse[1].speedup / sparse[1].efficiency)
    assert shown.sparsities_heading == "Speedup with sparsity on 2 systems (modelled)"
    assert shown.scaling.heading == "Throughput over systems at sparsity 0.5, 24 samples each (modelled)"
    assert shown.subtitle.startswith("Batches of 24 samples of 128 tokens for each system; weight streaming ")
    assert shown.roofline.heading == "Roofline of one of 2 systems at sparsity 0.5: its products by phase (modelled)"
    shown = picture_of(estimators[0.5].at(2), [], sparse)
    assert (shown.scaling, [each.label for each in shown.busy]) == (None, ["sparsity 0.5", "sparsity 0.9"])


def test_what_a_pipelined_picture_shows():
    found = estimator(MNIST, execution_mode="pipelined").at(1)
    shown = picture_of(found, [], [])
    assert [load.phase for load in shown.roofline.loads] == ["step"]
    assert shown.roofline.heading == "Roofline of one system: the whole step; weights stay on the wafer (modelled)"
    assert shown.subtitle == "Batches of 120 samples; pipelined. Everything is modelled; nothing is measured."
    assert [row.label for row in shown.breakdown.rows] == ["fc_layers.0", "fc_layers.1", "last_layer"]
    assert max(row.cycles for row in shown.breakdown.rows) == shown.breakdown.whole
    assert shown.breakdown.heading.startswith("The stages of one system, all at the same time; the slowest: ")
