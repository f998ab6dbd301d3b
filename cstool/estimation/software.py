"""The release of the software whose hosts feed the systems of an estimate."""

from cstool.errors import EstimateError
from cstool.system import Software, System, load_system, system_names


def choose_software(system: System, release: str | None, workers: int | None, data_processor: str) -> Software | None:
    """Return the hosts of each system with one release of the software; None for hosts that take no time.

    What an input worker delivers depends on what it reads. The vendor names data processors after that: those of HDF5
    files read tokens, all others parse text.

    Args:
        system: with what is known of its hosts
        release: of the software, such as "2.0"; None for hosts that take no time
        workers: input workers of a system; None for as many as a run has unless it asks for others
        data_processor: of the samples

    Raises:
        EstimateError: nothing is known of the release on this system, or workers are asked for without one
    """
    if release is None:
        if workers is not None:
            raise EstimateError(
                f"--num_workers_per_csx: must stand beside --software, which says what a worker does, got {workers}"
            )
        return None
    hosts = system.hosts
    if hosts is None or release not in hosts.releases:
        raise EstimateError(
            f"--software: must be a release whose hosts are known on {system.name}, got {release}",
            f"known are {'; '.join(_known())}",
        )
    made, count = hosts.releases[release], hosts.workers_per_csx if workers is None else workers
    return Software(
        release=release,
        workers=count,
        servers=-(-count // hosts.workers_per_server),
        server_bytes_per_s=hosts.server_bytes_per_s,
        worker_tokens_per_s=made.tokens_per_s if "HDF5" in data_processor else made.text_tokens_per_s,
        step_s=made.step_s or 0.0,
        norm_s=made.norm_s or 0.0,
    )


def _known() -> list[str]:
    systems = [load_system(name) for name in system_names()]
    return [f"{', '.join(each.hosts.releases)} on {each.name}" for each in systems if each.hosts is not None]
