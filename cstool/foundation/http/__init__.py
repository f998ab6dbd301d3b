"""What servers of HTTP on this host have in common: addresses, names, tokens."""
