"""One data set of a posed problem: its data, the pipeline of its model, its place among the voxels of all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.sections.fit import FitSettings
from rubix_like.cube.observed import ObservedCube
from rubix_like.forward.cube_header import Header
from rubix_like.forward.pipeline import Pipeline


@dataclass(frozen=True, eq=False)
class FittedSet:
    """A set of data of a fit. The voxels of several lie in one row, one set after the other; those of the one cube of a
    fit, which has no name, are (y, x, wave).

    | field | |
    |---|---|
    | name, kind | what it is called; cube, image, spectrum or fibres |
    | observed | the data: (y, x, wave), of an image (y, x, 1), of a spectrum (1, 1, wave), of fibres (fibre, 1, wave) |
    | pipeline | that of the model's cube: of an image at all wavelengths of its band, of a spectrum on its aperture |
    | frame | axes, mask and header on the data's grid |
    | settings | those of a fit of this set alone |
    | first | place of its first voxel among those of all sets |
    | places | of fibres: (East, North) in arcsec of each |
    """

    name: str
    kind: str
    observed: ObservedCube
    pipeline: Pipeline
    frame: Header
    settings: FitSettings
    first: int
    places: Float[ndarray, "fibre 2"] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, wave) of the data."""
        return self.observed.shape

    @property
    def place(self) -> slice:
        """The slice of its voxels in the row of those of all sets."""
        return slice(self.first, self.first + int(np.prod(self.shape)))

    def unpacked(self, row: Any) -> Any:
        """Its voxels (..., y, x, wave) among those of all sets, which lie in a row (..., 1, 1, voxel)."""
        return row if not self.name else row[..., 0, 0, self.place].reshape((*row.shape[:-3], *self.shape))

    @property
    def seen(self) -> Pipeline:
        """The pipeline with the data's axes."""
        return replace(self.pipeline, frame=self.frame)

    @property
    def alone(self) -> "FittedSet":
        """The set as the one cube of a fit, whose pipeline has the data's axes."""
        return replace(self, name="", pipeline=self.seen, first=0)

    def on(self, pipeline: Pipeline) -> "FittedSet":
        """The set with its pipeline on another mesh."""
        return replace(self, pipeline=pipeline)


def row_of(parts: Sequence[ndarray]) -> Float[ndarray, "1 1 voxel"]:
    """The voxels of all sets, (y, x, wave) each, in one row."""
    return np.concatenate([part.reshape(-1) for part in parts])[None, None]
