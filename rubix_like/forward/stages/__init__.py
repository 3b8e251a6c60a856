"""Stages of a pipeline, in three kinds; each is found by name and built from its options in the pipeline's YAML."""
