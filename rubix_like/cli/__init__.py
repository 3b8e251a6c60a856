"""The command `rubix-like`."""
