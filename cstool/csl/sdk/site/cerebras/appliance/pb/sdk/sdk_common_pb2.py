"""Layouts of data, for scripts for a cluster."""

from cstool.csl.sdk.platforms import MemcpyDataType, MemcpyOrder

__all__ = ["MemcpyDataType", "MemcpyOrder"]
