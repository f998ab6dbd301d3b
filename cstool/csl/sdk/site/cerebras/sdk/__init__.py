"""The vendor's names for host scripts, here for the simulated fabric."""
