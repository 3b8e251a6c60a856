"""What a file holds and how it would be read, for people who want to know before (or why not)."""
