"""Calibration, with models and files small enough for a test: that every number comes from something."""

import pytest

from cstool.foundation.errors import EstimateError
from cstool.model.graphs import build_graph, declared_form
from cstool.model.ir import OP_RULES
from cstool.training.host import calibrate as module
from cstool.training.host.calibrate import calibrate
from cstool.training.host.step import KINDS, PASSES, SPARSE
from cstool.training.machine.grains import available_cores
from tests.contract.refusal import refusal

PROBES = module.PROBES
SMALL = (
    module._Probe("gpt2", 32, 8, 2, 16, 32, dropout=0.1),
    module._Probe("llama", 32, 8, 2, 16, 32),
    module._Probe("fc_mnist", 16, 8),
    module._Probe("gpt2", 64, 8, 2, 16, 32, sparsity=0.5),
)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    small = {"PROBES": SMALL, "PROBE_S": 0.0, "STEPS": 3, "UPDATE_WEIGHTS": 2048, "DISK_BYTES": 1 << 20}
    for name, value in (small | {"BLOCK_BYTES": 1 << 18}).items():
        monkeypatch.setattr(module, name, value)


def test_every_kind_of_op_has_a_cost_and_every_rate_is_more_than_nothing(tmp_path):
    told: list[tuple[str, int, int]] = []
    found = calibrate(tmp_path, lambda *about: told.append(about))
    assert set(found.costs) == {f"{kind} {direction}" for kind in KINDS for direction in PASSES}
    assert all(number >= 0 for cost in found.costs.values() for number in cost.row)
    assert all(any(cost.row) for cost in found.costs.values())
    assert found.cores == available_cores()
    assert list(found.update_s) == ["SGD", "SGD with momentum", "Adam", "Lion", "Adafactor"]
    assert min(found.update_s.values()) > 0
    assert min(found.cached_bytes_per_s, found.read_bytes_per_s, found.write_bytes_per_s) > 0
    assert min(found.step_s, found.stage_s, found.uneven) >= 0
    assert [done for _, done, _ in told] == list(range(6))
    assert {total for _, _, total in told} == {6}
    # It leaves nothing on the disk.
    assert list(tmp_path.iterdir()) == []


def test_the_models_that_a_user_waits_for_have_every_kind_of_op():
    kinds = set()
    for probe in PROBES:
        params = module._params(probe)
        graph = build_graph(params.model, declared_form(params))
        kinds |= {str(op.kind.value) for op in graph.ops} | ({SPARSE} if probe.sparsity else set())
    alike = {kind.value for kind, rules in OP_RULES.items() if rules.measured_as is not None}
    assert kinds | alike == set(KINDS)


def test_a_folder_that_is_none(tmp_path):
    folder = tmp_path / "none"
    with refusal(EstimateError, f"{folder}: must be a folder that can be written, got: No such file or directory"):
        module._measure_disk(folder)
