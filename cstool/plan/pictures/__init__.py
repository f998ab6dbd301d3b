"""Pictures of an artifact: the places of its parts on the wafer, and their times."""

# Ahead of matplotlib, which is told to be quiet there.
import cstool.foundation.drawing
