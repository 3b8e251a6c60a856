"""Snapshots and cut-outs of simulations, read by field maps: recognised from the file, or named."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rubix_like.config.plug_ins import TABLE
from rubix_like.config.quantities import Integer
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.readers.assembly import make_gas, make_stars
from rubix_like.readers.birth_mass import MISSING, share_of
from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.containers.snapshot_files import open_files, single_file_bytes
from rubix_like.readers.fields.columns import Vector
from rubix_like.readers.fields.epoch import read_epoch
from rubix_like.readers.fields.field_map import FieldMap, load_field_map
from rubix_like.readers.fields.file_parts import check_parts, count_notes
from rubix_like.readers.fields.recognise import check_named, recognise
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.readers.fields.table_map import assumed_units, table_field_map
from rubix_like.readers.fields.table_settings import TableSettings
from rubix_like.readers.galaxy_frame import AbstractStars, GalaxyFrame, HeldStars, StoredStars, find_frame
from rubix_like.readers.selection.halo_ids import find_entry
from rubix_like.readers.selection.selected import Selected, select
from rubix_like.readers.selection.selection import AUTO, AbstractSelection
from rubix_like.readers.smoothing_lengths import NEIGHBOURS, SmoothingChoice
from rubix_like.readers.star_formation_history import Ages
from rubix_like.readers.stellar_ages import Origins
from rubix_like.readers.stored_galaxy import ColumnReader, GalaxySlabs, no_stars
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent

_LEAST_BYTES_PER_STAR = 16
"""Least bytes per star of a file, even a compressed one: a star has at least eight numbers."""


class SnapshotReader(AbstractSelection):
    """Snapshots and cut-outs of simulations (field maps), recognised from the file."""

    velocities: Literal["file", "zero"] = "file"
    """'zero' for files without velocities: all particles, stars and gas, are at rest."""
    ages: Ages = None
    """'recipe', or a section that states it, for stars without ages or metallicities in the file; null: file."""
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
        """The open file: `count(family)` and `read(family, start, stop)` of all its rows; no particle is read yet."""
        with self.open_file() as (container, kind):
            field_map = self.find_field_map(container, kind)
            check_parts(container, field_map)
            yield Snapshot(container, field_map, read_epoch(container, field_map))

    def has_more_stars(self, limit: int) -> bool:
        """Whether the file has more than `limit` stars, selected or not; a small file is not opened for it."""
        size = single_file_bytes(self.path)
        if size is not None and size < _LEAST_BYTES_PER_STAR * limit:
            return False
        with self.open() as snapshot:
            return snapshot.count("stars") > limit

    def open_file(self) -> AbstractContextManager[tuple[AbstractContainer, str]]:
        """The open file or files, whatever is in them, and their kind."""
        named = self.reader not in {AUTO, TABLE}
        return open_files(self.path, by_pynbody=named and load_field_map(self.reader).container == ("pynbody",))

    def find_field_map(self, container: AbstractContainer, kind: str) -> FieldMap:
        """How this file is read: as named, as its columns say or as it is recognised; raises ConfigError."""
        if self.reader not in {AUTO, TABLE}:
            field_map = load_field_map(self.reader)
            check_named(field_map, container, kind)
            return field_map
        if TABLE in {kind, self.reader} or self.columns or self.gas:
            return table_field_map(container, kind, self.columns or TableSettings(), self.gas or TableSettings())
        return recognise(container, kind)

    @contextmanager
    def open_selected(self, report: Report = silent, team: AbstractProcessGroup = SINGLE) -> Iterator[Selected]:
        """The open file and which of its particles are selected; raises ValueError where no star is.

        Each process of the `team` looks through its share of the rows; all know which ones are selected.
        """
        with ExitStack() as stack:
            snapshot = team.each(lambda: stack.enter_context(self.open()))
            if not team.each(lambda: snapshot.count("stars")):
                raise ValueError(no_stars(snapshot, "no particles"))
            entry = team.each(lambda: find_entry(self, snapshot))
            selected = select(snapshot, self, entry, report, team)
            if not selected.count("stars"):
                left_out = f"only {selected.left_out['stars']} {snapshot.others('stars')}"
                raise ValueError(no_stars(snapshot, left_out))
            yield selected

    @contextmanager
    def open_galaxy(self, report: Report = silent, team: AbstractProcessGroup = SINGLE) -> Iterator[GalaxySlabs]:
        """The galaxy, to be read part by part; its centre and bulk velocity are found first, from all its stars.

        Each process of the `team` reads its share of the stars for it, and all find the same.
        """
        with self.open_selected(report, team) as selected:
            columns = ColumnReader(selected, self.velocities, self.ages)
            stars = StoredStars(selected.count("stars"), columns.stars, team, report)
            frame, notes = _find_frame(stars, selected)
            info = self._info(columns, frame, columns.origins(), notes)
            yield GalaxySlabs(columns, frame, info, columns.gas_quantities(team))

    def load(self, report: Report = silent) -> tuple[Galaxy, GalaxyInfo]:
        """Read the file; raises FileNotFoundError, OSError or ValueError with place, expectation and remedy."""
        with self.open_selected(report) as selected:
            columns = ColumnReader(selected, self.velocities, self.ages)
            table = columns.stars(0, selected.count("stars"), report=report)
            frame, notes = _find_frame(HeldStars(table), selected)
            populated = columns.populated(table, frame)
            gas, gas_notes = None, ()
            if (n_gas := columns.n_gas()) > 0:
                gas_table, gas_notes = columns.gas(0, n_gas, report)
                gas = make_gas(gas_table, frame)
            info = self._info(columns, frame, populated.origins, notes, gas_notes)
            return Galaxy(stars=make_stars(populated.table, frame), gas=gas), info

    def _info(
        self,
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
        first = self.path if isinstance(self.path, Path) else self.path[0]
        numbers = (("halo", self.halo), ("subhalo", self.subhalo))
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
            velocities=self.velocities,
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
