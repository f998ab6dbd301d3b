"""The servers around the systems of a job: input workers that keep up, MemoryX, SwarmX, activation servers."""

import math
from dataclasses import dataclass

from cstool.model.ir import Artifact
from cstool.model.system import ServersUnit, System
from cstool.plan.estimation.point import Estimate
from cstool.plan.timing.resources import SERVERS, WORKERS

HOSTS = (WORKERS, SERVERS)
"""resources that more input workers, and activation servers with them, make faster"""


@dataclass(frozen=True)
class InputWorkers:
    """Input workers of a job.

    Args:
        tokens_per_s: that each delivers; None where nothing is known of it
        rate_from: where that is from
        needed_per_csx: so that no system waits; None without a rate
    """

    tokens_per_s: float | None
    rate_from: str
    needed_per_csx: int | None


def input_workers(found: Estimate, worker_tokens_per_s: float | None) -> InputWorkers:
    """Return the input workers of the job of an estimate, as many as let a system work without waiting for them.

    Args:
        worker_tokens_per_s: that each delivers; None for the number of the system file
    """
    system = found.artifact.system
    software = system.software
    if worker_tokens_per_s is not None:
        rate, rate_from = worker_tokens_per_s, "as --worker_rate says"
    elif software is not None and software.worker_tokens_per_s is not None:
        rate, rate_from = software.worker_tokens_per_s, f"as release {software.release} does"
    elif found.reads_images:
        return InputWorkers(None, "nothing is known of images", None)
    else:
        known, rate_from = of_release(system, "tokens_per_s")
        if known is None:
            return InputWorkers(None, rate_from, None)
        rate = known
    of_system = found.tokens_per_s / found.num_csx
    if found.bound in HOSTS:
        # The rate that the system would take if no host delayed it.
        of_system /= max(share for name, share in found.busy.items() if name not in HOSTS)
    return InputWorkers(rate, rate_from, max(1, math.ceil(of_system / rate - 1e-9)))


def of_release(system: System, name: str) -> tuple[float | None, str]:
    """Return a number of the release that drives the systems, or else of the newest of which it is known, and which."""
    releases = {} if system.hosts is None else system.hosts.releases
    newest = sorted(releases, key=lambda release: [int(part) for part in release.split(".")], reverse=True)
    if system.software is not None:
        newest = [system.software.release, *newest]
    for release in newest:
        value: float | None = getattr(releases[release], name)
        if value is not None:
            return value, f"as release {release} does"
    return None, f"nothing is known of it on {system.name}"


def servers_of(artifact: Artifact, unit: ServersUnit, workers: InputWorkers) -> dict[str, int]:
    """Return the servers of a job: task -> number of servers for it."""
    system, systems = artifact.system, artifact.num_csx
    found: dict[str, int] = {}
    if artifact.streaming is not None:
        held = -(-artifact.memoryx.total_bytes // unit.memoryx_node_bytes)
        found["MemoryX"] = max(unit.memoryx_nodes, held)
    if artifact.streaming is not None or systems > 1:
        found["SwarmX"] = systems * unit.swarmx_nodes_per_csx
    usual = 1 if system.hosts is None else system.hosts.workers_per_csx
    own = usual if system.software is None else system.software.workers
    # The requested number; without a release, as many as are needed.
    count = own if system.software is not None else max(own, workers.needed_per_csx or 0)
    found["input workers"] = systems * count
    per_server = 1 if system.hosts is None else system.hosts.workers_per_server
    found["activation servers"] = systems * -(-count // per_server)
    return found
