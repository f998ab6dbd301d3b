"""`cstool job` and `cstool appliance`: their options, and reports of the results."""
