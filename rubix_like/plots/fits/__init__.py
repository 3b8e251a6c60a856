"""Pictures of fits and of posterior samples, from plain arrays."""
