"""Reports on files: what they hold, and how they would be read, or why not."""
