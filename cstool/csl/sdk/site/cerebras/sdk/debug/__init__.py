"""Looking into a program that has run."""
