"""Pages of pictures: lettering, labels that keep apart, colors in two themes, axes."""
