"""The commands of training, as functions of Python."""
