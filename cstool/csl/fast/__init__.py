"""The fast engine: programs on a fabric, compiled; `cstool.csl.fabric` says the same, slowly, and judges."""
