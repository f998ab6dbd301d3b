"""Environment variables of the simulator process."""

JOURNAL_VARIABLE = "CSTOOL_FABRIC_JOURNAL"
"""directory for the requests of host scripts (`journal`)"""
TRACE_VARIABLE = "CSTOOL_FABRIC_TRACE"
"""path of the trace file"""
LIMIT_VARIABLE = "CSTOOL_FABRIC_MAX_CYCLES"
"""limit of cycles, an error if the program has not ended by then"""
MEMCPY_VARIABLE = "CSTOOL_FABRIC_MEMCPY"
"""time of copies of the host, one of `MEMCPY`"""
MEMCPY = ("direct", "modelled")
"""copies of the host take no cycles, or their words take their time on the I/O channels"""
ENGINE_VARIABLE = "CSTOOL_FABRIC_ENGINE"
"""the engine, one of `ENGINES`"""
ENGINES = ("auto", "fast", "reference")
"""the fast one where that is sooner; compiled; or one PE at a time in Python, which can record a trace"""
TIME_VARIABLE = "CSTOOL_FABRIC_TIME"
"""the model of time, a name of `fabric.time_model.TIME_MODELS`"""
