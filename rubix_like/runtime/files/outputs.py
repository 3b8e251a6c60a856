"""Places of results: checks before a run, and files that appear whole or not at all."""

import errno
import os
import re
import secrets
import shutil
import socket
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rubix_like.errors import ConfigError
from rubix_like.runtime.words import format_bytes


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


VARIABLE: str = "SOURCE_DATE_EPOCH"
"""The environment's variable with seconds since 1970 (https://reproducible-builds.org/specs/source-date-epoch)."""


def moment_of_writing() -> datetime:
    """Now, or where `SOURCE_DATE_EPOCH` is set the moment that it states (UTC). Raises ConfigError for no number."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return datetime.now(UTC)
    try:
        return datetime.fromtimestamp(int(text), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(
            f"{VARIABLE}: expected seconds since 1970 as a whole number, got '{text}' in the environment ({error}); "
            f"set it to such a number, e.g. 1700000000, or unset it"
        ) from error


def date_words() -> str:
    """`2023-11-14T22:13:20`: the moment of writing as files state it (UTC)."""
    return moment_of_writing().strftime("%Y-%m-%dT%H:%M:%S")


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS)

_OWN = "rubix-like"
"""Part of the name of every file that only this package opens."""

_TEMPORARY = re.compile(rf"\.{_OWN}-(?P<host>[A-Za-z0-9]+)-(?P<process>[0-9a-f]{{6}})[0-9a-f]{{6}}-(?P<name>.+)")

FOLDER_SUFFIX: str = ".zarr"
"""End of the name of an output that is a folder: a Zarr store."""

FOLDER_HEAD: str = "zarr.json"
"""The file by which such a folder is known."""

_LONGEST_NAME = 255
"""Bytes of the name of a file on the usual file systems."""


def check_writable(path: str | Path, n_bytes: int) -> None:
    """Raise unless a file of `n_bytes` can be written at `path`: to be called before a long run.

    A file is made in its folder and removed, since permissions alone do not tell (a read-only disk, a long name).
    Raises FileNotFoundError (no such folder), NotADirectoryError, IsADirectoryError (`path` is a folder),
    PermissionError, or OSError (the name is too long, the disk has less than `n_bytes` left); each message holds the
    path and the remedy.
    """
    path = Path(path).expanduser()
    folder = path.parent
    longest = _LONGEST_NAME - len(f".{_OWN}-{_host()}-{secrets.token_hex(6)}-")
    length = len(os.fsencode(path.name))
    if length > longest:
        raise OSError(
            f"cannot write {path}: expected a name of at most {longest} bytes, got one of {length}; choose a shorter "
            f"name"
        )
    if path.is_dir() and not is_store(path):
        raise IsADirectoryError(f"cannot write {path}: it is a folder; add a file name, e.g. {path / 'cube.fits'}")
    if not folder.exists():
        raise FileNotFoundError(
            f"cannot write {path}: the folder {folder} does not exist; create it (mkdir -p {folder}) or choose another"
        )
    if not folder.is_dir():
        raise NotADirectoryError(f"cannot write {path}: {folder} is a file, not a folder; choose another path")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"cannot write {path}: no permission to write in {folder}; choose another folder")
    with explained(path), temporary_file(path):
        pass
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
    with explained(path), temporary_file(path) as temporary:
        yield temporary
        put_in_place(temporary, path)


def is_store(path: Path) -> bool:
    """Whether a path is an output that is a folder."""
    return path.name.lower().endswith(FOLDER_SUFFIX) and (path / FOLDER_HEAD).is_file()


def files_of_others(path: Path) -> list[Path]:
    """The files in a folder, where an output is expected, that no Zarr store has; hidden files are not counted."""
    if path.is_dir() and not is_store(path):
        return [path]
    inner = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []
    chunks = {file for file in inner if "c" in file.relative_to(path).parts}
    return [file for file in inner if file.name[0] != "." and file.name != FOLDER_HEAD and file not in chunks]


def output_bytes(path: Path) -> int | None:
    """The size of an output, of a folder all its files together; None where there is none."""
    if is_store(path):
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.is_file() else None


def put_in_place(temporary: Path, path: Path) -> None:
    """Rename an output to its name; an older one is replaced.

    Of folders the older one is set aside, and removed once the new one is there. Raises OSError, also for another
    folder than an output of ours.
    """
    if not (temporary.is_dir() or is_store(path)):
        os.replace(temporary, path)
        return
    if path.is_dir() and not is_store(path):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, but no Zarr store", str(path))
    with temporary_file(path) as aside:
        is_replaced = path.exists()
        if is_replaced:
            aside.unlink()
            os.rename(path, aside)
        try:
            os.rename(temporary, path)
        except OSError:
            if is_replaced:
                os.rename(aside, path)
            raise


def remove_output(path: Path) -> None:
    """Remove a file, or a folder with what is in it; nothing where there is none."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """A new, empty file beside `path`, `.rubix-like-HOST-NUMBERS-NAME`; if it is still there after the block, it goes.

    Its numbers are that of the process, and a random one. A signal may come at any moment: the file is made where it is
    sure to be removed. Raises OSError where none can be made.
    """
    begin = f".{_OWN}-{_host()}-{os.getpid() % (1 << 24):06x}"
    while (temporary := path.with_name(f"{begin}{secrets.token_hex(3)}-{path.name}")).exists():
        pass
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
    finally:
        remove_output(temporary)


def own_name(path: Path, purpose: str) -> Path:
    """A file that goes with `path` while it is made, under a name that is no user's: `.fit.h5.rubix-like-PURPOSE`."""
    return path.with_name(f".{path.name}.{_OWN}-{purpose}")


