"""The sections of a params file: their keys by fate, their kinds, their rules."""
