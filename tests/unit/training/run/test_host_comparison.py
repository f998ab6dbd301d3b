"""A step predicted for this host beside what it took."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.foundation.errors import EstimateError
from cstool.foundation.progress import Silent
from cstool.model.graphs import SampleForm, build_graph
from cstool.model.ir import Graph
from cstool.model.optimizers import make_optimizer
from cstool.model.params import load_params
from cstool.training.host import rates as host_rates
from cstool.training.host.planned import planned_ranks, planned_setup
from cstool.training.host.ranks import Link, predict_ranks
from cstool.training.host.rates import load_rates, save_rates
from cstool.training.host.step import HostSetup
from cstool.training.machine import appliance, grains
from cstool.training.machine.lanes import PHASES
from cstool.training.machine.layout import lay_out
from cstool.training.machine.ranks.orders import RankUse, Wire
from cstool.training.run.report import host_comparison as host_prediction
from cstool.training.run.report.host_comparison import HostComparison, PhaseTimes, compare, ranks_setup_of, setup_of
from cstool.training.run.session import RunOrder, Session
from tests.contract.refusal import refusal
from tests.end_to_end.runs import SEQUENCE, gpt_params, run_file, write_text
from tests.end_to_end.test_dpr import _in_waves, case_file
from tests.hosts import round_rates
from tests.reference.dpr_case import CONTEXT, CONTEXTS, QUESTION
from tests.unit.training.machine.machines import USUAL, make_appliance


def test_the_line_of_the_log():
    seconds = {"step": (0.2, 0.25), "forward": (0.05, 0.06), "again": (0.0, 0.0), "backward": (0.1, 0.12)}
    phases = {name: PhaseTimes(*times) for name, times in (seconds | {"rest": (0.05, 0.0)}).items()}
    line = (
        "Time per step on this host, predicted / measured: 0.2 / 0.25 s (-20%); forward 0.05 / 0.06 s, "
        "backward 0.1 / 0.12 s, rest 0.05 / 0 s"
    )
    assert HostComparison(phases).line() == f"{line}."
    assert HostComparison(phases, "the wire left out").line() == f"{line}; the wire left out."
    assert PhaseTimes(1.0, 0.0).error == 0.0


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    path = tmp_path / "cache" / "host.yaml"
    monkeypatch.setattr(host_rates, "rates_file", lambda: path)
    return path


@pytest.fixture
def measured(file) -> None:
    save_rates(round_rates())


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "data", 96)


@pytest.fixture
def setups(monkeypatch) -> list[HostSetup]:
    """What predictions of steps are asked for."""
    found: list[HostSetup] = []
    predict = host_prediction.predict_step

    def predicted(graph: Any, rates: Any, setup: HostSetup) -> Any:
        found.append(setup)
        return predict(graph, rates, setup)

    monkeypatch.setattr(host_prediction, "predict_step", predicted)
    return found


IN_FILE = {"store": "file", "memory": "64MiB"}


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, {}),
        ({"init__precision": {"max_gradient_norm": None}, "init__sparsity": 0.5}, {"lanes": 2}),
        ({"init__precision": {"loss_scaling_factor": "dynamic"}, "init__memoryx": IN_FILE}, {}),
        ({"init__activation_checkpointing": "always", "init__memoryx": {**IN_FILE, "commit_steps": 0}}, {}),
    ],
    ids=["plain", "no norm, sparse", "dynamic loss scale, file", "recomputed, no commits"],
)
def test_a_run_is_set_up_as_it_was_planned(tmp_path, data, setups, changes, flags):
    file = gpt_params(tmp_path / "run", data, **changes)
    result = run_file(file, **flags)
    params = load_params(file)
    planned = planned_setup(params, build_graph(params.model, SEQUENCE), 48)
    (setup,) = setups
    assert setup == replace(planned, lanes=flags.get("lanes", 1), densities=setup.densities)
    assert setup.densities == pytest.approx(planned.densities, abs=1e-3)
    assert list(result.predicted) == ["step", "forward", "again", "backward", "rest"]
    step = result.predicted["step"]
    assert step["predicted"] > 0
    assert min(result.step_seconds) <= step["measured"] <= max(result.step_seconds)
    assert result.predicted["forward"]["measured"] + result.predicted["backward"]["measured"] > 0
    assert (result.predicted["again"]["measured"] > 0) is ("init__activation_checkpointing" in changes)
    if not changes:
        # Losses are the same without, and too few steps are not compared.
        few = run_file(gpt_params(tmp_path / "few", data, init__loop={"max_steps": 2}))
        host_rates.rates_file().unlink()
        unknown = run_file(gpt_params(tmp_path / "unknown", data))
        assert result.losses == unknown.losses
        assert few.predicted is unknown.predicted is None


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("waves", [1, 4])
def test_a_run_with_a_barrier_is_set_up_with_its_waves(tmp_path, monkeypatch, setups, waves):
    if waves > 1:
        monkeypatch.setattr(appliance, "lay_out", partial(_in_waves, appliance.lay_out))
    result = run_file(case_file(tmp_path, "cls", loop={"max_steps": 4}))
    [setup] = setups
    assert (result.waves, setup.waves, setup.grains, setup.met_grains) == (waves, waves, 4, None)
    # One grain at a time on one lane: four go forward, and all but the last once more.
    once = host_prediction.predict_step(build_dpr(tmp_path), round_rates(), replace(setup, waves=1)).forward_s
    assert result.predicted["forward"]["predicted"] == pytest.approx(once * (1 if waves == 1 else 7 / 4))
    assert result.predicted["again"] == {"predicted": 0.0, "measured": 0.0}


def build_dpr(folder: Path) -> Graph:
    model = load_params(folder / "params.yaml").model
    return build_graph(model, SampleForm(QUESTION, contexts=CONTEXTS, context_tokens=CONTEXT))


def test_of_several_ranks_samples_meet_at_the_first(tmp_path):
    params = load_params(case_file(tmp_path, "cls", num_csx=4))
    found = planned_ranks(params, build_dpr(tmp_path), 8, 3, round_rates(), LINK)
    assert [(own.grains, own.met_grains) for own in found.setups] == [(1, 4), (1, 0), (2, 0)]
    assert (found.traffic.waves, found.traffic.meets, found.traffic.passes) == (1, True, (1, 1))


@pytest.fixture
def four_cores(monkeypatch) -> None:
    monkeypatch.setattr(grains, "available_cores", lambda: 4)


SYSTEMS: dict[str, Any] = {"init__backend__cluster_config__num_csx": 3, "init__precision": {}}
LINK = Link(1e6, 1e-3)


@pytest.mark.usefixtures("four_cores")
def test_ranks_on_one_host_share_its_cores_and_those_on_their_own_have_all_of_them(tmp_path):
    """Three systems with 4 of 12 grains each: two of them are those of rank 1."""
    model = {"init__model__hidden_size": 512, "init__model__filter_size": 2048}
    params = load_params(gpt_params(tmp_path / "run", tmp_path, **SYSTEMS, **model))
    graph, rates = build_graph(params.model, SEQUENCE), round_rates()
    here, apart = (planned_ranks(params, graph, 48, 2, rates, link) for link in (None, LINK))
    assert [(own.grains, own.lanes, own.lanes_beside) for own in here.setups] == [(4, 2, 2), (8, 2, 2)]
    assert [(own.grains, own.lanes, own.lanes_beside) for own in apart.setups] == [(4, 4, 0), (8, 4, 0)]
    assert here.link == Link(rates.cached_bytes_per_s, both_ways=False)
    assert (apart.link, apart.message_s, apart.traffic) == (LINK, here.message_s, here.traffic)


@pytest.mark.parametrize(
    ("hosts", "measured", "link", "said"),
    [
        (("a", "a"), None, Link(8e9, both_ways=False), "between ranks copies in memory at 8 GB/s"),
        (("a", "b"), Wire(1e6, 1e-3), LINK, "between hosts a wire at 0.001 GB/s"),
    ],
)
@pytest.mark.usefixtures("four_cores")
def test_a_run_on_several_ranks_is_compared_with_what_rank_0_sees(tmp_path, hosts, measured, link, said):
    """The machine is one that was prepared for two ranks, and never ran."""
    params = load_params(gpt_params(tmp_path / "run", tmp_path, **SYSTEMS))
    graph = build_graph(params.model, SEQUENCE)
    optimizer = make_optimizer(params.trained_by, None)
    layout = lay_out(graph, grain=4, grains=12, num_csx=3, trains=True, memory_bytes=[2**40] * 2, recompute="never")
    with make_appliance(graph, **{**USUAL, "optimizer": optimizer, "num_csx": 3, "lanes": 1}) as appliance:
        cluster = appliance.prepare(48, trains=True)
        cluster.layout = layout
        appliance.others.used = [RankUse(rank, host) for rank, host in enumerate(hosts)]
        session = Session(params, RunOrder("train", lanes=1), graph, appliance, Silent())
        session.training.step_seconds, session.training.wire = [1.0] * 4, measured
        session.training.phase_seconds.extend(dict.fromkeys(PHASES, seconds) for seconds in (0.0, 0.25, 0.5))
        ranks = ranks_setup_of(session, round_rates(), setup_of(session))
        found = compare(session, round_rates())
    assert (ranks.link, [own.grains for own in ranks.setups]) == (link, [4, 8])
    assert [own.lanes_beside for own in ranks.setups] == ([0, 0] if measured else [1, 1])
    # The machine has its MemoryX at rank 0.
    alone = load_params(gpt_params(tmp_path / "alone", tmp_path, **SYSTEMS, init__memoryx={"nodes": 1}))
    planned = planned_ranks(alone, graph, 48, 2, round_rates(), LINK)
    assert ranks.traffic == planned.traffic
    expected = predict_ranks(graph, round_rates(), ranks)
    assert found is not None
    assert found.wire == said
    assert found.phases["step"] == PhaseTimes(expected.step_s, 1.0)
    assert found.phases["forward"] == PhaseTimes(expected.ranks[0].forward_s, 0.25)
    assert found.phases["rest"].predicted == expected.of(0).rest_s > expected.ranks[1].forward_s / 2
    assert expected.slowest == 1


# What was measured of this host: kept, read, and left alone where it makes no sense.


def test_rates_come_back_as_they_were_and_people_can_read_them_those_of_another_machine_do_not(file):
    assert load_rates() is None
    assert save_rates(round_rates()) == file
    assert load_rates() == round_rates()
    assert file.read_text().startswith("# This host as a system, measured by `cstool estimate --system host`.")
    for other in (replace(round_rates(), cpu="another"), replace(round_rates(), cores=999)):
        save_rates(other)
        assert load_rates() is None


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: "not: [yaml",
        lambda d: "",
        lambda d: yaml.safe_dump([1, 2]),
        lambda d: yaml.safe_dump(without(d, "costs")),
        lambda d: yaml.safe_dump(without(d, "step_s")),
        lambda d: yaml.safe_dump(d | {"step_s": -1.0}),
        lambda d: yaml.safe_dump(d | {"read_bytes_per_s": 0}),
        lambda d: yaml.safe_dump(d | {"costs": without(d["costs"], "rotary forward")}),
        lambda d: yaml.safe_dump(d | {"costs": d["costs"] | {"linear forward": {"call_s": 1.0}}}),
        lambda d: yaml.safe_dump(d | {"update_s": {"Adam": 1.0}}),
        lambda d: yaml.safe_dump(d | {"update_s": d["update_s"] | {"Lion": "fast"}}),
        lambda d: yaml.safe_dump(d | {"extra": 1}),
    ],
)
def test_a_file_that_makes_no_sense_counts_as_none(file, damage):
    save_rates(round_rates())
    file.write_text(damage(yaml.safe_load(file.read_text())))
    assert load_rates() is None


def test_a_folder_that_cannot_be_written(file):
    file.parent.write_text("a file where a folder should be")
    with refusal(EstimateError, f"{file}: cannot be written: File exists", "CSTOOL_CACHE_DIR names another folder"):
        save_rates(round_rates())
