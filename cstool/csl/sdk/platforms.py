"""Platforms of programs, and layouts of their data: types for arguments of `SdkRuntime`."""

import enum
from typing import Any

from cstool.csl.sdk.client import SdkRuntimeError


class MemcpyDataType(enum.Enum):
    """Bits of an element on the device. On the host an element is a word of 32 bits all the same."""

    MEMCPY_16BIT = 16
    MEMCPY_32BIT = 32


class MemcpyOrder(enum.Enum):
    """Order of a host array of [height, width, elements]: the last index runs fastest, or the first."""

    ROW_MAJOR = "C"
    COL_MAJOR = "F"


class SdkTarget(enum.Enum):
    """Generations of the wafer."""

    WSE2 = "wse2"
    WSE3 = "wse3"


class SimfabConfig:
    """Settings of the vendor's simulator. They are taken, and change nothing here."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings


class SdkExecutionPlatform:
    """The platform of programs: always the simulator."""

    def __init__(self, target: SdkTarget | None = None) -> None:
        self.target = target

    def is_simulation(self) -> bool:
        """Whether it is a simulator."""
        return True

    def is_system(self) -> bool:
        """Whether it is a wafer."""
        return False


def get_platform(
    cmaddr: str | None = None,
    config: SimfabConfig | None = None,  # noqa: ARG001 - the vendor's signature
    target: SdkTarget | None = None,
) -> SdkExecutionPlatform:
    """The platform of an address; there is only the simulator, which has no address."""
    refuse_wafer(cmaddr)
    return SdkExecutionPlatform(target)


def get_simulator(config: SimfabConfig | None = None, target: SdkTarget | None = None) -> SdkExecutionPlatform:
    """The simulated platform."""
    return get_platform(None, config, target)


def get_system(cmaddr: str | None = None) -> SdkExecutionPlatform:
    """Refuse: there is no wafer."""
    refuse_wafer(cmaddr or "a system")
    raise AssertionError


class SdkCompileArtifacts:
    """A compiled program, by its directory."""

    def __init__(self, artifacts_path: str) -> None:
        self.path = artifacts_path


def refuse_wafer(cmaddr: str | None) -> None:
    """Raise an error if a host script names a wafer."""
    if cmaddr:
        raise SdkRuntimeError(f"cmaddr: must be left out, programs are simulated here, got {cmaddr}")
