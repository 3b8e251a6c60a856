"""Galaxies of snapshots and cut-outs of simulations, whole or part by part."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rubix_like.config.readers.snapshot import SnapshotReader
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.readers.birth_mass import MISSING, share_of
from rubix_like.readers.fields.field_map import Vector
from rubix_like.readers.fields.snapshot_particles import count_notes
from rubix_like.readers.fields.table_map import assumed_units
from rubix_like.readers.galaxy_frame import AbstractStars, GalaxyFrame, HeldStars, StoredStars, find_frame
from rubix_like.readers.mapped_files import check_has_stars, open_selected, open_snapshot
from rubix_like.readers.selection.halo_ids import find_entry
from rubix_like.readers.selection.selected import Selected
from rubix_like.readers.stellar_ages import Origins
from rubix_like.readers.stored_galaxy import ColumnReader, GalaxySlabs, check_columns
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent


def check_snapshot(settings: SnapshotReader) -> None:
    """Raise ValueError or OSError, as a run would, for a file or halo without stars or columns that they need.

    No particle is read.
    """
    with open_snapshot(settings) as snapshot:
        check_has_stars(snapshot)
        find_entry(settings, snapshot)
        check_columns(snapshot, settings.velocities, settings.ages)


@contextmanager
def open_snapshot_galaxy(
    settings: SnapshotReader, report: Report = silent, team: AbstractProcessGroup = SINGLE
) -> Iterator[GalaxySlabs]:
    """The galaxy, to be read part by part; its centre and bulk velocity are found first, from all its stars.

    Each process of the `team` reads its share of the stars for it, and all find the same.
    """
    with open_selected(settings, report, team) as selected:
        columns = ColumnReader(selected, settings.velocities, settings.ages)
        stars = StoredStars(selected.count("stars"), columns.stars, team, report)
        frame, notes = _find_frame(stars, selected)
        info = _info(settings, columns, frame, columns.origins(), notes)
        yield GalaxySlabs(columns, frame, info, columns.gas_quantities(team))


def load_snapshot(settings: SnapshotReader, report: Report = silent) -> tuple[Galaxy, GalaxyInfo]:
    """Read the file; raises FileNotFoundError, OSError or ValueError with place, expectation and remedy."""
    with open_selected(settings, report) as selected:
        columns = ColumnReader(selected, settings.velocities, settings.ages)
        table = columns.stars(0, selected.count("stars"), report=report)
        frame, notes = _find_frame(HeldStars(table), selected)
        stars, origins = columns.placed(table, frame)
        gas, gas_notes = None, ()
        if (n_gas := columns.n_gas()) > 0:
            gas_table, gas_notes = columns.gas(0, n_gas, report)
            gas = frame.gas(gas_table)
        info = _info(settings, columns, frame, origins, notes, gas_notes)
        return Galaxy(stars=stars, gas=gas), info


def _info(
    settings: SnapshotReader,
    columns: ColumnReader,
    frame: GalaxyFrame,
    origins: Origins,
    notes: tuple[str, ...],
    gas_notes: tuple[str, ...] = (),
) -> GalaxyInfo:
    """What is known of the galaxy beside its particles."""
    selected, snapshot = columns.selected, columns.selected.snapshot
    epoch = snapshot.epoch
    n_lacking = selected.count_without("stars", "initial_mass")
    first = settings.path if isinstance(settings.path, Path) else settings.path[0]
    numbers = (("halo", settings.halo), ("subhalo", settings.subhalo))
    return GalaxyInfo(
        name="_".join([first.stem, *(f"{kind}{number}" for kind, number in numbers if number is not None)]),
        reader=snapshot.field_map.name,
        source=snapshot.container.name,
        simulation=epoch.simulation or snapshot.field_map.title,
        redshift=epoch.redshift,
        cosmology=epoch.cosmology_text,
        universe_age=epoch.universe_age,
        n_stars=selected.count("stars"),
        n_gas=columns.n_gas(),
        center=_triple(frame.wrapped_center),
        bulk_velocity=_triple(frame.velocity),
        initial_mass=MISSING + share_of(n_lacking, selected.count("stars")) if n_lacking else "file",
        ages=origins.ages,
        metallicities=origins.metallicities,
        velocities=settings.velocities,
        notes=(
            *assumed_units(snapshot.field_map),
            *count_notes(snapshot.container),
            *columns.notes(),
            *notes,
            *origins.notes,
            *gas_notes,
        ),
    )


def _find_frame(stars: AbstractStars, selected: Selected) -> tuple[GalaxyFrame, tuple[str, ...]]:
    return find_frame(stars, selected.center, selected.snapshot.box_size, selected.center_origin)


def _triple(values: Vector) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z
