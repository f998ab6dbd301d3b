"""Converts between arrays of host scripts and words of 32 bits, and counts cycles."""

from cstool.csl.sdk.host_utils import calculate_cycles, input_array_to_u32, memcpy_view

__all__ = ["calculate_cycles", "input_array_to_u32", "memcpy_view"]
