"""What the commands of the appliance do, for Python as well."""
