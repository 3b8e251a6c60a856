"""Files of scenes: cubes as the programs that simulate instruments want their input, one module per program."""
