"""This host measured, and what a step would take on it: the rates of its kernels, the needs of a job."""
