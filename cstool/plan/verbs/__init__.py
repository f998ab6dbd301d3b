"""The commands of the planner, for Python as well."""
