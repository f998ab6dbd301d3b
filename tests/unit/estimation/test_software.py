"""The release whose hosts feed the systems: which there are, what its workers read, what an estimate is then."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from cstool.errors import EstimateError
from cstool.estimation import Estimator, make_request
from cstool.estimation.software import choose_software
from cstool.ir import read_artifact, write_artifact
from cstool.perf.schedule import COORDINATOR, HOSTS, SERVERS, WORKERS
from cstool.system import HostsUnit, Release, load_system
from tests.unit.estimation.requests import estimator, gpt

RELEASE = Release(tokens_per_s=2e5, text_tokens_per_s=1e5, step_s=0.002, norm_s=0.01)
HOSTS_UNIT = HostsUnit(1, 4, 25e9, MappingProxyType({"9.1": RELEASE, "9.2": Release()}))
SYSTEM = replace(load_system("cs2"), hosts=HOSTS_UNIT)
HDF5, CSV = "GptHDF5MapDataProcessor", "BertCSVDynamicMaskDataProcessor"


def test_workers_read_tokens_from_hdf5_and_text_from_all_else():
    assert choose_software(SYSTEM, "9.1", None, HDF5).worker_tokens_per_s == 2e5
    assert choose_software(SYSTEM, "9.1", None, CSV).worker_tokens_per_s == 1e5
    assert choose_software(SYSTEM, "9.2", None, HDF5).worker_tokens_per_s is None


@pytest.mark.parametrize(("workers", "count", "servers"), [(None, 1, 1), (4, 4, 1), (5, 5, 2), (8, 8, 2)])
def test_four_workers_share_an_activation_server(workers, count, servers):
    found = choose_software(SYSTEM, "9.1", workers, HDF5)
    assert (found.workers, found.servers, found.step_s, found.norm_s) == (count, servers, 0.002, 0.01)


def test_without_a_release_hosts_take_no_time():
    assert choose_software(SYSTEM, None, None, HDF5) is None
    assert make_request(gpt(), "cs3").system.software is None


def test_a_release_that_is_not_known():
    with pytest.raises(EstimateError) as found:
        make_request(gpt(), "cs2", software="1.0")
    assert str(found.value) == (
        "--software: must be a release whose hosts are known on cs2, got 1.0\nhint: known are 2.0 on cs2; 2.6 on cs3"
    )
    with pytest.raises(EstimateError, match="must be a release whose hosts are known on cs1, got 2.6"):
        make_request(gpt(), "cs1", software="2.6")


def test_workers_without_a_release():
    with pytest.raises(EstimateError) as found:
        make_request(gpt(), "cs2", workers=3)
    assert str(found.value) == (
        "--num_workers_per_csx: must stand beside --software, which says what a worker does, got 3"
    )


@pytest.mark.parametrize("mode", ["weight_streaming", "pipelined"])
def test_a_batch_that_its_worker_delivers_slowly(mode):
    """Batches of 64 samples of 256 tokens: 16,384 tokens take a worker of 200,000 a second 82 ms, eight 10 ms."""
    request = make_request(gpt(norm=None), "cs2", execution_mode=mode)
    ideal = Estimator(request).at(1)

    def fed(workers: int | None) -> Estimator:
        software = choose_software(SYSTEM, "9.1", workers, HDF5)
        return Estimator(replace(request, system=replace(request.system, software=software)))

    one, eight = fed(None).at(1), fed(8).at(1)
    assert one.step_s == pytest.approx(0.08192)
    assert (one.bound, one.busy[WORKERS]) == (WORKERS, pytest.approx(1))
    assert ideal.step_s < eight.step_s == pytest.approx(0.01024)
    assert eight.busy[SERVERS] < 0.01 < eight.busy[COORDINATOR]
    assert set(one.busy) - set(ideal.busy) == set(HOSTS)
    # Each system has workers of its own.
    assert fed(None).at(4).step_s == pytest.approx(0.08192 / 4, rel=0.02 if mode == "pipelined" else 1e-9)


def test_a_norm_waits_for_the_coordinator_where_weights_are_streamed_alone():
    def steps(mode: str, norm: float | None) -> list[float]:
        request = make_request(gpt(norm=norm), "cs2", execution_mode=mode)
        software = replace(choose_software(SYSTEM, "9.2", None, HDF5), norm_s=0.05)
        fed = replace(request, system=replace(request.system, software=software))
        return [Estimator(asked).at(1).step_s for asked in (request, fed)]

    ideal, fed = steps("weight_streaming", 1.0)
    assert fed == pytest.approx(ideal + 0.05)
    for mode, norm in (("weight_streaming", None), ("pipelined", 1.0)):
        ideal, fed = steps(mode, norm)
        assert fed == ideal


def test_the_known_releases_slow_no_large_step_down_by_much():
    for system, release in (("cs2", "2.0"), ("cs3", "2.6")):
        asked = {"hidden_size": 4096, "filter_size": 16384, "num_hidden_layers": 32, "num_heads": 32}
        ideal = estimator(gpt(batch_size=4096, **asked), system).at(1)
        fed = estimator(gpt(batch_size=4096, **asked), system, software=release).at(1)
        assert ideal.step_s <= fed.step_s <= 1.05 * ideal.step_s


def test_an_artifact_remembers_the_release(tmp_path):
    found = estimator(gpt(), software="2.0", workers=2).at(1)
    path = Path(tmp_path / "artifact.json")
    write_artifact(found.artifact, path)
    assert read_artifact(path).system.software == found.artifact.system.software
