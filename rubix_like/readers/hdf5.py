"""Reading an HDF5 snapshot: every fault of the file becomes one message with place, expectation and remedy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
from jaxtyping import Float

from rubix_like.validation import require


@contextmanager
def open_snapshot(path: Path) -> Iterator[h5py.File]:
    """Open `path` for reading; raises FileNotFoundError, IsADirectoryError or OSError saying what is there instead."""
    path = path.expanduser()
    if not path.exists():
        raise FileNotFoundError(f"galaxy.path: no file '{path}'; set galaxy.path to a downloaded cut-out (HDF5)")
    if path.is_dir():
        raise IsADirectoryError(f"galaxy.path: '{path}' is a directory; expected one HDF5 file")
    with path.open("rb"):  # PermissionError, before HDF5 hides it
        pass
    if not h5py.is_hdf5(path):
        raise OSError(f"galaxy.path: '{path}' is not an HDF5 file; expected a cut-out as downloaded from the API")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise OSError(f"galaxy.path: '{path}' cannot be read ({error}); is the download complete?") from error
    with file:
        yield file


def header_number(file: h5py.File, name: str, default: float | None = None) -> float:
    """The attribute `name` of Header, a scalar or of length 1; ValueError if it is missing without a default."""
    header = _header(file)
    if name not in header:
        if default is not None:
            return default
        raise ValueError(
            f"{file.filename}: Header has no attribute {name}; it has {', '.join(sorted(header)) or 'none'}; "
            f"download the cut-out again without editing its Header"
        )
    return float(np.asarray(header[name], dtype=np.float64).reshape(-1)[0])


def header_text(file: h5py.File, name: str) -> str:
    """The attribute `name` of the group Header as text, empty where it is missing."""
    header = _header(file)
    if name not in header:
        return ""
    value = np.asarray(header[name]).reshape(-1)[0]
    return value.decode() if isinstance(value, bytes) else str(value)


def names(file: h5py.File, group: str) -> tuple[str, ...]:
    """Names of the datasets in `group`; empty where there is no such group."""
    found = file.get(group)
    return tuple(found) if isinstance(found, h5py.Group) else ()


def column(file: h5py.File, group: str, name: str, width: int | None = None) -> Float[np.ndarray, "..."]:
    """The dataset `group/name` in float64, of shape (N,) or, with `width`, (N, width).

    Raises ValueError when it is missing (naming what the group has), of another shape, unreadable or not finite.
    """
    place = f"{file.filename}: {group}/{name}"
    dataset = file.get(f"{group}/{name}")
    if not isinstance(dataset, h5py.Dataset):
        raise ValueError(
            f"{place} is missing; {_contents(file, group)}; download the cut-out again with this field included"
        )
    expected = () if width is None else (width,)
    if dataset.ndim != 1 + len(expected) or dataset.shape[1:] != expected:
        text = "(N,)" if width is None else f"(N, {width})"
        raise ValueError(f"{place}: expected shape {text}, got {dataset.shape}; is the file one of this simulation?")
    try:
        values = np.asarray(dataset[()], dtype=np.float64)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{place} cannot be read as numbers ({error}); is the download complete?") from error
    require(np.isfinite(values), values, place, "finite values", "leave these particles out or download the file again")
    return values


def columns(file: h5py.File, group: str, widths: dict[str, int | None]) -> dict[str, Float[np.ndarray, "..."]]:
    """Several columns of one group by name; raises ValueError unless all have the same number of rows."""
    table = {name: column(file, group, name, width) for name, width in widths.items()}
    counts = {name: values.shape[0] for name, values in table.items()}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(f"{file.filename}: {group}: expected as many rows in every dataset, got {text}")
    return table


def _header(file: h5py.File) -> dict[str, object]:
    group = file.get("Header")
    if not isinstance(group, h5py.Group):
        raise ValueError(
            f"{file.filename}: no group Header; the file has {', '.join(file) or 'nothing'}; "
            f"expected a cut-out as downloaded from the API"
        )
    return dict(group.attrs)


def _contents(file: h5py.File, group: str) -> str:
    found = names(file, group)
    return f"{group} has {', '.join(found)}" if found else f"the file has {', '.join(file) or 'nothing'}"
