"""Names of the vendor's for scripts for a cluster."""
