"""Several processes, on one host or many, as one machine: what they say to each other, and who does what of a step."""
