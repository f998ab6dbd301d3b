"""Common to all products: errors, whole files, words, folders, YAML with lines, progress, pictures, the terminal."""
