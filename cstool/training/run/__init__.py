"""A run: what it starts from, training, evaluation, checkpoints; `report` has what it leaves behind."""
