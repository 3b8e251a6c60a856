"""Galaxies of snapshots and cut-outs of simulations, whole or part by part."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import accumulate, chain
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.readers.snapshot import AgeRecipe, SnapshotReader
from rubix_like.galaxy.galaxy_parts import check_range
from rubix_like.galaxy.particles import CELL_RADII, Galaxy, GalaxyInfo, Gas, Stars
from rubix_like.galaxy.validation import whole_number_notes
from rubix_like.readers.derived_columns import (
    IONISED_FROM,
    PRIMORDIAL_HYDROGEN,
    age_source,
    assumed_temperature,
    gas_temperature,
)
from rubix_like.readers.fields.field_map import REQUIRED, Table, Vector
from rubix_like.readers.fields.snapshot_particles import Snapshot, count_notes, find_whole_numbers
from rubix_like.readers.fields.table_map import assumed_units
from rubix_like.readers.galaxy_frame import GalaxyFrame, StoredStars, find_frame, held_stars
from rubix_like.readers.galaxy_loading import MISSING, share_of
from rubix_like.readers.mapped_files import check_has_stars, open_selected, open_snapshot
from rubix_like.readers.selection.halo_ids import find_entry
from rubix_like.readers.selection.selected import Selected
from rubix_like.readers.stellar_ages import Origins, ages_and_metallicities, check_ages, drawn_origins
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent

_OPTIONAL = tuple(field.name for field in fields(Gas) if field.default is None and field.name != "weight")


def complete_gas(table: Table) -> tuple[Table, tuple[str, ...]]:
    """The columns of gas with temperature and smoothing length where they can be derived, and notes.

    Temperatures that the file has not come from the internal energy, with hydrogen 0.76 and `assumed_temperature` where
    fractions and electron abundance are missing; smoothing lengths from mass and density. A column that is known of
    some of the particles only is left out.
    """
    unknown = np.full(len(table["mass"]), np.nan)
    known = {name: table.get(name, unknown) for name in _OPTIONAL}
    energy, electrons, hydrogen = (
        known[name] for name in ("internal_energy", "electron_abundance", "hydrogen_fraction")
    )
    hydrogen = np.where(np.isnan(hydrogen), PRIMORDIAL_HYDROGEN, hydrogen)
    derived = np.isnan(known["temperature"]) & ~np.isnan(energy)
    assumed = derived & np.isnan(electrons)
    computed = np.where(
        assumed, assumed_temperature(energy, hydrogen), gas_temperature(energy, np.nan_to_num(electrons), hydrogen)
    )
    length, from_cell = known["smoothing_length"], cell_length(table["mass"], known["density"])
    found = known | {
        "temperature": np.where(derived, computed, known["temperature"]),
        "smoothing_length": np.where(np.isnan(length), from_cell, length),
    }
    partly = [name for name in _OPTIONAL if 0 < np.count_nonzero(np.isnan(found[name])) < unknown.size]
    kept = {name: values for name, values in found.items() if not np.isnan(values).any()}
    others = {name: values for name, values in table.items() if name not in _OPTIONAL}
    notes = [
        Note("gas.partly_known", f"{name} of the gas left out: only some of it has one", WARNING) for name in partly
    ]
    if assumed.any() and "temperature" in kept:
        notes.append(
            Note(
                "gas.assumed_ionisation",
                f"gas temperatures take gas as neutral below {IONISED_FROM:g} K and ionised above: the file has no "
                f"electron abundance of {np.count_nonzero(assumed)} of {assumed.size} particles",
            )
        )
    return others | kept, tuple(notes)


def cell_length(mass: Float[ndarray, " particle"], density: Float[ndarray, " particle"]) -> Float[ndarray, " particle"]:
    """Smoothing length in kpc, 2 (3 m / (4 pi rho))^(1/3): twice the radius of a sphere of the cell's volume.

    NaN where the density is 0 or unknown. Mass in Msun, density in Msun / kpc^3.
    """
    volume = mass / np.where(density > 0, density, np.nan)
    return CELL_RADII * np.cbrt(3 * volume / (4 * np.pi))


_AT_REST = "set galaxy.velocities: zero for particles at rest"


def check_columns(snapshot: Snapshot, velocities: Literal["file", "zero"], ages: AgeRecipe | None) -> None:
    """Raise ValueError, as reading its stars would, for a file with no column of what they need; none is read."""
    known = snapshot.available("stars")
    for quantity in REQUIRED["stars"]:
        if quantity not in known:
            raise ValueError(snapshot.missing("stars", quantity))
    if velocities == "file" and "velocity" not in known:
        raise ValueError(snapshot.missing("stars", "velocity", _AT_REST))
    if ages is None:
        check_ages(snapshot)


@dataclass(frozen=True)
class ColumnReader:
    """The columns of the selected particles with what the settings say of velocities and ages."""

    selected: Selected
    velocities: Literal["file", "zero"] = "file"
    ages: AgeRecipe | None = None

    def stars(self, start: int, stop: int, quantities: Collection[str] | None = None, report: Report = silent) -> Table:
        """Columns of stars; raises ValueError where velocities are among them and the file cannot tell them."""
        known = self.selected.snapshot.available("stars")
        wanted = None if quantities is None else [name for name in quantities if name in known]
        table = self.selected.read("stars", start, stop, wanted, report)
        if quantities is not None and "velocity" not in quantities:
            return table
        if self.velocities == "zero":
            table |= {"velocity": np.zeros_like(table["position"])}
        if not np.isfinite(table.get("velocity", np.nan)).all():
            raise ValueError(self.selected.snapshot.missing("stars", "velocity", _AT_REST))
        return table

    def placed(self, table: Table, frame: GalaxyFrame) -> tuple[Stars, Origins]:
        """The stars of a table in the frame, with ages and metallicities of the file or recipe, and their origins."""
        columns, origins = ages_and_metallicities(self.selected.snapshot, table, frame, self.ages)
        return frame.stars(table | columns), origins

    def origins(self) -> Origins:
        """The origins of ages and metallicities of all selected stars; reads none of them."""
        if self.ages is None:
            return Origins()
        selected = self.selected
        source = age_source(selected.snapshot.available("stars"))
        n_ageless, n_metalless = (selected.count_without("stars", name) for name in (source, "metallicity"))
        return drawn_origins(selected.snapshot, self.ages, n_ageless, n_metalless, selected.count("stars"))

    def gas(self, start: int, stop: int, report: Report = silent) -> tuple[Table, tuple[str, ...]]:
        """Gas with velocities and what other quantities tell, and notes on it."""
        table = self.selected.read("gas", start, stop, report=report)
        if self.velocities == "zero":
            table |= {"velocity": np.zeros_like(table["position"])}
        return complete_gas(table)

    def gas_quantities(self, team: AbstractProcessGroup = SINGLE) -> frozenset[str]:
        """The columns that gas has in all groups, from the first selected particle of each, in whose share it is."""
        places = list(accumulate(self.selected.by_group("gas").values(), initial=0))[:-1] if self.n_gas() else []
        first, last = team.share(self.n_gas())

        def in_share() -> list[set[str]]:
            return [set(self.gas(place, place + 1)[0]) for place in places if first <= place < last]

        found = list(chain(*team.exchange(in_share)))
        return frozenset(set.intersection(*found)) if found else frozenset()

    def n_gas(self) -> int:
        """Number of selected gas particles; 0 where the file lacks quantities that gas needs."""
        return 0 if self.lacking_of_gas() else self.selected.count("gas")

    def lacking_of_gas(self) -> list[str]:
        """Datasets that gas needs and the file has not."""
        snapshot = self.selected.snapshot
        needed = ("position", "mass", *(("velocity",) if self.velocities == "file" else ()))
        return [
            snapshot.field_name("gas", quantity, group)
            for group in snapshot.groups("gas")
            for quantity in needed
            if quantity not in snapshot.quantities("gas", group)
        ]

    def notes(self) -> tuple[str, ...]:
        """Sentences on what was selected, left out and set."""
        snapshot, notes = self.selected.snapshot, list(self.selected.notes)
        for family, number in self.selected.left_out.items():
            if number:
                notes.append(Note("selection.left_out", f"{number} {snapshot.others(family)} left out"))
        if self.velocities == "zero":
            unused = "; those of the file are not used" if "velocity" in snapshot.available("stars") else ""
            text = f"velocities set to zero (galaxy.velocities: zero): the cube has no kinematics{unused}"
            notes.append(Note("galaxy.no_kinematics", text))
        if lacking := self.lacking_of_gas():
            notes.append(Note("gas.left_out", f"gas left out: the file has no {', '.join(lacking)}", WARNING))
        whole = () if snapshot.field_map.is_known else whole_number_notes(find_whole_numbers(snapshot))
        return (*notes, *whole)


@dataclass(frozen=True)
class GalaxySlabs:
    """An open galaxy whose particles are read when they are asked for: `n_stars`, `read_stars`, `n_gas`, `read_gas`.

    The frame was found from all its stars, so the parts together are the whole.
    """

    columns: ColumnReader
    frame: GalaxyFrame
    info: GalaxyInfo
    gas_quantities: frozenset[str] = frozenset()

    @property
    def n_stars(self) -> int:
        """Number of selected stars."""
        return self.columns.selected.count("stars")

    @property
    def n_gas(self) -> int:
        """Number of selected gas particles; 0 where the file lacks quantities that gas needs."""
        return self.columns.n_gas()

    def read_stars(self, start: int, stop: int) -> Stars:
        """The stars `start` to `stop` (exclusive) of the selected ones; nothing outside them is read.

        Smoothing lengths that only some stars of the file have are left out.
        """
        check_range(start, stop, self.n_stars)
        snapshot = self.columns.selected.snapshot
        table = self.columns.stars(start, stop)
        if not all("smoothing_length" in snapshot.quantities("stars", group) for group in snapshot.groups("stars")):
            table.pop("smoothing_length", None)
        return self.columns.placed(table, self.frame)[0]

    def read_gas(self, start: int, stop: int) -> Gas | None:
        """The gas particles `start` to `stop` (exclusive) of the selected ones; None where the galaxy has none."""
        check_range(start, stop, self.n_gas)
        if not self.n_gas:
            return None
        table, _ = self.columns.gas(start, stop)
        missing = np.full(len(table["mass"]), np.nan)
        return self.frame.gas({name: table.get(name, missing) for name in sorted(self.gas_quantities)})


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
        frame, notes = _find_frame(held_stars(table), selected)
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


def _find_frame(stars: StoredStars, selected: Selected) -> tuple[GalaxyFrame, tuple[str, ...]]:
    return find_frame(stars, selected.center, selected.snapshot.box_size, selected.center_origin)


def _triple(values: Vector) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z
