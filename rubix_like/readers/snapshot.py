"""Snapshots and cut-outs of simulations, read by field maps: recognised from the file, or named."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from rubix_like.config.quantities import Integer, Number
from rubix_like.config.settings import AbstractSettings
from rubix_like.galaxy import Galaxy, GalaxyInfo, Gas
from rubix_like.readers.ages import populate
from rubix_like.readers.assembly import make_gas, make_stars
from rubix_like.readers.container import AbstractContainer
from rubix_like.readers.epoch import read_epoch
from rubix_like.readers.field_map import Family, FieldMap, load_field_map
from rubix_like.readers.frame import Frame, Vector, find_frame
from rubix_like.readers.gas import complete_gas
from rubix_like.readers.neighbours import NEIGHBOURS, SmoothingChoice
from rubix_like.readers.opening import open_container
from rubix_like.readers.particles import Snapshot, Table, stacked
from rubix_like.readers.recipe import Ages
from rubix_like.readers.recognise import check_named, recognise
from rubix_like.readers.table_map import TABLE, assumed_units, table_field_map
from rubix_like.readers.table_settings import TableSettings

AUTO = "auto"

SLAB_ROWS: int = 1 << 20
"""Rows read at once: what is held at most is the selected particles and one slab."""


class SnapshotReader(AbstractSettings):
    """Snapshots and cut-outs of simulations (field maps), recognised from the file."""

    reader: str = AUTO
    """'auto' (recognise), the name of a simulation (`rubix-like list readers`), 'table' or a field map's .yaml file."""
    path: Path
    center: tuple[Number, Number, Number] | None = None
    """In the file's own unit of length (as a catalogue gives it); null: found by the shrinking sphere."""
    velocities: Literal["file", "zero"] = "file"
    """'zero' for files without velocities: all particles, stars and gas, are at rest."""
    ages: Ages = None
    """'recipe', or a section that states it, for stars of which the file has no ages or metallicities; null: file."""
    smoothing_length: SmoothingChoice = "auto"
    """Of stars, for engine.deposit smoothed: the file's, by their neighbours, or auto: the file's where usable."""
    neighbours: Annotated[Integer, Field(ge=1)] = NEIGHBOURS
    """How many other stars are within a smoothing length by neighbours."""

    columns: TableSettings | None = None
    """Of a plain table: the columns of its stars that are not recognised by their names, and their units."""
    gas: TableSettings | None = None
    """Of a plain table: those of its gas."""

    @model_validator(mode="after")
    def _check_columns(self) -> "SnapshotReader":
        if self.reader not in {AUTO, TABLE} and (self.columns or self.gas):
            raise ValueError(f"expected columns and gas only with reader: {TABLE}, got them with '{self.reader}'")
        return self

    @contextmanager
    def open(self) -> Iterator[Snapshot]:
        """The open file: `count(family)` and `read(family, start, stop)`; no particle is read yet."""
        with self.open_file() as (container, kind):
            field_map = self.find_field_map(container, kind)
            yield Snapshot(container, field_map, read_epoch(container, field_map))

    def open_file(self) -> AbstractContextManager[tuple[AbstractContainer, str]]:
        """The open file, whatever is in it, and its kind."""
        named = self.reader not in {AUTO, TABLE}
        return open_container(self.path, named and load_field_map(self.reader).container == ("pynbody",))

    def find_field_map(self, container: AbstractContainer, kind: str) -> FieldMap:
        """How this file is read: as named, as its columns say or as it is recognised; raises ConfigError."""
        if self.reader not in {AUTO, TABLE}:
            field_map = load_field_map(self.reader)
            check_named(field_map, container, kind)
            return field_map
        if TABLE in {kind, self.reader} or self.columns or self.gas:
            return table_field_map(container, kind, self.columns or TableSettings(), self.gas or TableSettings())
        return recognise(container, kind)

    def load(self) -> tuple[Galaxy, GalaxyInfo]:
        """Read the file; raises FileNotFoundError, OSError or ValueError with place, expectation and remedy."""
        with self.open() as snapshot:
            table, notes = self._read_stars(snapshot)
            center = None if self.center is None else np.array(self.center) * snapshot.length
            frame, frame_notes = find_frame(table, center, snapshot.box_size)
            gas, gas_notes = self._read_gas(snapshot, frame)
            populated = populate(snapshot, table, frame, self.ages)
        galaxy = Galaxy(stars=make_stars(populated.table, frame), gas=gas)
        epoch = snapshot.epoch
        return galaxy, GalaxyInfo(
            name=self.path.stem,
            reader=snapshot.field_map.name,
            source=str(self.path),
            simulation=epoch.simulation or snapshot.field_map.title,
            redshift=epoch.redshift,
            cosmology=epoch.cosmology_text,
            universe_age=epoch.universe_age,
            n_stars=len(table["mass"]),
            n_gas=0 if gas is None else gas.mass.shape[0],
            center=_triple(frame.wrapped_center),
            bulk_velocity=_triple(frame.velocity),
            initial_mass="file" if np.isfinite(table.get("initial_mass", np.nan)).all() else "missing",
            ages=populated.ages,
            metallicities=populated.metallicities,
            velocities=self.velocities,
            notes=(*assumed_units(snapshot.field_map), *notes, *frame_notes, *populated.notes, *gas_notes),
        )

    def _read_stars(self, snapshot: Snapshot) -> tuple[Table, tuple[str, ...]]:
        """Stars with velocities; raises ValueError where the file cannot tell them."""
        table, notes = _gather(snapshot, "stars")
        if self.velocities == "zero":
            unused = "; those of the file are not used" if "velocity" in table else ""
            notes = (*notes, f"velocities set to zero (galaxy.velocities: zero): the cube has no kinematics{unused}")
            table |= {"velocity": np.zeros_like(table["position"])}
        if not np.isfinite(table.get("velocity", np.nan)).all():
            remedy = "take a file with velocities, or set galaxy.velocities: zero for particles at rest"
            raise ValueError(snapshot.missing("stars", "velocity", remedy))
        return table, notes

    def _read_gas(self, snapshot: Snapshot, frame: Frame) -> tuple[Gas | None, tuple[str, ...]]:
        """The gas in the stars' frame; None without any, with a note where quantities it needs are missing."""
        needed = ("position", "mass", "metallicity", *(("velocity",) if self.velocities == "file" else ()))
        lacking = [
            snapshot.field_name("gas", quantity, group)
            for group in snapshot.groups("gas")
            for quantity in needed
            if quantity not in snapshot.quantities("gas", group)
        ]
        if lacking:
            return None, (f"gas left out: the file has no {', '.join(lacking)}",)
        table, notes = _gather(snapshot, "gas")
        if not len(table.get("mass", ())):
            return None, notes
        if self.velocities == "zero":
            table |= {"velocity": np.zeros_like(table["position"])}
        table, gas_notes = complete_gas(table)
        return make_gas(table, frame), (*notes, *gas_notes)


