"""Compiles and runs programs as scripts for a cluster do, on this machine."""

from cstool.csl.sdk.appliance import ClientRuntime as SdkRuntime
from cstool.csl.sdk.appliance import SdkCompiler, SdkLauncher

__all__ = ["SdkCompiler", "SdkLauncher", "SdkRuntime"]
