"""Inference: a trained model answers. Weights stream through it as in training, only forward, a few tokens at a time.

`model` opens a checkpoint, `walk` is one pass over the ops, `kv_cache` keeps keys and values for the next pass,
`generate` is the loop from prompt to text, `sampling` the choice of a token, `predict` the classes of a data set.
"""
