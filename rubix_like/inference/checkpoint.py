"""Checkpoints: a fit that was ended, in whatever way, goes on from its last one as if nothing had happened."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import numpy as np
from filelock import FileLock, Timeout
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.inference.posterior.problem import Problem
from rubix_like.runtime.arrays_on_disk import key_of
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import check_packed
from rubix_like.runtime.files.outputs import explained, own_name, remove_stale, replacing
from rubix_like.runtime.notes import Note, as_notes, tagged, tags_of
from rubix_like.runtime.words import reason_of

Fingerprint = Mapping[str, str]
"""A part of a fit, in words -> something that differs where that part does."""

SECONDS: float = 1.0
"""Between two checkpoints, at least, except at the end of a start."""

_SHARE = 0.1
"""Largest share of the time that goes into checkpoints."""

_FINGERPRINT, _NOTES, _TAGS, _POINTS, _DIGEST = "fingerprint", "notes", "tags_of_notes", "points", "digest"

_LAYOUT = 2
"""Layout of a search's checkpoint; 2: with a reserve of candidates."""

_FITTERS = ("rubix_like", "jax", "jaxlib", "equinox", "numpy", "scipy", "optax", "optimistix", "lineax")


_UNREADABLE_WORDS = (
    "{}: expected the checkpoint of a fit, but it cannot be read ({}); start anew with restart=True, which replaces it"
)


@runtime_checkable
class Resumable(Protocol):
    """The content of a checkpoint: a search, or chains, between two steps."""

    @property
    def n_ended(self) -> int:
        """How many of its parts are over."""
        ...

    def arrays(self) -> dict[str, ndarray]:
        """Everything by name."""
        ...


Kept = TypeVar("Kept", bound=Resumable)


def save(
    path: Path, snapshot: Resumable, fingerprint: Fingerprint, notes: Sequence[str] = (), points: int | None = None
) -> None:
    """Keep a search, or chains, whole or not at all; `notes`: what else will have to be said of the result; `points`:
    of the quadrature of each component, where a number is set."""
    with replacing(path) as temporary:
        known = as_notes(notes)
        words = {_FINGERPRINT: dict(fingerprint), _NOTES: known, _TAGS: tags_of(known), _POINTS: points}
        arrays = {**snapshot.arrays(), **{name: np.array(json.dumps(word)) for name, word in words.items()}}
        np.savez(temporary, allow_pickle=False, **arrays, **{_DIGEST: np.array(_digest(arrays))})


def load_checkpoint(path: Path, fingerprint: Fingerprint, read: Callable[[Mapping[str, ndarray]], Kept]) -> Kept | None:
    """The content that was kept, as `read` makes it of its arrays; None where there is nothing.

    Raises ConfigError for that of another fit, and for a file that cannot be read.
    """
    try:
        check_packed(path)
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        if str(arrays.pop(_DIGEST)) != _digest(arrays):
            raise ValueError("its content does not match its checksum")
        found: dict[str, str] = json.loads(str(arrays.pop(_FINGERPRINT)))
        other = [what for what in {**found, **fingerprint} if found.get(what) != fingerprint.get(what)]
        snapshot = None if other else read(arrays)
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        raise ConfigError(_UNREADABLE_WORDS.format(path, reason_of(error))) from error
    if other:
        raise ConfigError(
            f"{path}: expected the checkpoint of this fit or sampling, got that of one that differs in: "
            f"{'; '.join(other)}. Write to another place (output=...), or start anew with restart=True, which replaces "
            f"it"
        )
    return snapshot


def _digest(arrays: Mapping[str, ndarray]) -> str:
    return key_of(*(part for name in sorted(arrays) for part in (name, arrays[name])))


def kept_notes(path: Path) -> tuple[Note, ...]:
    """The notes beside what was kept."""
    with path.open("rb") as stream, np.load(stream) as file:
        tags = json.loads(str(file[_TAGS])) if _TAGS in file else []
        return tagged(json.loads(str(file[_NOTES])), tags)


def kept_points(path: Path) -> int | None:
    """The number of quadrature points of what was kept; raises ConfigError where the file cannot be read."""
    try:
        with path.open("rb") as stream, np.load(stream) as file:
            return json.loads(str(file[_POINTS]))
    except UNREADABLE as error:
        raise ConfigError(_UNREADABLE_WORDS.format(path, reason_of(error))) from error


def advance(snapshots: Iterable[Kept], keep: Callable[[Kept], None], see: Callable[[Kept], None]) -> Kept:
    """Run a search, or a sampler, to its end; returns the last snapshot.

    Each is shown to `see`; `keep` gets one about every second, one whenever a part of it ends, and, when it is left
    by an exception (SIGTERM and Ctrl-C are such), the last.
    """
    latest: Kept | None = None
    kept, n_ended, due = None, 0, time.monotonic() + SECONDS
    try:
        for latest in snapshots:
            see(latest)
            if n_ended == (n_ended := latest.n_ended) and time.monotonic() < due:
                continue
            begun = time.monotonic()
            keep(latest)
            kept = latest
            due = time.monotonic() + max(SECONDS, (time.monotonic() - begun) / _SHARE)
    except BaseException:
        if latest is not kept and latest is not None:
            keep(latest)
        raise
    if latest is None:
        raise ValueError("expected at least one snapshot, got none")
    return latest


@contextmanager
def claimed(output: Path, *written: Path) -> Iterator[None]:
    """Inside, this process alone writes the files of a fit; what dead ones left half-written is removed.

    The operating system frees the claim of a process that ends, however it does. Raises ConfigError where another
    process has it.
    """
    place = own_name(output, "lock")
    lock = FileLock(place, timeout=0)
    with explained(output):
        try:
            lock.acquire()
        except Timeout:
            raise ConfigError(
                f"{output}: another process is at work on it; wait for it, or write to another place (output=...)"
            ) from None
    try:
        remove_stale(written)
        yield
    finally:
        place.unlink(missing_ok=True)
        lock.release()


def fingerprint_of(problem: Problem) -> dict[str, str]:
    """A fingerprint of everything that the numbers of a fit depend on."""
    posterior, settings = problem.posterior, problem.settings
    forward = posterior.forward
    mesh, (plan, model) = forward.main.layout.mesh, forward.planned
    search = settings.model_dump(include={"optimiser", "starts", "candidates", "starts_from", "generations", "seed"})
    devices = f"{[device.device_kind for device in mesh.devices.flat]} {dict(mesh.shape)}"
    return {
        "layout of the checkpoint": str(_LAYOUT),
        "data, errors or windows": key_of(jax.tree.structure(posterior.likelihood), *host_leaves(posterior.likelihood)),
        "free parameters or priors": key_of(jax.tree.structure(posterior.free), *host_leaves(posterior.free)),
        "start": key_of(None if problem.start is None else np.asarray(problem.start)),
        "galaxy": key_of(*host_leaves(forward.source)),
        "model": key_of(plan, jax.tree.structure(model), *host_leaves(model)),
        "search (optimiser, starts, candidates, starts_from, generations or seed)": repr(search),
        "precision": str(jax.dtypes.canonicalize_dtype(float)),
        "devices": devices,
        "version of the packages": json.dumps(versions()),
    }


def versions(*others: str) -> dict[str, str]:
    """Versions of the packages that the numbers of a fit come from, and of `others`: those that are installed."""
    return versions_of(*_FITTERS, *others)


def versions_of(*packages: str) -> dict[str, str]:
    """Versions of packages: of those that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def host_leaves(tree: Any) -> list[ndarray]:
    """The arrays of a pytree on the host."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
