"""Pictures of an artifact: what stands where on the wafer, and what takes how long."""
