"""The release of the software whose hosts feed the systems of an estimate."""

from cstool.foundation.errors import EstimateError
from cstool.model.params import Params
from cstool.model.system import Release, Software, System, load_system, system_names

OF_IMAGES = ("MNISTDataProcessor", "ImageNet1KProcessor", "CIFAR10Processor", "CIFAR100Processor")
"""data processors of images; how fast a worker decodes these is not known of any release"""


def choose_software(system: System, release: str | None, workers: int | None, data_processor: str) -> Software | None:
    """Return the hosts of each system with one release of the software; None for hosts that take no time.

    The rate of an input worker depends on its data. The vendor names data processors after these: processors of
    HDF5 files read tokens, processors of images decode them, all others parse text.

    Args:
        system: with the numbers of its hosts
        release: of the software, such as "2.0"; None for hosts that take no time
        workers: input workers of a system; None for the default number of a run
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
        worker_tokens_per_s=_worker_rate(made, data_processor),
        step_s=made.step_s or 0.0,
        norm_s=made.norm_s or 0.0,
    )


def workers_of_file(params: Params) -> int | None:
    """Return the number of input workers of each system in a params file; None for the usual number.

    Raises:
        EstimateError: it is not a number of workers
    """
    found = params.job_keys.get("num_workers_per_csx")
    if found is None:
        return None
    if type(found) is not int or found < 0:
        key = "trainer.init.backend.cluster_config.num_workers_per_csx"
        raise EstimateError(f"{params.path}: {key} must be a whole number from 0, got {found!r:.60}")
    return found or None  # 0: the vendor's software chooses


def _worker_rate(made: Release, data_processor: str) -> float | None:
    """Tokens per second of an input worker; None where nothing is known."""
    if data_processor in OF_IMAGES:
        return None
    return made.tokens_per_s if "HDF5" in data_processor else made.text_tokens_per_s


def _known() -> list[str]:
    systems = [load_system(name) for name in system_names()]
    return [f"{', '.join(each.hosts.releases)} on {each.name}" for each in systems if each.hosts is not None]
