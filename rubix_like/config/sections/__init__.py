"""The sections of a run's YAML, one frozen model each."""
