"""The work of the commands of serving, for Python as well."""
