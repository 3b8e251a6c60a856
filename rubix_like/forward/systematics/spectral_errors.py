"""Stages `wavelength_solution` and `lsf_variation`: light that lands in other bins than the instrument says."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import PaintedCube, refuse_noisy, refuse_options
from rubix_like.forward.systematics.moved_light import SHIFT_REACH, WIDTH_REACH, shifted_light, spread_light
from rubix_like.forward.systematics.smooth_errors import SmoothErrors
from rubix_like.forward.systematics.systematic import (
    AbstractSystematic,
    ErrorRecord,
    error_key,
    place_numbers,
    spectra_numbers,
    systematics_of,
    with_error,
)
from rubix_like.instrument.line_width import instrument_fwhm
from rubix_like.runtime.mesh.bin_split import per_bin

_MOST_BINS = 0.3
"""Rms of shifts, as that of `wavelength_solution.rms`."""

_WHY = "it moves light before that is detected"


class WavelengthSolution(AbstractSystematic):
    """Spectra whose light is shifted along wavelength by a smooth error of each; light is conserved."""

    errors: SmoothErrors
    widths: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)
    key_number: ClassVar[int | None] = 1002

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "WavelengthSolution":
        """By `systematics.wavelength_solution`; no options. Raises ConfigError for a velocity of more than 0.3 bins."""
        refuse_options("wavelength_solution", options)
        settings, bins = systematics_of(setup).wavelength_solution, setup.instrument.bins
        assert settings is not None
        widths = np.diff(bins.edges)
        errors = SmoothErrors.build(1.0, settings.correlation, bins.wavelength, "wavelength_solution")
        if settings.velocity is not None:
            rms = settings.velocity / SPEED_OF_LIGHT * bins.wavelength / widths
            if rms.max() > _MOST_BINS:
                raise ConfigError(
                    f"systematics.wavelength_solution.velocity: expected at most {_MOST_BINS} bins "
                    f"({settings.velocity * _MOST_BINS / rms.max():.3g} km/s), got {settings.velocity:g} km/s"
                )
        else:
            assert settings.rms is not None
            rms = np.full(len(widths), settings.rms)
        return cls(
            errors=errors.scaled(rms), widths=widths, number=spectra_numbers(setup), record=ErrorRecord.of(setup)
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with shifted spectra; raises ConfigError after noise."""
        refuse_noisy("wavelength_solution", cube, _WHY)
        shift = self.errors.draw(error_key(key, self.record), self.number)
        widths = jnp.asarray(self.widths)[None, :]
        longer = (cube.split.with_neighbours(own, SHIFT_REACH) for own in (cube.flux * widths, shift))
        change = shifted_light(*longer) / widths - cube.flux
        return with_error(cube, "wavelength_solution", change, self.record)


class LSFVariation(AbstractSystematic):
    """Spectra whose line spread is wider or narrower than the instrument's by a smooth error of each spaxel or fibre;
    light is conserved."""

    errors: SmoothErrors
    variance: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    widths: Float[Array | ndarray, " wave"] = eqx.field(metadata=per_bin())
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)
    key_number: ClassVar[int | None] = 1001

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "LSFVariation":
        """By `systematics.lsf_variation`; no options. Raises ConfigError for an instrument without a line spread."""
        refuse_options("lsf_variation", options)
        settings, bins, lsf = systematics_of(setup).lsf_variation, setup.instrument.bins, setup.instrument.lsf
        assert settings is not None
        if lsf is None:
            raise ConfigError(
                "systematics.lsf_variation: expected an instrument with a line spread, got lsf: null; give "
                "instrument.lsf, or set the section to null"
            )
        widths = np.diff(bins.edges)
        variance = (instrument_fwhm(lsf, bins.wavelength) / FWHM_PER_SIGMA / widths) ** 2
        errors = SmoothErrors.build(settings.rms, settings.correlation, bins.wavelength, "lsf_variation")
        return cls(
            errors=errors,
            variance=variance,
            widths=widths,
            number=place_numbers(setup),
            record=ErrorRecord.of(setup),
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with spectra of other widths; raises ConfigError after noise."""
        refuse_noisy("lsf_variation", cube, _WHY)
        error = self.errors.draw(error_key(key, self.record), self.number)
        added = jnp.asarray(self.variance)[None, :] * error * (2 + error)
        widths = jnp.asarray(self.widths)[None, :]
        longer = (cube.split.with_neighbours(own, WIDTH_REACH) for own in (cube.flux * widths, added))
        change = spread_light(*longer) / widths - cube.flux
        return with_error(cube, "lsf_variation", change, self.record)
