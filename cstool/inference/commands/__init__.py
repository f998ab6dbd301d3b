"""`cstool run --mode infer`: its options and reports."""
