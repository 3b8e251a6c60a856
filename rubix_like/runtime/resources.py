"""The packaged folders (configs, pipelines, instruments, bundles, simulations, data) and the user's cache."""

import functools
import os
from pathlib import Path

import platformdirs

from rubix_like.errors import ConfigError, suggest

_PACKAGE = Path(__file__).resolve().parent.parent

_PLACES: dict[str, tuple[str, str]] = {
    "configs": ("configs", ".yaml"),
    "pipelines": ("pipelines", ".yaml"),
    "instruments": ("configs/instruments", ".yaml"),
    "bundles": ("configs/bundles", ".yaml"),
    "simulations": ("configs/simulations", ".yaml"),
    "data": ("data", ".h5"),
    "skies": ("data/skies", ".fits"),
}
"""Kind of resource -> folder and suffix of its files; the rest of the file name is the resource's name."""


def resource_names(kind: str) -> tuple[str, ...]:
    """Names of the packaged files of one kind (a key of `_PLACES`), sorted, no suffix."""
    folder = _folder(kind)
    return _names_in(folder, _PLACES[kind][1], folder.stat().st_mtime_ns)


@functools.cache
def _names_in(folder: Path, suffix: str, changed: int) -> tuple[str, ...]:  # noqa: ARG001
    """`changed`: when the folder last changed, so that new files are found."""
    return tuple(sorted(path.stem for path in folder.glob(f"*{suffix}")))


def resource(kind: str, name: str) -> Path:
    """Path of a packaged file, e.g. `resource("configs", "quickstart")`; the suffix may be given or left out.

    Raises ConfigError with the nearest known name when there is none.
    """
    folder = _folder(kind)
    suffix = _PLACES[kind][1]
    stem = name.removesuffix(suffix)
    known = resource_names(kind)
    if stem not in known:
        raise ConfigError(f"no '{name}' among the packaged {kind}{suggest(stem, known)}")
    return folder / f"{stem}{suffix}"


def cache_directory() -> Path:
    """Folder for files that can be made again: $RUBIX_LIKE_CACHE, else the system's place for the user's caches.

    It is not created here; whoever writes creates it.
    """
    chosen = os.environ.get("RUBIX_LIKE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return platformdirs.user_cache_path("rubix_like")


@functools.cache
def _folder(kind: str) -> Path:
    """The folder of a kind of resource. In an installed wheel the folders lie inside the package; in a checkout beside
    it (next to pyproject.toml)."""
    if kind not in _PLACES:
        raise ConfigError(f"unknown kind of resource '{kind}'{suggest(kind, _PLACES)}")
    place = _PLACES[kind][0]
    installed = _PACKAGE / "_resources" / place
    if installed.is_dir():
        return installed
    checkout = _PACKAGE.parent / place
    if (_PACKAGE.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    raise FileNotFoundError(
        f"the folder of the packaged {kind} is neither {installed} (installed package) nor {checkout} (checkout): "
        "the installation is incomplete, install rubix-like again"
    )
