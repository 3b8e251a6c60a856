"""Several processes that make one cube: who they are, what they exchange, how they end together."""
