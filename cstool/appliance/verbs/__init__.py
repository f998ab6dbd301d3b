"""The work of the appliance's commands, for Python as well."""
