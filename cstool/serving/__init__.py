"""A server of a model that answers: requests come and go, each gets the tokens that it would get alone."""
