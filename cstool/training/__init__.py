"""Training by weight streaming: `data` in, `machine` and `kernels` for a step, `store` for checkpoints, `run` around it all."""
