"""Pictures of an artifact: what stands where on the wafer, and what takes how long. Only they import matplotlib."""

import logging

# Where HOME cannot be written, matplotlib says at length that its cache of fonts is in a temporary folder.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
