"""Checkpoints from one format to another: dense and sparse, Hugging Face's names, the vendor's own files.

All of it streams, range of rows by range of rows: no model is ever in memory. A `Source` reads arrays by cstool's own
names, with their zeros; a target writes them.
"""
