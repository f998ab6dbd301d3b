"""A run: its start, training, evaluation, checkpoints; `report` has its output."""
