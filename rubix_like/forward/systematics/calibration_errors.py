"""Stages `flat_field`, `flux_calibration`, `telluric`: factors that calibration leaves in spectra and their noise."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import PaintedCube, refuse_options
from rubix_like.forward.systematics.sky_residual import line_absorption, sky_for
from rubix_like.forward.systematics.spectral_errors import SmoothErrors
from rubix_like.forward.systematics.systematic import (
    AbstractSystematic,
    ErrorRecord,
    error_key,
    exposure_numbers,
    exposures_added,
    place_numbers,
    systematics_of,
    with_relative_error,
)
from rubix_like.physics.numbered_random import numbered_normal
from rubix_like.runtime.mesh.bin_split import per_bin


class FlatField(AbstractSystematic):
    """Each spaxel or fibre times 1 + a smooth error of its own, the same in all exposures."""

    errors: SmoothErrors
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)
    key_number: ClassVar[int | None] = 1005

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "FlatField":
        """By `systematics.flat_field`; no options."""
        refuse_options("flat_field", options)
        settings = systematics_of(setup).flat_field
        assert settings is not None
        wavelength = setup.instrument.bins.wavelength
        errors = SmoothErrors.build(settings.rms, settings.correlation, wavelength, "flat_field")
        return cls(errors=errors, number=place_numbers(setup), record=ErrorRecord.of(setup))

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with the error."""
        error = self.errors.draw(error_key(key, self.record), self.number)
        return with_relative_error(cube, "flat_field", error, self.record)


class FluxCalibration(AbstractSystematic):
    """All spectra of an exposure times 1 + a smooth error: what of it changes with wavelength, and what does not. With
    several exposures in a spectrum the error is the mean of theirs."""

    errors: SmoothErrors
    absolute: SmoothErrors
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)
    key_number: ClassVar[int | None] = 1008

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "FluxCalibration":
        """By `systematics.flux_calibration`; no options."""
        refuse_options("flux_calibration", options)
        settings = systematics_of(setup).flux_calibration
        assert settings is not None
        wavelength, mean = setup.instrument.bins.wavelength, 1 / np.sqrt(exposures_added(setup))
        errors = SmoothErrors.build(settings.rms * mean, settings.correlation, wavelength, "flux_calibration")
        absolute = SmoothErrors.build(settings.absolute * mean, None, wavelength, "flux_calibration")
        return cls(errors=errors, absolute=absolute, number=exposure_numbers(setup), record=ErrorRecord.of(setup))

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with the error."""
        first, second = jax.random.split(error_key(key, self.record))
        error = self.errors.draw(first, self.number) + self.absolute.draw(second, self.number)
        return with_relative_error(cube, "flux_calibration", error, self.record)


class Telluric(AbstractSystematic):
    """All spectra of an exposure times exp(-(left + residual z) depth), where `depth` is the optical depth of the
    air's lines and z a standard normal number of the exposure."""

    depth: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    left: Float[Array | ndarray, ""]
    residual: Float[Array | ndarray, ""]
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)
    key_number: ClassVar[int | None] = 1007

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Telluric":
        """By `systematics.telluric`; no options. Raises ConfigError for a sky that does not reach the detector's
        range, or that absorbs nothing there."""
        refuse_options("telluric", options)
        settings = systematics_of(setup).telluric
        assert settings is not None
        depth = line_absorption(sky_for(setup, settings.sky, "telluric"), setup)
        residual = settings.residual / np.sqrt(exposures_added(setup))
        return cls(
            depth=depth,
            left=np.asarray(settings.left),
            residual=np.asarray(residual),
            number=exposure_numbers(setup),
            record=ErrorRecord.of(setup),
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with what is left of the absorption."""
        normal = numbered_normal(error_key(key, self.record), jnp.asarray(self.number), cube.flux.dtype)
        amount = jnp.asarray(self.left) + jnp.asarray(self.residual) * normal
        error = jnp.expm1(-amount[:, None] * jnp.asarray(self.depth)[None, :])
        return with_relative_error(cube, "telluric", error, self.record)
