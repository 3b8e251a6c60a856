"""The part of a result for each of several sets of data: cubes on the grids of their data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import in_parts
from rubix_like.cube.files.hdf5_cube import read_group, write_group
from rubix_like.inference.checks.verdict import SetVerdict
from rubix_like.inference.described_trees import read_tree, write_tree
from rubix_like.inference.samplers.predictive_checks import Pointwise
from rubix_like.runtime.files.outputs import with_addition

GROUP: str = "data_sets"
"""Of a result's file."""

POINTWISE: str = "log_likelihood"
"""The group of ln(likelihood) point by point."""


@dataclass(frozen=True, eq=False)
class SetResult:
    """One of several sets of data.

    | field | |
    |---|---|
    | kind | cube, image or spectrum |
    | model, residual | Cubes on the grid of its data, as those of the whole result; of an image (y, x, 1), of a |
    | | spectrum (1, 1, wave) |
    | predictive | of samples: what the data should be; None of a fit |
    | pointwise | of samples: ln(likelihood) of each spaxel or voxel at some of the draws; None: not asked for, or the |
    | | errors of its voxels are correlated |
    """

    kind: str
    model: Cube
    residual: Cube
    predictive: Cube | None = None
    pointwise: Pointwise | None = None

    @property
    def cubes(self) -> dict[str, Cube]:
        """Its cubes by name."""
        found = {"model": self.model, "predictive": self.predictive, "residual": self.residual}
        return {name: cube for name, cube in found.items() if cube is not None}


def place_of_set(path: Path, name: str) -> Path:
    """The file of a set's cube beside that of the first cube: fit_model_NAME.fits."""
    return with_addition(path, f"_{name}")


def places_of_sets(names: Iterable[str] | None, paths: Iterable[Path]) -> tuple[Path, ...]:
    """The files of the cubes of all sets; none of one cube (None)."""
    return tuple(place_of_set(path, name) for path in paths for name in names or ())


def cubes_of_sets(sets: Mapping[str, SetResult], paths: Mapping[str, Path]) -> dict[Path, Cube]:
    """The cubes of all sets by their files; `paths`: what they show -> the file of the first cube's."""
    return {place_of_set(path, name): own.cubes[what] for name, own in sets.items() for what, path in paths.items()}


def write_sets(sets: Mapping[str, SetResult], verdicts: Mapping[str, SetVerdict], file: Any) -> None:
    """The group `data_sets` with the cubes of each set, and what is said of it; none without sets."""
    if not sets:
        return
    group = file.create_group(GROUP, track_order=True)
    for name, own in sets.items():
        place = group.create_group(name)
        place.attrs["kind"] = own.kind
        if name in verdicts:
            write_tree(verdicts[name], place)
        for what, cube in own.cubes.items():
            write_group(in_parts(cube), place.create_group(what))
        if own.pointwise is not None:
            write_tree(own.pointwise, place.create_group(POINTWISE))


def read_set_results(file: Any) -> dict[str, SetResult]:
    """The results that `write_sets` wrote; empty where there is one cube."""
    found = {}
    for name, place in file.get(GROUP, {}).items():
        cubes = {what: read_group(place[what]) for what in ("model", "residual", "predictive") if what in place}
        pointwise = Pointwise(**read_tree(Pointwise, place[POINTWISE])) if POINTWISE in place else None
        found[name] = SetResult(str(place.attrs["kind"]), **cubes, pointwise=pointwise)
    return found


def read_set_verdicts(file: Any) -> dict[str, SetVerdict]:
    """The verdict on each set."""
    groups = file.get(GROUP, {}).items()
    return {name: SetVerdict(**read_tree(SetVerdict, place)) for name, place in groups if "p" in place.attrs}
