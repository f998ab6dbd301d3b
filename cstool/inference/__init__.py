"""Inference: a trained model answers. Weights stream through it as in training, only forward, a few tokens at a time.

`model` opens a checkpoint, `walk` is one pass over the ops, whose weights come from `weight_stream`; `memory` keeps
keys and values for the next pass. `decoding` is the loop from prompts to tokens, `sampling` the choice of a token,
`beams` a search; `completions` makes texts of tokens. `encoder` answers with encoders, `predict` classifies a data set.
"""
