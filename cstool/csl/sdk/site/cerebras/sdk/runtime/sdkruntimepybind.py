"""Runs a compiled program: `SdkRuntime` and the types of its arguments."""

from cstool.csl.sdk.client import Task
from cstool.csl.sdk.layout_program import SdkLayout
from cstool.csl.sdk.layout_region import CodeRegion
from cstool.csl.sdk.layout_types import (
    FP16TYPE,
    Color,
    Edge,
    EdgeRouteInfo,
    PortHandle,
    Route,
    RoutingPosition,
    get_edge_routing,
)
from cstool.csl.sdk.platforms import (
    MemcpyDataType,
    MemcpyOrder,
    SdkCompileArtifacts,
    SdkExecutionPlatform,
    SdkTarget,
    SimfabConfig,
    get_platform,
    get_simulator,
    get_system,
)
from cstool.csl.sdk.runtime import SdkRuntime

__all__ = [
    "CodeRegion",
    "Color",
    "Edge",
    "EdgeRouteInfo",
    "FP16TYPE",
    "MemcpyDataType",
    "MemcpyOrder",
    "PortHandle",
    "Route",
    "RoutingPosition",
    "SdkCompileArtifacts",
    "SdkExecutionPlatform",
    "SdkLayout",
    "SdkRuntime",
    "SdkTarget",
    "SimfabConfig",
    "Task",
    "get_edge_routing",
    "get_platform",
    "get_simulator",
    "get_system",
]
