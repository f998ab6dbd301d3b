"""`cstool data`, `checkpoint`, `validate`, `system`: their options and reports, and flags of `cstool run`."""
