"""Speed and memory of cstool beside those of its peers, measured on this host. Nothing here is a test."""
