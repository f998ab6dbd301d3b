"""The vendor's names for what host scripts use, here for the simulated fabric."""
