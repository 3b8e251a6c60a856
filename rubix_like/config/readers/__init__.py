"""Settings of readers: the keys under `galaxy:` of snapshots and components, without the code that reads galaxies."""
