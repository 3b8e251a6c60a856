"""Help with the command line: options and settings that words may stand for, completion by shells, new files."""
