"""A package with plug-ins, as pip would leave it."""

from pathlib import Path


def write_dist_info(folder: Path, distribution: str, entry_points: str) -> None:
    """Version 1.0 of a distribution in a folder on Python's path; its modules are those that can be imported."""
    place = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (place / "entry_points.txt").write_text(entry_points)
