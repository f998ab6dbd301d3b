"""A YAML file as data that knows its lines, checked against sections: shared by params and system files."""
