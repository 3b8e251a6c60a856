"""Stage `fibre_cube`: the cube that is made of the fibres' spectra; the last one of an instrument with fibres."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.cube.fibres.cube_weights import CubeWeights
from rubix_like.cube.fibres.fibre_spectra import FibreVoxels
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import COSMIC_RAY, DETECTOR_GAP, NO_DATA, OUTSIDE_APERTURE, SATURATED
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import AbstractCubeStage, PaintedCube, StageReport, refuse_options
from rubix_like.instrument.fibres.cube_recipes import cube_weights

_LEAST = 0.5
"""Of the weights in a spaxel that must be those of good fibres."""


class FibreCube(AbstractCubeStage):
    """Spectra are calibrated for the transparency of their exposure, then every spaxel is a weighted sum of those near
    it (`instrument.fibres.cube`): its variance is the sum of the fibres' with the weights squared, and what no fibre
    reaches is masked. The spectra go along.

    Bins of spectra that a systematic error flags are left out, and the weights of the others in a spaxel keep their
    sum; it has the flags where less than half of them is left.
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
        errors = {name: error / clear for name, error in cube.contributions.items()}
        good, scale, bits = (None, None, None) if cube.bits is None else self._good(cube.bits, flux.dtype)
        elements, weights = self.footprint.elements, self.weights

        def seen(spectra: Float[Array, "fibre wave"]) -> Float[Array, "spaxel wave"]:
            if good is None or scale is None:
                return elements(weights.images(spectra))
            return elements(weights.images(spectra * good) * scale)

        made = None
        if variance is not None:
            made = weights.variances(variance if good is None else variance * good)
            made = made if scale is None else made * scale**2
        return dataclasses.replace(
            cube,
            flux=seen(flux),
            moments=elements(weights.images(moments)),
            variance=None if made is None else elements(made),
            truth=None if truth is None else seen(truth),
            bits=None if bits is None else elements(bits),
            contributions={name: seen(error) for name, error in errors.items()},
            footprint=self.footprint,
            fibres=FibreVoxels(flux, variance, truth, cube.bits, errors or None),
        )

    def _good(
        self, bits: Int[Array, "fibre wave"], dtype: jnp.dtype
    ) -> tuple[Float[Array, "fibre wave"], Float[Array, "y x wave"], Int[Array, "y x wave"]]:
        """1 for good bins of the spectra, by what the weights of these grow in each voxel, and the voxels' flags."""
        good = (bits == 0).astype(dtype)
        scale = self.weights.regained(good)
        return good, scale, self._flags(bits, (scale == 0) | (scale * _LEAST > 1))

    def _flags(self, bits: Int[Array, "fibre wave"], few: Bool[Array, "y x wave"]) -> Int[Array, "y x wave"]:
        """All bits of the fibres near those spaxels that have few good ones."""
        found = jnp.zeros(few.shape, jnp.int32)
        for bit in (SATURATED, COSMIC_RAY, NO_DATA, DETECTOR_GAP):
            there = self.weights.images(((bits & bit) > 0).astype(self.weights.weights.dtype)) > 0
            found = found | jnp.where(few & there, jnp.int32(bit), jnp.int32(0))
        return found

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """None: it comes after the noise of the fibres."""
        return

    def report(self) -> StageReport:
        """The bit of spaxels without a fibre, and the recipe."""
        seen = np.asarray(self.weights.coverage) > 0
        bits = None if seen.all() else np.where(seen, 0, OUTSIDE_APERTURE).astype(np.int32)
        return StageReport(spaxel_bits=bits, meta={"fibre_cube": self.method})
