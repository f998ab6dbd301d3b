"""What the commands of the planner do, for Python as well."""
