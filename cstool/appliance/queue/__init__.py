"""Jobs of an appliance: a queue under a root folder, a schedule, a supervisor that starts them and keeps them going."""
