"""Stage `sky_residual`: what sky subtraction leaves."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.stages.base import PaintedCube, refuse_options
from rubix_like.forward.systematics.sky_patterns import sky_for, sky_patterns
from rubix_like.forward.systematics.systematic import (
    AbstractSystematic,
    ErrorRecord,
    error_key,
    exposures_added,
    spectra_numbers,
    systematics_of,
    with_error,
)
from rubix_like.physics.numbered_random import numbered_normal
from rubix_like.runtime.mesh.bin_split import per_bin


class SkyResidual(AbstractSystematic):
    """In every spectrum the sum of four patterns of the sky, each times a normal error of its own: what a wrong
    wavelength, line width, strength of lines and continuum of the subtracted sky leave, to first order in them. With
    several exposures in a spectrum it is the mean of theirs.

    `patterns` are those of errors of one rms.
    """

    patterns: Float[Array | ndarray, "pattern wave"] = eqx.field(metadata=per_bin())
    number: Int[Array | ndarray, " element"]
    record: ErrorRecord = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)
    key_number: ClassVar[int | None] = 1006

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "SkyResidual":
        """By `systematics.sky_residual`; no options. Raises ConfigError for a sky that does not cover the detector."""
        refuse_options("sky_residual", options)
        settings = systematics_of(setup).sky_residual
        assert settings is not None
        patterns = sky_patterns(sky_for(setup, settings.sky, "sky_residual"), setup)
        rms = np.array([getattr(settings, name) for name in patterns._fields]) / np.sqrt(exposures_added(setup))
        return cls(
            patterns=rms[:, None] * np.stack(patterns),
            number=spectra_numbers(setup),
            record=ErrorRecord.of(setup),
        )

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with the residual."""
        patterns = jnp.asarray(self.patterns)
        own = jnp.arange(len(patterns), dtype=jnp.int32)[None, :]
        numbers = jnp.asarray(self.number)[:, None] * len(patterns) + own
        normal = numbered_normal(error_key(key, self.record), numbers, cube.flux.dtype)
        change = jnp.einsum("ep,pw->ew", normal, patterns, precision=lax.Precision.HIGHEST)
        return with_error(cube, "sky_residual", change, self.record)
