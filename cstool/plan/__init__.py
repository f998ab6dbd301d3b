"""The modelled cluster: `compiler` places a model, `timing` says what that costs, `estimation` answers a planner's questions."""
