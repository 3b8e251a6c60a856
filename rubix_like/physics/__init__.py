"""Formulas: pure functions of arrays, without settings or files."""
