"""The fast engine of the simulated fabric: the values and cycles of `cstool.csl.fabric`, compiled by Numba."""
