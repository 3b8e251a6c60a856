"""The halo or subhalo of the settings in the group catalogue of a snapshot."""

from rubix_like.readers.catalogue import Entry, find_halo, find_subhalo, nearest_with_particles
from rubix_like.readers.container import AbstractContainer, as_number
from rubix_like.readers.epoch import SAME_TIME
from rubix_like.readers.particles import Snapshot
from rubix_like.readers.selection import AbstractSelection
from rubix_like.readers.snapshot_files import open_files


def find_entry(selection: AbstractSelection, snapshot: Snapshot) -> Entry | None:
    """What the catalogue says of the selected halo or subhalo, None without a catalogue.

    Raises ValueError where it is of another time, has no such number, or the halo or subhalo has no stars.
    """
    if not selection.catalogue:
        return None
    with open_files(selection.catalogue, "galaxy.catalogue") as (catalogue, _):
        _check_time(catalogue, snapshot)
        halo = None if selection.halo is None else find_halo(catalogue, selection.halo)
        if selection.subhalo is None:
            assert halo is not None
            _check_stars(catalogue, halo, snapshot)
            return halo
        entry = find_subhalo(catalogue, selection.subhalo)
        _check_stars(catalogue, entry, snapshot)
        if halo is not None:
            _check_host(entry, halo)
        return entry


def _check_time(catalogue: AbstractContainer, snapshot: Snapshot) -> None:
    """Catalogue and snapshot are of one time, where both tell it."""
    time, own = as_number(catalogue.attribute("Header", "Time")), snapshot.epoch.time
    if time is not None and own and abs(time / own - 1.0) > SAME_TIME:
        raise ValueError(
            f"galaxy.catalogue: '{catalogue.name}' is of time {time:.6g}, the snapshot '{snapshot.container.name}' of "
            f"{own:.6g}; take the catalogue of the same snapshot"
        )


def _check_stars(catalogue: AbstractContainer, entry: Entry, snapshot: Snapshot) -> None:
    """The halo or subhalo has particles of a type that counts as stars."""
    kinds = [int(group[-1]) for group in snapshot.groups("stars") if group[-1:].isdigit()]
    own = [kind for kind in kinds if kind < entry.length.size]
    if not own or entry.length[own].any():
        return
    nearest = nearest_with_particles(catalogue, entry, own[0])
    found = f"the nearest number with stars is {nearest}" if nearest is not None else "and none near it has stars"
    raise ValueError(f"galaxy.{entry.kind}: {entry.title} of '{catalogue.name}' has no stars; {found}")


def _check_host(entry: Entry, halo: Entry) -> None:
    """The subhalo's rows are among the halo's."""
    filled = entry.length > 0
    before = entry.first[filled] < halo.first[filled]
    beyond = entry.first[filled] + entry.length[filled] > halo.first[filled] + halo.length[filled]
    if before.any() or beyond.any():
        raise ValueError(f"galaxy.halo: {entry.title} is not in {halo.title}; leave galaxy.halo out to select it")
