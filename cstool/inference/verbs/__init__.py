"""Uses of a trained model, from Python or by a command: continue texts, predict, embed."""
