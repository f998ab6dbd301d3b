"""Inspection of a program after its run."""
