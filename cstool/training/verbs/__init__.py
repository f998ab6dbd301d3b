"""What the commands of training do, for Python as well."""
