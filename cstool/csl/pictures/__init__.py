"""Pictures of a fabric: PEs, routes, load of PEs and links."""
