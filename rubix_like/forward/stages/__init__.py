"""Stages of a pipeline, on the scene and on the cube; each is found by name and built from its options in the YAML."""
