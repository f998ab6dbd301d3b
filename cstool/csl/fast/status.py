"""Results of `interpreter.run`."""

ENDED, WAITS, PAUSED, FAILED = range(4)
"""the function is over; it waits for the operation `P_MAIN_OPERATION`; it waits for its cycle; an error"""
