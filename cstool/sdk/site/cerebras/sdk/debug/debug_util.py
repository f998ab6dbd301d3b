"""Reads the memory of PEs, and what they recorded with `<debug>`."""

from cstool.sdk.debug import debug_util

__all__ = ["debug_util"]
