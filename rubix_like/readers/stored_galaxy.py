"""A galaxy in a file, part by part: stars and gas of any range of the selected particles, in the galaxy's own frame."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal

import numpy as np

from rubix_like.config.readers.ages import AgeRecipe
from rubix_like.galaxy.galaxy_parts import check_range
from rubix_like.galaxy.particles import GalaxyInfo, Gas, Stars
from rubix_like.galaxy.validation import whole_number_notes
from rubix_like.readers.fields.columns import Table
from rubix_like.readers.fields.field_map import REQUIRED
from rubix_like.readers.fields.snapshot_particles import Snapshot, find_whole_numbers
from rubix_like.readers.galaxy_frame import GalaxyFrame
from rubix_like.readers.gas import complete_gas
from rubix_like.readers.selection.selected import Selected
from rubix_like.readers.stellar_ages import Origins, ages_and_metallicities, check_ages, drawn_origins
from rubix_like.readers.stored_ages import age_source
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent

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
        """Where ages and metallicities of all selected stars come from; reads none of them."""
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

        def own() -> list[set[str]]:
            return [set(self.gas(place, place + 1)[0]) for place in places if first <= place < last]

        found = list(chain(*team.exchange(own)))
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
        """What was selected, left out and set, in sentences."""
        snapshot, selected = self.selected.snapshot, self.selected
        left_out = tuple(
            f"{number} {snapshot.others(family)} left out" for family, number in selected.left_out.items() if number
        )
        unused = "; those of the file are not used" if "velocity" in snapshot.available("stars") else ""
        zero = f"velocities set to zero (galaxy.velocities: zero): the cube has no kinematics{unused}"
        lacking = self.lacking_of_gas()
        gas = (f"gas left out: the file has no {', '.join(lacking)}",) if lacking else ()
        whole = () if snapshot.field_map.is_known else whole_number_notes(find_whole_numbers(snapshot))
        return (*selected.notes, *left_out, *((zero,) if self.velocities == "zero" else ()), *gas, *whole)


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
