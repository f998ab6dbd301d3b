"""Reads the memory of PEs, and what they recorded with `<debug>`."""

from cstool.csl.sdk.debug import debug_util

__all__ = ["debug_util"]
