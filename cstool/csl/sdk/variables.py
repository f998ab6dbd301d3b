"""Environment variables that the process that simulates reads."""

TRACE_VARIABLE = "CSTOOL_FABRIC_TRACE"
"""names a file that everything that happens is written to"""
LIMIT_VARIABLE = "CSTOOL_FABRIC_MAX_CYCLES"
"""holds the cycle after which it is an error not to have ended"""
MEMCPY_VARIABLE = "CSTOOL_FABRIC_MEMCPY"
"""one of `MEMCPY`"""
MEMCPY = ("direct", "modelled")
"""how copies of the host go: they take no cycles, or their words take their time on the I/O channels"""
