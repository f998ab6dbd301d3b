"""Code compiled by Numba: kept in files, and what Python has no words for."""
