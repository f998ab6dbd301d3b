"""A step predicted for this host beside what it took."""

from typing import Any

import pytest

from cstool.models import build_graph
from cstool.params import load_params
from cstool.perf.host import HostSetup
from cstool.run.report import host_prediction, host_rates
from cstool.run.report.host_prediction import HostComparison, PhaseTimes, planned_setup
from cstool.run.report.host_rates import save_rates
from tests.end_to_end.runs import SEQUENCE, gpt_params, run_file, write_text
from tests.hosts import round_rates


def test_the_line_of_the_log():
    phases = {
        "step": PhaseTimes(0.2, 0.25),
        "forward": PhaseTimes(0.05, 0.06),
        "again": PhaseTimes(0.0, 0.0),
        "backward": PhaseTimes(0.1, 0.12),
        "rest": PhaseTimes(0.05, 0.0),
    }
    assert HostComparison(phases).line() == (
        "Time per step on this host, predicted / measured: 0.2 / 0.25 s (-20%); forward 0.05 / 0.06 s, "
        "backward 0.1 / 0.12 s, rest 0.05 / 0 s."
    )
    assert PhaseTimes(1.0, 0.0).error == 0.0
    assert HostComparison({"step": PhaseTimes(0.2, 0.25)}, "the wire left out").line() == (
        "Time per step on this host, predicted / measured: 0.2 / 0.25 s (-20%); ; the wire left out."
    )


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Keep rates where runs look for them."""
    monkeypatch.setattr(host_rates, "rates_file", lambda: tmp_path / "host.yaml")
    save_rates(round_rates())


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, {}),
        ({"init__precision": {"max_gradient_norm": None}}, {"lanes": 2}),
        ({"init__sparsity": 0.5}, {}),
        ({"init__activation_checkpointing": "always"}, {}),
        ({"init__memoryx": {"store": "file", "memory": "64MiB"}}, {}),
        ({"init__memoryx": {"store": "file", "memory": "64MiB", "commit_steps": 0}}, {}),
    ],
    ids=["plain", "no norm", "sparse", "recomputed", "file", "no commits"],
)
def test_a_run_is_set_up_as_it_was_planned(tmp_path, monkeypatch, changes, flags):
    setups: list[HostSetup] = []
    predict = host_prediction.predict_step

    def predicted(graph: Any, rates: Any, setup: HostSetup) -> Any:
        setups.append(setup)
        return predict(graph, rates, setup)

    monkeypatch.setattr(host_prediction, "predict_step", predicted)
    file = gpt_params(tmp_path / "run", write_text(tmp_path / "text", 96), **changes)
    result = run_file(file, **flags)
    params = load_params(file)
    planned = planned_setup(params, build_graph(params.model, SEQUENCE), 48)
    (setup,) = setups
    assert setup.lanes == flags.get("lanes", 1)
    names = [name for name in vars(planned) if name not in ("lanes", "densities")]
    assert {name: getattr(setup, name) for name in names} == {name: getattr(planned, name) for name in names}
    assert setup.densities == pytest.approx(planned.densities, abs=1e-3)
    assert list(result.predicted) == ["step", "forward", "again", "backward", "rest"]
    step = result.predicted["step"]
    assert step["predicted"] > 0
    assert min(result.step_seconds) <= step["measured"] <= max(result.step_seconds)
    assert result.predicted["forward"]["measured"] + result.predicted["backward"]["measured"] > 0
    assert (result.predicted["again"]["measured"] > 0) is ("init__activation_checkpointing" in changes)


@pytest.mark.usefixtures("measured")
def test_losses_are_the_same_with_and_without_and_too_few_steps_are_not_compared(tmp_path):
    data = write_text(tmp_path / "text", 96)
    known = run_file(gpt_params(tmp_path / "a", data))
    few = run_file(gpt_params(tmp_path / "b", data, init__loop={"max_steps": 2}))
    host_rates.rates_file().unlink()
    unknown = run_file(gpt_params(tmp_path / "c", data))
    assert known.losses == unknown.losses
    assert known.predicted is not None
    assert few.predicted is None
    assert unknown.predicted is None
