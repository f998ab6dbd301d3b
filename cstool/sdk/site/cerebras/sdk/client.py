"""Compiles and runs programs as scripts for a cluster do, on this machine."""

from cstool.sdk.appliance import ClientRuntime as SdkRuntime
from cstool.sdk.appliance import SdkCompiler, SdkLauncher

__all__ = ["SdkCompiler", "SdkLauncher", "SdkRuntime"]
