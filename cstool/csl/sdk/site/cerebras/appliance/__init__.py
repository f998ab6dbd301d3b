"""The vendor's names for scripts for a cluster."""
