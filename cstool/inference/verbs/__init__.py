"""What a trained model is asked from Python or by a command: continue texts, predict, embed."""
