"""Stage `aperture`: the part of the field that the instrument sees, after the PSF."""

from collections.abc import Mapping
from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.cube import OUTSIDE_APERTURE
from rubix_like.parameters import Parameters
from rubix_like.stages.base import AbstractCubeStage, PaintedCube, refuse_options
from rubix_like.setup import Setup


class Aperture(AbstractCubeStage):
    """Spaxels whose centre lies outside `instrument.aperture` hold no flux and are flagged."""

    inside: Bool[Array | ndarray, "y x"]
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> Self:
        """The instrument's aperture (null: the whole field); no options."""
        refuse_options("aperture", options)
        instrument = setup.config.instrument
        x = (np.arange(setup.n_x) - (setup.n_x - 1) / 2) * instrument.pixel_scale
        y = (np.arange(setup.n_y) - (setup.n_y - 1) / 2) * instrument.pixel_scale
        if instrument.aperture is None:
            return cls(np.ones((setup.n_y, setup.n_x), dtype=bool))
        size = instrument.aperture.size
        width, height = instrument.fov if size is None else (size, size)
        return cls(inside_aperture(instrument.aperture.shape, x[None, :], y[:, None], width, height))

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with no flux outside."""
        flux = jnp.where(jnp.asarray(self.inside)[:, :, None], cube.flux, jnp.zeros((), cube.flux.dtype))
        return eqx.tree_at(lambda c: c.flux, cube, flux)

    def quality(self) -> Int[ndarray, "y x"]:
        """The bit for 'outside the aperture'."""
        return np.where(np.asarray(self.inside), 0, OUTSIDE_APERTURE).astype(np.int32)


def inside_aperture(shape: str, x: ndarray, y: ndarray, width: float, height: float) -> Bool[ndarray, "y x"]:
    """Whether points (arcsec from the field's centre) lie in a shape of the given full width and height.

    rectangle; circle (an ellipse where width and height differ); hexagon: regular, `width` from corner to corner, two
    corners East and West.
    """
    x, y = np.broadcast_arrays(np.abs(x), np.abs(y))
    slack = 1e-9 * max(width, height)
    if shape == "rectangle":
        return (x <= width / 2 + slack) & (y <= height / 2 + slack)
    if shape == "circle":
        return (2 * x / width) ** 2 + (2 * y / height) ** 2 <= 1 + 1e-9
    side = width / 2
    return (y <= side * np.sqrt(3) / 2 + slack) & (np.sqrt(3) * x + y <= np.sqrt(3) * side + slack)
