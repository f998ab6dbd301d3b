"""Pictures of an artifact: what stands where on the wafer, and what takes how long."""

# Ahead of matplotlib, which is told to be quiet there.
import cstool.foundation.drawing
