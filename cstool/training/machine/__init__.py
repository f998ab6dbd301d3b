"""The machine: the appliance and its parts. `appliance.py` has a training step from top to bottom."""
