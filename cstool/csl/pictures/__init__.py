"""Pictures of a fabric: PEs, routes, what was busy."""
