"""Runs a compiled program: `SdkRuntime` and what it is told with."""

from cstool.sdk.client import Task
from cstool.sdk.platforms import (
    MemcpyDataType,
    MemcpyOrder,
    SdkCompileArtifacts,
    SdkExecutionPlatform,
    SdkLayout,
    SdkTarget,
    SimfabConfig,
    get_platform,
    get_simulator,
    get_system,
)
from cstool.sdk.runtime import SdkRuntime

__all__ = [
    "MemcpyDataType",
    "MemcpyOrder",
    "SdkCompileArtifacts",
    "SdkExecutionPlatform",
    "SdkLayout",
    "SdkRuntime",
    "SdkTarget",
    "SimfabConfig",
    "Task",
    "get_platform",
    "get_simulator",
    "get_system",
]
