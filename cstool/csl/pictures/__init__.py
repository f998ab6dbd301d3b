"""Pictures of a fabric: PEs, routes, load of PEs and links."""

# Ahead of matplotlib, which is told to be quiet there.
import cstool.foundation.drawing
