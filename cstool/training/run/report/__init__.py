"""The reports of a run: log lines, scalars, a summary, a trace, predicted times beside measured ones."""
