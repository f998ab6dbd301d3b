"""`cstool compile` and `cstool estimate`: their options and reports."""
