"""Runs a compiled program: `SdkRuntime` and what it is told with."""

from cstool.sdk.client import Task
from cstool.sdk.runtime import (
    MemcpyDataType,
    MemcpyOrder,
    SdkCompileArtifacts,
    SdkExecutionPlatform,
    SdkLayout,
    SdkRuntime,
    SdkTarget,
    SimfabConfig,
    get_platform,
    get_simulator,
    get_system,
)

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
