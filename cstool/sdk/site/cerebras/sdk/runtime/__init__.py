"""Running a compiled program."""
