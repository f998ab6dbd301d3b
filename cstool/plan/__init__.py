"""The modelled cluster: `compiler` places a model, `timing` has cycles and steps, `estimation` answers planners."""
