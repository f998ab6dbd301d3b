"""Pages of pictures: lettering, labels that keep apart, colors in two themes, axes. Only pictures import matplotlib."""

import logging

# Where HOME cannot be written, matplotlib says at length that its cache of fonts is in a temporary folder.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
