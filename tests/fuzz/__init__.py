"""Damaged and hostile files of every kind that the package reads, made by the thousand, and what comes of them."""
