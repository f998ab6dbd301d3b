"""The older name of `cerebras.sdk.sdk_utils`."""

from cstool.csl.sdk.host_utils import calculate_cycles, input_array_to_u32, memcpy_view

__all__ = ["calculate_cycles", "input_array_to_u32", "memcpy_view"]
