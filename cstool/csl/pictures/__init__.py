"""Pictures of a fabric: PEs, routes, what was busy."""

# Ahead of matplotlib, which is told to be quiet there.
import cstool.foundation.drawing
