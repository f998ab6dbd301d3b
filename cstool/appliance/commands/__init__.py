"""`cstool job` and `cstool appliance`: their options, and reports of what came of them."""
