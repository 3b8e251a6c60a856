"""The skies that `noise.exposure.sky` can name: embedded ones, and tables by their path."""

from pathlib import Path

from rubix_like.errors import ConfigError, suggest
from rubix_like.runtime.resources import resource, resource_names

SKY_SUFFIXES: tuple[str, ...] = (".fits", ".fits.gz", ".ecsv")

NO_SKY: str = "none"


def find_sky(name: str) -> Path | None:
    """The file of an embedded sky or of a table by its path; None for 'none'. Raises ConfigError if there is none."""
    known = resource_names("skies")
    if name == NO_SKY:
        return None
    if name in known:
        return resource("skies", name)
    path = Path(name).expanduser()
    if name.lower().endswith(SKY_SUFFIXES):
        if path.is_file():
            return path
        raise ConfigError(f"expected one of {', '.join(known)}, {NO_SKY} or the path of a table, got no file '{name}'")
    raise ConfigError(
        f"expected one of {', '.join(known)}, {NO_SKY}, or a path ending in {', '.join(SKY_SUFFIXES)}, got '{name}'"
        f"{suggest(name, (*known, NO_SKY))}"
    )
