"""A run on three hosts, with addresses of their own and cables of 1 Gbit/s and 5 ms, one of which is cut."""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.end_to_end.ranks import CSTOOL, MPIRUN, Command, Said, committed
from tests.end_to_end.runs import DROPOUT, gpt_params, latest_bits
from tests.end_to_end.test_ranks_failures import LOOP, WAY_ON, straight
from tests.namespaces import Hosts, why_not
from tests.patience import wait_until

__all__ = ["straight"]
REASON = why_not()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.lab]
SOON_S = 30.0


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts(3, rate="1gbit", delay_s=5e-3) as found:
        yield found


@pytest.fixture
def file(tmp_path, data) -> Path:
    return gpt_params(tmp_path, data, **LOOP, **DROPOUT, init__backend={"cluster_config": {"num_csx": 3}})


def on(hosts: Hosts, file: Path) -> Command:
    words: Sequence[str] = hosts.mpirun(MPIRUN, *CSTOOL, "run", "-p", str(file), "--lanes", "1")
    return Command(*words, environment=hosts.environment)


def ran(hosts: Hosts, file: Path) -> Said:
    with on(hosts, file) as command:
        said = command.wait()
    assert (said.exit_code, said.errors) == (0, ""), said.errors
    return said


def test_three_hosts_have_the_bits_of_one_process(hosts, file, straight):
    output = ran(hosts, file).output
    assert "3 ranks on 3 hosts: rank 0 sent" in output
    (measured,) = re.findall(r"Measured between hosts: ([\d.,]+) MB/s one way, ([\d.]+) ms a message\.", output)
    # What the cable is set to bounds both, whatever else this machine does.
    assert 0 < float(measured[0].replace(",", "")) < 130
    assert float(measured[1]) >= 4
    assert latest_bits(file.parent / "model_dir") == straight


@pytest.mark.parametrize("name", ["alpha", "gamma"])
def test_when_a_cable_is_cut_the_others_stop_and_the_same_command_goes_on(hosts, file, straight, name):
    with on(hosts, file) as command:
        wait_until(lambda: committed(file.parent / "model_dir") >= 2, "no commit of step 2")
        hosts.cut(name)
        began = time.monotonic()
        said = command.wait()
        seconds = time.monotonic() - began
        # A rank that cannot be reached ends by itself.
        wait_until(lambda: not any(map(hosts.processes, hosts.names)), "processes are left on a host")
    # From rank 0 on alpha, all others are gone when its own cable is cut; one of them it names.
    lost = {"alpha": "(rank 1 on beta|rank 2 on gamma)", "gamma": "rank 2 on gamma"}[name]
    assert re.fullmatch(
        rf"error: {lost}: must be heard of every 20 s, it has been silent for \d+ s, "
        r"in step \d+(, after the op of [\w.]+)?\n" + WAY_ON,
        said.errors,
    ), said.errors
    assert said.exit_code == 1
    assert seconds < SOON_S
    hosts.mend(name)
    ran(hosts, file)
    assert latest_bits(file.parent / "model_dir") == straight
