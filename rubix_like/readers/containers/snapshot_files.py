"""Find the files of one snapshot (or group catalogue) from a list, a pattern, a folder or one of them."""

import glob
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

from rubix_like.readers.containers.container import AbstractContainer, as_number
from rubix_like.readers.containers.joined import JoinedContainer
from rubix_like.readers.containers.opening import open_container, refuse_ours

_NUMBERED = re.compile(r"(?P<stem>.+\.)(?P<number>\d+)(?P<suffix>\.(?:hdf5|h5|hdf))?")
_SUFFIXES = (".hdf5", ".h5", ".hdf")
_FILE_COUNTS = ("NumFilesPerSnapshot", "NumFiles")
_SHOWN = 5


@contextmanager
def open_files(
    given: Path | tuple[Path, ...], key: str = "galaxy.path", by_pynbody: bool = False
) -> Iterator[tuple[AbstractContainer, str]]:
    """The open snapshot in these files, as one, and its kind ("hdf5", ...); `key` names the setting in messages.

    One path may be a pattern (snap_099.*.hdf5), a folder, or a numbered file of a snapshot whose Header tells of
    several: then all of them are found. Paths in a list are taken as they are. Raises FileNotFoundError, OSError or
    ValueError, naming files that are missing or there twice.
    """
    alone = isinstance(given, Path)
    paths = _expanded(given.expanduser(), key) if alone else tuple(path.expanduser() for path in given)
    _check_there_once(paths, key)
    with ExitStack() as stack:
        opened, kind = stack.enter_context(open_container(paths[0], by_pynbody))
        whole = _whole(paths, _file_count(opened), key) if alone else paths
        if len(whole) == 1:
            yield opened, kind
            return
        parts = [opened if path == paths[0] else _open_alike(stack, path, kind, key, by_pynbody) for path in whole]
        yield JoinedContainer.from_parts(f"{whole[0]} and {len(whole) - 1} more", tuple(parts)), kind


def single_file_bytes(given: Path | tuple[Path, ...]) -> int | None:
    """The size of a file, where a path can only stand for the one that it names."""
    if not isinstance(given, Path):
        return None
    path = given.expanduser()
    return path.stat().st_size if path.is_file() and _split(path) is None else None


def _open_alike(stack: ExitStack, path: Path, kind: str, key: str, by_pynbody: bool) -> AbstractContainer:
    try:
        container, own_kind = stack.enter_context(open_container(path, by_pynbody))
    except OSError as error:
        if "Too many open files" not in str(error):
            raise
        raise OSError(
            f"{key}: '{path}' cannot be opened: too many open files at once; raise the limit (ulimit -n 4096)"
        ) from error
    if own_kind != kind:
        raise ValueError(f"{key}: expected files of one kind, got {kind} and {own_kind} ('{path}')")
    return container


def _expanded(path: Path, key: str) -> tuple[Path, ...]:
    """The files that a pattern or a folder stands for, in the order of their numbers; else the path itself."""
    if path.is_dir():
        refuse_ours(path)
        return _in_folder(path, key)
    if path.exists() or not glob.has_magic(str(path)):
        return (path,)
    found = [Path(name) for name in glob.glob(str(path))]
    if not found:
        raise FileNotFoundError(f"{key}: no file matches '{path}'; set it to the files of a snapshot")
    return tuple(sorted(found, key=_order))


def _in_folder(folder: Path, key: str) -> tuple[Path, ...]:
    """The snapshot in a folder; the folder itself where it has neither numbered files nor HDF5."""
    found = [path for path in folder.iterdir() if path.is_file() and (_split(path) or path.suffix in _SUFFIXES)]
    families = {(split[0], split[2]) if (split := _split(path)) else (path.name, "") for path in found}
    if len(families) > 1:
        names = ", ".join(sorted(path.name for path in found)[:_SHOWN])
        raise ValueError(
            f"{key}: expected one snapshot in '{folder}', got files of {len(families)} names ({names}, ...); name the "
            f"files by a pattern, e.g. snap_099.*.hdf5"
        )
    return tuple(sorted(found, key=_order)) or (folder,)


