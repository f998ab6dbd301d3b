"""Pictures of an artifact: the places of its parts on the wafer, and their times."""
