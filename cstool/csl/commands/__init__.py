"""`cstool fabric`: its options and reports."""
