"""From a model to an artifact: passes, placement, routing."""
