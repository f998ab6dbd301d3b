"""What every product stands on and none owns: errors, whole files, words, folders, YAML with lines, progress, pictures."""
