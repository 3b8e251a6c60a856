"""Stage `fibre_cube`: the cube that is made of the fibres' spectra; the last one of an instrument with fibres."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.cube.fibres.cube_weights import CubeWeights
from rubix_like.cube.fibres.fibre_spectra import FibreVoxels
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import OUTSIDE_APERTURE
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractCubeStage, PaintedCube, StageReport, refuse_options
from rubix_like.instrument.fibres.cube_recipes import cube_weights


class FibreCube(AbstractCubeStage):
    """Spectra are calibrated for the transparency of their exposure, then every spaxel is a weighted sum of those near
    it (`instrument.fibres.cube`): its variance is the sum of the fibres' with the weights squared, and what no fibre
    reaches is masked. The spectra go along.
    """

    weights: CubeWeights
    transparency: Float[Array | ndarray, " fibre"]
    footprint: Footprint
    method: str = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "FibreCube":
        """By the recipe of `instrument.fibres.cube`; no options. Raises ConfigError without fibres, or where they lie
        outside the field."""
        refuse_options("fibre_cube", options)
        instrument, settings = setup.instrument, setup.config.instrument.fibres
        if settings is None or instrument.fibres is None:
            raise ConfigError("instrument.fibres: expected a bundle of fibres behind a PSF, got none; give both")
        return cls(
            weights=cube_weights(settings.cube, instrument.fibres, instrument.footprint),
            transparency=instrument.fibres.transparency,
            footprint=instrument.footprint,
            method=settings.cube.method,
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube, and beside it the spectra that it is made of."""
        clear = jnp.asarray(self.transparency, cube.flux.dtype)[:, None]
        flux, moments = cube.flux / clear, cube.moments / clear.astype(cube.moments.dtype)
        variance = None if cube.variance is None else cube.variance / clear**2
        truth = None if cube.truth is None else cube.truth / clear
        elements, weights = self.footprint.elements, self.weights
        return dataclasses.replace(
            cube,
            flux=elements(weights.images(flux)),
            moments=elements(weights.images(moments)),
            variance=None if variance is None else elements(weights.variances(variance)),
            truth=None if truth is None else elements(weights.images(truth)),
            footprint=self.footprint,
            fibres=FibreVoxels(flux, variance, truth),
        )

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """None: it comes after the noise of the fibres."""
        return

    def report(self) -> StageReport:
        """The bit of spaxels without a fibre, and the recipe."""
        seen = np.asarray(self.weights.coverage) > 0
        bits = None if seen.all() else np.where(seen, 0, OUTSIDE_APERTURE).astype(np.int32)
        return StageReport(spaxel_bits=bits, meta={"fibre_cube": self.method})
