"""A host with round numbers, for tests."""

from cstool.model.optimizers import forms
from cstool.training.host.step import KINDS, PASSES, Cost, HostRates
from cstool.training.machine.grains import available_cores
from cstool.training.machine.state import environment


def round_rates() -> HostRates:
    """Return the rates of a machine like this one that has round numbers."""
    return HostRates(
        cpu=environment()["cpu"],
        cores=available_cores(),
        costs={f"{kind} {d}": Cost(1e-5, 1e-6, 1e-11, 1e-10, 1e-10, 1e-10) for kind in KINDS for d in PASSES},
        update_s={optimizer.name: 2e-9 if optimizer.name == "Adam" else 1e-9 for optimizer in forms()},
        step_s=1e-4,
        stage_s=1e-5,
        uneven=0.01,
        cached_bytes_per_s=8e9,
        read_bytes_per_s=4e9,
        write_bytes_per_s=2e9,
    )
