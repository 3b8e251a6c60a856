"""Which of our kinds a file is, as it says itself, and which version wrote it when."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py

from rubix_like.errors import ConfigError
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import first_header
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.outputs import FOLDER_HEAD, Named, check_separate, files_of_others, is_store, output_bytes
from rubix_like.version import __version__

PARQUET_HEAD: bytes = b"PAR1"
"""First bytes of a table in Parquet."""

ORIGIN: str = "rubix_like"
"""PRIMARY's ORIGIN card, by which our FITS files are known."""

CREATOR: str = f"{ORIGIN} {__version__}"
"""Program and version, as files state them."""

CUBE: str = "rubix_like cube"
FIT: str = "rubix_like fit"
SAMPLES: str = "rubix_like samples"
SIMULATIONS: str = "rubix_like simulations"
LIBRARY: str = "rubix_like ssp"
NEBULAR: str = "rubix_like nebular"
"""The attribute `format` of HDF5 files; a cube in FITS is of the same kind."""

SIMULATION_SET: str = "rubix_like simulations in a folder"
"""The kind of a folder of simulations."""

SET_FILE: str = "simulations.json"
"""The file by which such a folder is known."""

CATALOGUE: str = "rubix_like catalogue in a folder"
"""The kind of a folder of a catalogue's cubes."""

SUMMARY_FILE: str = "summary.csv"
RECORDS_FOLDER: str = "records"
"""What such a folder has, by which it is known."""

FOREIGN: str = "rubix_like cube for other programs"
MAPS: str = "rubix_like maps"
"""Kinds that are in FITS only: cubes in other layouts, and maps."""

PICTURE: str = "rubix_like picture"
"""The kind of pictures and of pages for a browser."""

PICTURE_CREATOR: str = f"{CREATOR} picture"
"""The creator that pictures and pages state, by which they are known."""

_PICTURE_SUFFIXES = (".png", ".pdf", ".svg", ".html")
_PICTURE_MARK = re.compile(rb"(rubix_like \S+) picture")

CONFIGURATION_CARD: str = "CONFNAME"
"""The name of the configuration of a run, in HDF5 and Zarr the attribute `configuration`."""

LAYOUT_CARD: str = "LAYOUT"
MAPS_CARD: str = "NFILTER"
"""Cards by which those are known: the name of the layout, and the number of filters."""


OPENED_BY: Mapping[str, tuple[str, str]] = {
    CUBE: ("a cube", "rl.load_cube({path!r})"),
    FOREIGN: ("a cube for other programs", "astropy.io.fits.open({path!r})"),
    MAPS: ("a file of maps", "rl.Maps.read({path!r})"),
    FIT: ("the result of a fit", "rl.FitResult.read({path!r})"),
    SAMPLES: ("the result of a sampling", "rl.SampleResult.read({path!r})"),
    SIMULATIONS: ("a file of simulations", "rl.load_simulations of its folder"),
    SIMULATION_SET: ("a training set", "rl.load_simulations({path!r})"),
    CATALOGUE: ("a folder of a catalogue", "rl.load_cube of one of its files"),
    LIBRARY: ("an SSP library", "rl.load_ssp({path!r}), or ssp.library"),
    PICTURE: ("a picture", "a browser or a viewer of images"),
    NEBULAR: ("a table of nebular lines", "rl.load_nebular({path!r}), or nebular.table"),
}
"""Kind of a file of ours -> what it is, and what opens it."""


class Written(NamedTuple):
    """The kind, program and version, date and configuration (None where it does not say) of a file of ours."""

    kind: str
    creator: Any = None
    date: Any = None
    configuration: str | None = None


def written_by_us(path: Path) -> Written | None:
    """The words of a file or folder of ours, whole or not; None for any other, and where there is none.

    Raises ValueError for a file of a kind that only 0.2.0 reads.
    """
    if path.is_dir():
        return _stated(path) if is_store(path) else _written_folder(path)
    if not path.is_file():
        return None
    if path.suffix in _PICTURE_SUFFIXES:
        found = _PICTURE_MARK.search(path.read_bytes())
        return None if found is None else Written(PICTURE, found[1].decode())
    refuse_removed(path)
    if h5py.is_hdf5(path):
        return _stated(path)
    header = first_header(path)
    if header.get("ORIGIN") != ORIGIN:
        return None
    kind = MAPS if MAPS_CARD in header else FOREIGN if LAYOUT_CARD in header else CUBE
    return Written(kind, header.get("CREATOR"), header.get("DATE"), _text(header.get(CONFIGURATION_CARD)))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _written_folder(folder: Path) -> Written | None:
    """A catalogue or a training set."""
    if (folder / SUMMARY_FILE).is_file() and (folder / RECORDS_FOLDER).is_dir():
        return Written(CATALOGUE)
    try:
        head = json.loads((folder / SET_FILE).read_bytes())
        return Written(SIMULATION_SET, head["creator"], head["date"]) if head["format"] == SIMULATIONS else None
    except UNREADABLE:
        return None


