"""What a run says of itself: log lines, scalars, a summary, a trace, predicted times beside measured ones."""
