"""The files that a run reads, by the settings that name them."""

import glob
from collections.abc import Iterator
from pathlib import Path

from rubix_like.config import RunConfig
from rubix_like.readers.containers.snapshot_files import sisters
from rubix_like.runtime.files.separate_files import Named, paths_in
from rubix_like.ssp.known_libraries import LIBRARIES, SHELF


def named_paths(config: RunConfig) -> Iterator[Named]:
    """Every path among the settings, and the library of spectra that is no packaged one.

    Not those of `output`, which are written, nor of `fit`, which a run does not look at.
    """
    yield from paths_in(config.model_dump(exclude={"output", "fit"}))
    library = config.ssp.library
    if library not in LIBRARIES or LIBRARIES[library].kind != "embedded":
        yield "ssp.library", SHELF.locate(library)


def named_files(config: RunConfig) -> Iterator[Named]:
    """The files that these paths stand for."""
    for name, path in named_paths(config):
        yield from ((name, own) for own in files_at(path) or [path])


def files_at(path: Path) -> list[Path]:
    """The files that a path may stand for: those of a folder or a pattern, a numbered one with its sisters."""
    if path.is_dir():
        return sorted(own for own in path.iterdir() if own.is_file())
    if path.is_file():
        return sisters(path)
    return sorted(own for own in map(Path, glob.glob(str(path))) if own.is_file())
