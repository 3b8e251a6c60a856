"""What helps with the command line: near misses of its words, completion by shells, new configurations."""