def _whole(paths: tuple[Path, ...], n_files: int, key: str) -> tuple[Path, ...]:
    """All files of the snapshot that these belong to; raises ValueError, FileNotFoundError for a missing one."""
    split = _split(paths[0])
    if len(paths) == 1 and (n_files == 1 or split is None):
        return paths
    if n_files == 1 or split is None:
        raise ValueError(
            f"{key}: expected the parts of one snapshot, got {len(paths)} files ({_names(paths)}), of which the first "
            f"tells of {n_files} in its Header; to join files that are no numbered parts, list them one by one"
        )
    found = _parts(paths, split, key)
    for number, twins in found.items():
        if len(twins) > 1:
            raise ValueError(f"{key}: part {number} is there twice: {_names(tuple(sorted(twins)))}; remove one")
    stem, _, suffix = split
    n_missing = n_files - sum(number < n_files for number in found)
    if n_missing:
        missing = (f"{stem}{number}{suffix}" for number in range(n_files) if number not in found)
        more = f" and {n_missing - _SHOWN} more" if n_missing > _SHOWN else ""
        raise FileNotFoundError(
            f"{key}: the snapshot has {n_files} files, of which {n_missing} are missing in '{paths[0].parent}': "
            f"{', '.join(islice(missing, _SHOWN))}{more}; download them"
        )
    beyond = next((twins[0] for number, twins in found.items() if number >= n_files), None)
    if beyond is not None:
        raise ValueError(
            f"{key}: the Header of '{paths[0].name}' tells of {n_files} files, but there is '{beyond.name}'; remove "
            f"the files of another snapshot"
        )
    return tuple(found[number][0] for number in range(n_files))


def _parts(paths: tuple[Path, ...], split: tuple[str, int, str], key: str) -> dict[int, list[Path]]:
    """The files by number: these, or where there is only one the files beside it that are named alike."""
    alone = len(paths) == 1
    found: dict[int, list[Path]] = {}
    for path in paths[0].parent.iterdir() if alone else paths:
        own = _split(path)
        if own is not None and (own[0], own[2]) == (split[0], split[2]):
            found.setdefault(own[1], []).append(path)
        elif not alone:
            raise ValueError(f"{key}: '{path}' is not named like '{paths[0].name}'; expected the parts of one snapshot")
    return found


def _check_there_once(paths: tuple[Path, ...], key: str) -> None:
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{key}: no file '{path}'; set {key} to a file that is there")
        if (real := path.resolve()) in seen:
            raise ValueError(f"{key}: '{path}' is there twice; its particles would count twice: name it once")
        seen.add(real)


def _file_count(container: AbstractContainer) -> int:
    """How many files the snapshot has, by its Header; 1 where it does not say."""
    counts = [as_number(container.attribute("Header", name)) for name in _FILE_COUNTS]
    return max(int(next((count for count in counts if count is not None), 1)), 1)


def _split(path: Path) -> tuple[str, int, str] | None:
    """(stem, number, suffix) of the name of a part: snap_099.12.hdf5 is ("snap_099.", 12, ".hdf5")."""
    match = _NUMBERED.fullmatch(path.name)
    return None if match is None else (match["stem"], int(match["number"]), match["suffix"] or "")


def _order(path: Path) -> tuple[str, int, str]:
    return _split(path) or (path.name, 0, "")


def _names(paths: tuple[Path, ...]) -> str:
    text = ", ".join(path.name for path in paths[:_SHOWN])
    return text if len(paths) <= _SHOWN else f"{text}, ..."


def sisters(path: Path) -> list[Path]:
    """The files beside a numbered one that are named alike, itself among them; a file without a number alone."""
    split = _split(path)
    if split is None:
        return [path]
    found = [
        own for own in path.parent.iterdir() if (other := _split(own)) and (other[0], other[2]) == (split[0], split[2])
    ]
    return sorted(found, key=_order)
