"""The model and the hardware: `params` from YAML, `graphs` made of them in the `ir`, systems, optimizers, masks."""
