"""What is asked for, and what is wrong with it."""

from dataclasses import replace
from types import MappingProxyType
from typing import get_args

import pytest

from cstool.foundation.errors import CstoolError, EstimateError
from cstool.model.ir import read_artifact, write_artifact
from cstool.model.params import Params
from cstool.model.params.sections.vision_loaders import DigitsParams, PhotosParams
from cstool.model.system import HostsUnit, Release, load_system
from cstool.plan.estimation import EstimateOptions, Estimator, make_request
from cstool.plan.estimation.limits import parse_counts, parse_shares
from cstool.plan.estimation.request import parse_tokens
from cstool.plan.estimation.software import OF_IMAGES, choose_software
from cstool.plan.timing.resources import COORDINATOR, HOSTS, SERVERS, WORKERS
from cstool.training.host.rank_flags import parse_link
from cstool.training.host.ranks import Link
from tests.unit.plan.estimation.requests import estimator, gpt


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("1", (1,)),
        ("1,2,4..192", (1, 2, 4, 8, 16, 32, 64, 128, 192)),
        ("3..3", (3,)),
        ("8,2,2..8", (2, 4, 8)),
        (" 1 , 5..11", (1, 5, 10, 11)),
    ],
)
def test_counts(text, counts):
    assert parse_counts("--num_csx", text, "systems") == counts


TYPED = {
    "--num_csx: must be numbers of systems, got {}\nhint: such as 4, or 1,2,4..192, where .. doubles": (
        lambda text: parse_counts("--num_csx", text, "systems"),
        ("0", "a", "1,,2", "-4", "1.5", "1..2..3", "0..4", ""),
    ),
    "--sparsity: must be shares of zeros from 0 to below 1, got {}\nhint: such as 0,0.5,0.9": (
        parse_shares,
        ("-0.1", "1", "x", "nan"),
    ),
    "--tokens: must be a number, such as 300B, got {}": (parse_tokens, ("B", "many", "inf", "nan", "1e400")),
    "--tokens: must be more than zero, such as 300B, got {}": (parse_tokens, ("0", "-3B")),
}


@pytest.mark.parametrize(("message", "parse", "texts"), [(message, *typed) for message, typed in TYPED.items()])
def test_what_is_none(message, parse, texts):
    for text in texts:
        with pytest.raises(CstoolError) as found:
            parse(text)
        assert str(found.value) == message.format(text)


def test_shares_of_zeros_and_tokens():
    assert parse_shares("0.5,0,.9,0.5") == (0.0, 0.5, 0.9)
    with pytest.raises(CstoolError, match="got 1.5"):
        parse_shares("0.5,1.5")
    assert [parse_tokens(text) for text in ("300B", "1.5T", "20_000", "7k")] == [3e11, 1.5e12, 20_000, 7_000]


MOE = {"num_experts": 8, "top_k": 2}
RELEASE_ON = "must be a release whose hosts are known on"


