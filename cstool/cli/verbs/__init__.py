"""Verbs that use several products."""
