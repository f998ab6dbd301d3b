"""`cstool config` and `cstool model`: their options and reports."""
