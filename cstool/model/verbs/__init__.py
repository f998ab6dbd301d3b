"""Params asked from Python or by a command: load, check, convert between layouts, list."""
