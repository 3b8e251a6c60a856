"""Stage `aperture`: the part of the field that the instrument sees, after the PSF."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray
from numpy import ndarray

from rubix_like.cube.meta import OUTSIDE_APERTURE
from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractCubeStage, PaintedCube, StageReport, refuse_options


class Aperture(AbstractCubeStage):
    """Spaxels whose centre lies outside `instrument.aperture` hold no light (noise comes after) and are flagged.

    `inside`: those within; None where all are.
    """

    inside: Bool[Array | ndarray, "y x"] | None
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Aperture":
        """The instrument's aperture (null: the whole field); no options."""
        refuse_options("aperture", options)
        inside = np.asarray(setup.instrument.inside)
        return cls(inside=None if inside.all() else inside)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with no flux outside."""
        if self.inside is None:
            return cube
        inside = cube.footprint.elements(jnp.asarray(self.inside))
        flux = jnp.where(inside[:, None], cube.flux, jnp.zeros((), cube.flux.dtype))
        return eqx.tree_at(lambda c: c.flux, cube, flux)

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """Not before projection: outside the aperture there is no light to save."""
        return

    def report(self) -> StageReport:
        """The bit for 'outside the aperture'."""
        if self.inside is None:
            return StageReport()
        return StageReport(spaxel_bits=np.where(np.asarray(self.inside), 0, OUTSIDE_APERTURE).astype(np.int32))
