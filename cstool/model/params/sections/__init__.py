"""What a params file may say, section by section: its keys by their fate, their kinds, their rules."""
