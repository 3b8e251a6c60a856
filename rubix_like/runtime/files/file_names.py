"""Names of files that go with a cube's."""

from pathlib import Path


def split_name(path: Path) -> tuple[str, str]:
    """Name and ending of a file, a compressed one's whole: cube.fits.gz -> ('cube', '.fits.gz')."""
    inner = path.name[:-3] if path.name.lower().endswith(".gz") else path.name
    stem = Path(inner).stem
    return stem, path.name[len(stem) :]


def beside(path: Path, ending: str) -> Path:
    """A file beside a cube's: cube.fits or cube.fits.gz with '.png' -> cube.png."""
    return path.with_name(split_name(path)[0] + ending)


def with_addition(path: Path, addition: str) -> Path:
    """A cube beside another: cube.fits.gz with '_truth' -> cube_truth.fits.gz."""
    stem, suffix = split_name(path)
    return path.with_name(f"{stem}{addition}{suffix}")
