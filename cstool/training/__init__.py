"""Training by weight streaming: `data`, `machine` and `kernels` for a step, `store` for files, `run` around them."""
