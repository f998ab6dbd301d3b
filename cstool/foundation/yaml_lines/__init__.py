"""A YAML file as data that knows its lines, checked against sections: what params and system files share."""
