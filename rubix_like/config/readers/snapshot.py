"""Settings of snapshots and cut-outs of simulations: the files, what is selected, and what the files do not tell."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from rubix_like.config.plug_ins import READING, TABLE
from rubix_like.config.quantities import Integer
from rubix_like.config.readers.ages import Ages
from rubix_like.config.readers.selection import AUTO, AbstractSelection
from rubix_like.config.readers.table_columns import TableSettings
from rubix_like.runtime.places import found_at
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent

if TYPE_CHECKING:
    from rubix_like.galaxy.galaxy_parts import GalaxyParts
    from rubix_like.galaxy.particles import Galaxy, GalaxyInfo

SmoothingChoice = Literal["auto", "file", "neighbours"]

NEIGHBOURS: int = 32
"""Neighbours within a smoothing length: as IllustrisTNG's StellarHsml, and the support of a cubic spline in GADGET."""


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

    def load(self, report: Report = silent) -> "tuple[Galaxy, GalaxyInfo]":
        """Read the file; raises FileNotFoundError, OSError or ValueError with place, expectation and remedy."""
        return found_at(READING["load_snapshot"])(self, report)

    def open_galaxy(
        self, report: Report = silent, team: AbstractProcessGroup = SINGLE
    ) -> "AbstractContextManager[GalaxyParts]":
        """The galaxy, to be read part by part; each process of the `team` reads its share for its frame."""
        return found_at(READING["open_snapshot_galaxy"])(self, report, team)

    def has_more_stars(self, limit: int) -> bool:
        """Whether the file has more than `limit` stars, selected or not; a small file is not opened for it."""
        return found_at(READING["snapshot_has_more_stars"])(self, limit)