def _gather(snapshot: Snapshot, family: Family) -> tuple[Table, tuple[str, ...]]:
    """The particles of a family, slab by slab, and how many its field map leaves out; at least one star."""
    slabs: list[Table] = []
    total, left_out = snapshot.count(family), 0
    for start in range(0, total, SLAB_ROWS):
        slab = snapshot.read(family, start, min(start + SLAB_ROWS, total))
        kept = slab.pop("kept") > 0
        left_out += int(np.count_nonzero(~kept))
        slabs.append({name: values[kept] for name, values in slab.items()})
    table = stacked(slabs)
    others = snapshot.others(family)
    if family == "stars" and not len(table.get("mass", ())):
        raise ValueError(_no_stars(snapshot, f"only {left_out} {others}" if left_out else "no particles"))
    return table, (f"{left_out} {others} left out",) if left_out else ()


def _no_stars(snapshot: Snapshot, found: str) -> str:
    groups = snapshot.field_map.stars.groups
    place = f"{snapshot.container.name}: {' or '.join(groups)} (stars)"
    if not any(snapshot.container.datasets(group) for group in groups):
        return f"{place} is missing or empty; {snapshot.container.contents()}; choose a galaxy with stars"
    return f"{place}: expected at least one star, got {found}; choose a galaxy with stars"


def _triple(values: Vector) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z
