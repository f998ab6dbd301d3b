"""Reads the memory of PEs, and their `<debug>` traces."""

from cstool.csl.sdk.debug import debug_util

__all__ = ["debug_util"]