def remove_stale(paths: Iterable[Path]) -> int:
    """Remove what dead processes left of these files (the temporary names of `replacing`); returns their number.

    To be called while nobody else writes them.
    """
    stale = [temporary for temporary, _ in _temporaries(paths)]
    for temporary in stale:
        remove_output(temporary)
    return len(stale)


def remove_abandoned(paths: Iterable[Path]) -> None:
    """Remove what processes of this computer that are no more left of these files; others may be writing them."""
    for temporary, found in _temporaries(paths):
        if found["host"] != _host():
            continue
        try:
            os.kill(int(found["process"], 16), 0)
        except OSError as error:
            if error.errno == errno.ESRCH:  # else another user's
                remove_output(temporary)


def _temporaries(paths: Iterable[Path]) -> list[tuple[Path, re.Match[str]]]:
    wanted = {(path.parent, path.name) for path in paths}
    return [
        (temporary, found)
        for folder in {folder for folder, _ in wanted}
        for temporary in folder.glob(f".{_OWN}-*")
        if (found := _TEMPORARY.fullmatch(temporary.name)) and (folder, found["name"]) in wanted
    ]


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """An OSError inside (disk full, no permission) is raised again as an OSError that holds the path and the remedy."""
    try:
        yield
    except OSError as error:
        raise OSError(f"cannot write {path}: {_reason(path.parent, error)}") from error


def _host() -> str:
    """The computer's name, as much of it as names of files need."""
    return re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:16] or "host"


def _reason(folder: Path, error: OSError) -> str:
    code = _error_number(error)
    short_write = " requested and " in str(error)  # words of numpy, without an error number
    if code in _NO_SPACE or short_write:
        free = format_bytes(shutil.disk_usage(folder).free)
        return f"the disk or the quota is full ({free} free in {folder}); free some space or choose another disk"
    if code in _NOT_ALLOWED:
        return f"no permission to write in {folder}; choose another folder"
    if code in (errno.ENOENT, errno.ENOTDIR):
        return f"the folder {folder} does not exist; create it (mkdir -p {folder}) or choose another"
    return f"{error}; choose another path"


def _error_number(error: BaseException | None) -> int | None:
    """errno of an OSError or of the one it was raised from (astropy raises one of its errors, without a number)."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


Named = tuple[str, Path]
"""What a file is (a dotted setting, an option) and its path."""

_LONGEST_TEXT = 1000


def given_files(places: Mapping[str, object]) -> Iterator[Named]:
    """Paths that were given beside the settings, by their names, and texts, which may be paths."""
    for name, value in places.items():
        if isinstance(value, str | Path):
            yield name, Path(os.path.expanduser(value))


def check_separate(written: Iterable[Path], read: Iterable[Named], setting: str) -> None:
    """Raise ConfigError, naming `setting`, where a file that will be written is one that is read, or a link to it.

    To be called before anything is computed. Files that there are not yet are compared by their resolved names.
    """
    known: dict[object, tuple[str, Path]] = {}
    for name, path in read:
        known |= dict.fromkeys(_identities(path), (name, path))
    for path in written:
        lost = next((known[identity] for identity in _identities(path) if identity in known), None)
        if lost is not None:
            raise ConfigError(
                f"{setting}: expected other files than those that are read, got '{path}', which is '{lost[1]}' "
                f"({lost[0]}) and would be replaced; choose another name (output=...)"
            )


def _identities(path: Path) -> Iterator[object]:
    """The identities of a file: its name without links, and where there is one its place on the disk."""
    name = os.path.expanduser(path)
    with suppress(OSError, ValueError):  # a name that cannot be one
        yield os.path.realpath(name)
    with suppress(OSError, ValueError):  # there is no file yet, or none that can be looked at
        status = os.stat(name)
        yield status.st_dev, status.st_ino


def paths_in(value: Any, key: str = "") -> Iterator[Named]:
    """Every path among settings, and every text that is the name of a file, with their dotted keys."""
    for name, text in _texts_in(value, key):
        if isinstance(text, Path) or (Path(text).suffix != "" and _has_kind(text, stat.S_ISREG)):
            yield name, Path(text).expanduser()


def check_regular(value: Any, key: str) -> None:
    """Raise ConfigError for a path, or one among settings, that is neither a file nor a folder.

    Reading a pipe or a device such as /dev/zero may never end.
    """
    for name, text in _texts_in(value, key):
        if _has_kind(text, lambda mode: not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))):
            raise ConfigError(
                f"{name}: expected a file or a folder, got '{text}', which is a pipe or a device; write what "
                f"comes from it into a file, and give that"
            )


def _texts_in(value: Any, key: str) -> Iterator[tuple[str, str | Path]]:
    """Every path and every text among settings, with its dotted key."""
    if isinstance(value, str | Path):
        yield key, value
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _texts_in(part, f"{key}.{name}".strip("."))
    if isinstance(value, list | tuple):
        for part in value:
            yield from _texts_in(part, key)


def _has_kind(name: str | Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether there is something of a kind, by the mode of its status, under a name."""
    try:
        return len(str(name)) < _LONGEST_TEXT and is_kind(Path(name).expanduser().stat().st_mode)
    except (OSError, ValueError, RuntimeError):  # nothing there, a null character, the home of an unknown user
        return False
