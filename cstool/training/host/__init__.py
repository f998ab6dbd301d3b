"""This host measured, and predictions for it: the rates of its kernels, the time of a step, the needs of a job."""
