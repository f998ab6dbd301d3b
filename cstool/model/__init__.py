"""What is computed, on what: `params` read from YAML, the `graphs` made of them, their `ir`, systems, optimizers, masks."""
