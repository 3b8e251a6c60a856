"""Galaxy readers: each turns the settings under `galaxy:` into a Galaxy and what is known of it."""