@pytest.mark.parametrize(
    ("num_csx", "asked", "rule", "hint"),
    [
        (193, {}, "--num_csx: must be at most 192, the systems of a cluster of cs2, got 193",
         "--system cs3 has clusters of that size"),
        (2049, {"system": "cs3"},
         "--num_csx: must be at most 2,048, the systems of a cluster of cs3, got 2,049", None),
        (7, {}, "--num_csx: must divide batch_size (64), got 7",
         "4 and 8 are the nearest; --batch_per_csx gives each system a batch of its own"),
        # 51.7 million weights are 16 bytes each: the weight, its gradient, and two numbers of Adam's.
        (1, {"memoryx": "0.5GB"},
         "gpt.yaml: MemoryX of cs2 must hold 827 MB: weights, optimizer state and gradients; got 500 MB",
         "the smallest unit that holds it is 1.5 TB, of cs2: --system cs2 --memoryx 1.5TB"),
        (1, {"system": "cs9"}, "cs9: is not a known system",
         "did you mean cs3? known are cs1, cs2, cs3, and paths of YAML files"),
        (1, {"memoryx": "lots"}, "--memoryx: must be a number, such as 12TB, got lots", None),
        (1, {"system": "cs1", "memoryx": "12TB"}, "--memoryx: must be left out: cs1 has no MemoryX",
         "cs2 and cs3 have it"),
        *((1, {"system": system, "software": asked}, f"--software: {RELEASE_ON} {system}, got {asked}",
           "known are 2.0 on cs2; 2.6 on cs3") for system, asked in (("cs2", "1.0"), ("cs1", "2.6"))),
        (1, {"num_workers_per_csx": 3},
         "--num_workers_per_csx: must stand beside --software, which says what a worker does, got 3", None),
        (1, {"expert_imbalance": 2.0},
         "--expert_imbalance: must be left out: gpt3 of gpt.yaml has no mixture of experts", None),
        *((1, {"moe": MOE, "expert_imbalance": uneven},
           "--expert_imbalance: must be from 1 to 4, where one of 8 experts has all tokens, each of which meets 2"
           f"; got {uneven:g}", None) for uneven in (0.5, 4.1, float("nan"))),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused(num_csx, asked, rule, hint):
    model = {"moe": asked["moe"]} if "moe" in asked else {}
    with pytest.raises(CstoolError) as found:
        estimator(gpt(**model), **{name: value for name, value in asked.items() if name != "moe"}).at(num_csx)
    assert str(found.value) == (rule if hint is None else f"{rule}\nhint: {hint}")


@pytest.mark.parametrize("mode", ["weight_streaming", "pipelined"])
def test_uneven_experts_take_longer_for_the_same_products(mode):
    params = gpt(moe=MOE, hidden_size=256, filter_size=256, num_hidden_layers=1)
    found = [estimator(params, execution_mode=mode, expert_imbalance=each).at(1) for each in (1, 2, 4)]
    assert found[0].step_s == estimator(params, execution_mode=mode).at(1).step_s
    # Tokens of a PE are whole numbers, which a step in between may gain by.
    assert found[0].step_s < found[-1].step_s
    assert found[1].step_s < found[-1].step_s
    assert len({each.flops for each in found}) == 1


def test_a_batch_of_its_own_for_each_system_is_never_shared_out():
    found = estimator(gpt(), batch_per_csx=5).at(7)
    assert (found.samples_per_csx, found.batch_size) == (5, 35)


# What is asked for of several ranks: links as they are typed. What cannot be shared out is refused by the command.
@pytest.mark.parametrize(
    ("text", "bytes_per_s", "latency_s"),
    [
        *(("10Gb/s", 1.25e9, 0.0), ("1Gbit/s", 1.25e8, 0.0), ("12.5GB/s", 1.25e10, 0.0), ("8 b/s", 1.0, 0.0)),
        *(("7B/s", 7.0, 0.0), ("100mb/s", 1.25e7, 0.0), ("1kB/s", 1e3, 0.0), (" 1Tb/s ", 1.25e11, 0.0)),
        *(("1Gb/s,5ms", 1.25e8, 5e-3), ("1Gb/s, 0.5 s", 1.25e8, 0.5), ("200Gb/s,2us", 2.5e10, 2e-6)),
        ("1Gb/s,0ms", 1.25e8, 0.0),
    ],
)
def test_bits_and_bytes(text, bytes_per_s, latency_s):
    assert parse_link(text) == Link(pytest.approx(bytes_per_s), pytest.approx(latency_s), both_ways=True)


@pytest.mark.parametrize(
    "text",
    [
        "", "fast", "10", "10G", "10Gb", "10GB", "Gb/s", "0Gb/s", "-1Gb/s", "1e3Gb/s", "infb/s", "nanGb/s", "10xb/s",
        "10GiB/s", "10GBit/s", "1Gb/s,", "1Gb/s,5", "1Gb/s,-5ms", "1Gb/s,5m", "1Gb/s;5ms", "5ms", "1Gb/s,5ms,1",
        f"{'9' * 400}b/s", f"1b/s,{'9' * 400}s", "١Gb/s",
    ],
)  # fmt: skip
def test_what_is_no_link(text):
    with pytest.raises(EstimateError) as found:
        parse_link(text)
    assert found.value.message == f"--link: must be a rate of bits (b) or bytes (B), perhaps with a latency, got {text}"
    assert found.value.hint == "such as 10Gb/s, 1.25GB/s, or 1Gb/s,5ms"


# The release whose hosts feed the systems: which there are, what its workers read, what an estimate is then.
RELEASE = Release(tokens_per_s=2e5, text_tokens_per_s=1e5, step_s=0.002, norm_s=0.01)
HOSTS_UNIT = HostsUnit(1, 4, 25e9, MappingProxyType({"9.1": RELEASE, "9.2": Release()}))
SYSTEM = replace(load_system("cs2"), hosts=HOSTS_UNIT)
HDF5, CSV = "GptHDF5MapDataProcessor", "BertCSVDynamicMaskDataProcessor"


def test_workers_read_tokens_from_hdf5_decode_images_and_parse_all_else():
    named = [each.model_fields["data_processor"].annotation for each in (DigitsParams, PhotosParams)]
    assert {name for each in named for name in get_args(each)} == {*OF_IMAGES}
    assert {choose_software(SYSTEM, "9.1", None, name).worker_tokens_per_s for name in OF_IMAGES} == {None}
    assert choose_software(SYSTEM, "9.1", None, HDF5).worker_tokens_per_s == 2e5
    assert choose_software(SYSTEM, "9.1", None, CSV).worker_tokens_per_s == 1e5
    assert choose_software(SYSTEM, "9.2", None, HDF5).worker_tokens_per_s is None


@pytest.mark.parametrize(("workers", "count", "servers"), [(None, 1, 1), (4, 4, 1), (5, 5, 2), (8, 8, 2)])
def test_four_workers_share_an_activation_server(workers, count, servers):
    found = choose_software(SYSTEM, "9.1", workers, HDF5)
    assert (found.workers, found.servers, found.step_s, found.norm_s) == (count, servers, 0.002, 0.01)
    # Without a release hosts take no time.
    assert choose_software(SYSTEM, None, None, HDF5) is None
    assert make_request(gpt(), EstimateOptions("cs3")).system.software is None


def with_workers(written: object) -> Params:
    return replace(gpt(), job_keys={"num_workers_per_csx": written})


@pytest.mark.parametrize(
    ("written", "flag", "count"), [(3, None, 3), (3, 2, 2), (0, None, 1), (None, None, 1), ("x", 5, 5)]
)
def test_workers_are_those_of_the_flag_or_else_of_the_file(written, flag, count):
    options = EstimateOptions("cs2", software="2.0", num_workers_per_csx=flag)
    assert make_request(with_workers(written), options).system.software.workers == count
    # Without a release none are asked for.
    assert make_request(with_workers(written), EstimateOptions("cs2")).system.software is None


@pytest.mark.parametrize(("written", "shown"), [(-1, "-1"), (1.5, "1.5"), ("two", "'two'"), (True, "True")])
def test_workers_of_the_file_that_are_none(written, shown):
    with pytest.raises(EstimateError) as found:
        make_request(with_workers(written), EstimateOptions("cs2", software="2.0"))
    assert str(found.value) == (
        "gpt.yaml: trainer.init.backend.cluster_config.num_workers_per_csx must be a whole number from 0, got " + shown
    )


@pytest.mark.parametrize("mode", ["weight_streaming", "pipelined"])
def test_a_batch_that_its_worker_delivers_slowly(mode):
    """Batches of 64 samples of 256 tokens: 16,384 tokens take a worker of 200,000 a second 82 ms, eight 10 ms."""
    params = gpt(norm=None, hidden_size=256, filter_size=1024, num_hidden_layers=1)
    request = make_request(params, EstimateOptions("cs2", execution_mode=mode))
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
        params = gpt(norm=norm, hidden_size=256, filter_size=1024, num_hidden_layers=1)
        request = make_request(params, EstimateOptions("cs2", execution_mode=mode))
        software = replace(choose_software(SYSTEM, "9.2", None, HDF5), norm_s=0.05)
        fed = replace(request, system=replace(request.system, software=software))
        return [Estimator(asked).at(1).step_s for asked in (request, fed)]

    ideal, fed = steps("weight_streaming", 1.0)
    assert fed == pytest.approx(ideal + 0.05)
    for mode, norm in (("weight_streaming", None), ("pipelined", 1.0)):
        ideal, fed = steps(mode, norm)
        assert fed == ideal


def test_the_known_releases_slow_no_large_step_down_by_much_and_artifacts_remember_them(tmp_path):
    params = gpt(batch_size=4096, hidden_size=4096, filter_size=16384, num_hidden_layers=16, num_heads=32)
    for system, release in (("cs2", "2.0"), ("cs3", "2.6")):
        ideal, fed = (estimator(params, system, software=asked).at(1) for asked in (None, release))
        assert ideal.step_s <= fed.step_s <= 1.05 * ideal.step_s
    write_artifact(fed.artifact, tmp_path / "artifact.json")
    assert read_artifact(tmp_path / "artifact.json").system.software == fed.artifact.system.software
