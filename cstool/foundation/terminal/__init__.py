"""A command line in plain words: help, errors as messages, tables, bars; the commands themselves are elsewhere."""
