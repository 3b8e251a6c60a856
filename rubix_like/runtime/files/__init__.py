"""Files in general: written whole or not at all, opened with one clear error, never one that is also read."""