def _stated(path: Path) -> Written | None:
    """The words of an HDF5 file's or a Zarr store's attributes; None where they are not ours, or cannot be read."""
    names = ("format", "creator", "date", "configuration")
    try:
        if path.is_dir():
            attributes = json.loads((path / FOLDER_HEAD).read_bytes())["attributes"]
            kind, creator, date, configuration = map(attributes.get, names)
        else:
            with opened_hdf5(path, whole=False) as file:
                kind, creator, date, configuration = map(file.attrs.get, names)
    except UNREADABLE:
        return None
    kinds = (CUBE, SIMULATIONS) if path.is_dir() else (CUBE, FIT, SAMPLES, SIMULATIONS, LIBRARY, NEBULAR)
    return Written(str(kind), creator, date, _text(configuration)) if str(kind) in kinds else None


def sets_in(folder: Path) -> list[Path]:
    """The training sets within a folder, such as those of several observations."""
    return sorted(path.parent for path in folder.glob(f"*/{SET_FILE}"))


def refuse_removed(path: Path) -> None:
    """Raise ValueError for a table in Parquet that version 0.2.0 wrote: its metadata end the file."""
    with path.open("rb") as file:
        if file.read(4) != PARQUET_HEAD:
            return
        end = max(path.stat().st_size - 8, 0)
        file.seek(end)
        file.seek(max(end - int.from_bytes(file.read(4), "little"), 0))
        is_ours = f'"{ORIGIN} '.encode() in file.read()
    if is_ours:
        raise ValueError(f"{path} is a table in Parquet that rubix_like 0.2.0 reads; with that version write it as .h5")


def check_outputs(
    paths: Iterable[Path],
    kinds: Sequence[str],
    setting: str = "path",
    read: Iterable[Named] = (),
    *,
    overwrite: bool = False,
    maker: str | None = None,
) -> None:
    """Raise ConfigError, naming `setting`, where files must not be written at `paths`.

    None of them may be a file that is `read`. Without `overwrite` an existing file is replaced only if it is one of
    `kinds`, written by rubix_like, and, with `maker` (`configuration_words`), made by that configuration. Empty files
    are replaced. To be called before anything is computed.
    """
    written = [path.expanduser() for path in paths]
    check_separate(written, read, setting)
    for path in [] if overwrite else filter(output_bytes, written):
        problem = _problem(path, kinds, maker)
        if problem is not None:
            raise ConfigError(
                f"{setting}: '{path}' {problem}; to replace it give overwrite=True, to keep it another place "
                f"({setting.rpartition('.')[2]}=...)"
            )


def may_be_replaced(path: Path, kinds: Sequence[str]) -> bool:
    """Whether there is no file, or an empty one, or one of these kinds that rubix_like wrote."""
    return not output_bytes(path) or _problem(path, kinds, None) is None


def configuration_words(configuration: str | None) -> str:
    """A configuration in words, its name as a FITS card holds it."""
    if not configuration:
        return "a configuration without a name"
    return f"the configuration '{' '.join(configuration.encode('ascii', 'replace').decode().split())}'"


def _problem(path: Path, kinds: Sequence[str], maker: str | None) -> str | None:
    """Why an existing file is not replaced."""
    written, others = written_by_us(path), files_of_others(path)
    expected = f"and this is {OPENED_BY[kinds[0]][0]}"
    if written is None:
        return f"is no file of rubix-like, {expected}"
    if others:
        return f"holds files of others, such as {others[0].relative_to(path)}, {expected}"
    if written.kind not in kinds:
        return f"is {OPENED_BY[written.kind][0]}, {expected}"
    came = configuration_words(written.configuration)
    return None if maker in {None, came} else f"was made by {came}, and this is {maker}"
