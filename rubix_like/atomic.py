"""Where results go: checks that can be made before a run, and files that appear whole or not at all."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rubix_like.memory import format_bytes

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)

_WRITING: set[Path] = set()
"""Temporary files that this process is writing now, for a thread that must end it at once."""


def check_writable(path: str | Path, n_bytes: int) -> None:
    """Raise unless a file of `n_bytes` can be written at `path`: to be called before a long run.

    Raises FileNotFoundError (no such folder), NotADirectoryError, IsADirectoryError (`path` is a folder),
    PermissionError, or OSError (the disk has less than `n_bytes` left); each message holds the path and the remedy.
    """
    path = Path(path).expanduser()
    folder = path.parent
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; add a file name, e.g. {path / 'cube.fits'}")
    if not folder.exists():
        raise FileNotFoundError(
            f"cannot write {path}: the folder {folder} does not exist; create it (mkdir -p {folder}) or choose another"
        )
    if not folder.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {folder} is a file, not a folder; choose another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {path}: no permission to write in {folder}; choose another folder")
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise OSError(
            f"cannot write {path}: about {format_bytes(n_bytes)} are needed and {format_bytes(free)} are free in "
            f"{folder}; free some space or choose another disk"
        )


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary name beside `path` to write to; on success it is renamed to `path`, on any failure removed.

    The temporary name ends like `path`, so that writers that go by the suffix do the same thing. An OSError inside
    (disk full, no permission) is raised again as an OSError that holds the path and the remedy.
    """
    path = Path(path).expanduser()
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    _WRITING.add(temporary)
    with explained(path):
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
            _WRITING.discard(temporary)


@contextmanager
def announced(temporary: Path) -> Iterator[None]:
    """Inside, a file is removed by `remove_temporaries`, in whichever way it is written."""
    _WRITING.add(temporary)
    try:
        yield
    finally:
        _WRITING.discard(temporary)


def remove_temporaries() -> None:
    """Remove whatever this process is writing: for when it ends at once, without its usual way out."""
    for temporary in tuple(_WRITING):
        temporary.unlink(missing_ok=True)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """An OSError inside (disk full, no permission) is raised again as an OSError that holds the path and the remedy."""
    try:
        yield
    except OSError as error:
        raise OSError(f"cannot write {path}: {_reason(path.parent, error)}") from error


def _reason(folder: Path, error: OSError) -> str:
    """What went wrong in words, and the remedy."""
    code = _error_number(error)
    short_write = " requested and " in str(error)  # numpy's own words, without an error number
    if code in _NO_SPACE or short_write:
        free = format_bytes(shutil.disk_usage(folder).free)
        return f"the disk or the quota is full ({free} free in {folder}); free some space or choose another disk"
    if code in _NOT_ALLOWED:
        return f"no permission to write in {folder}; choose another folder"
    if code in (errno.ENOENT, errno.ENOTDIR):
        return f"the folder {folder} does not exist; create it (mkdir -p {folder}) or choose another"
    return f"{error}; choose another path"


def _error_number(error: BaseException | None) -> int | None:
    """errno of an OSError or of the one it was raised from (astropy raises its own without a number)."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None
