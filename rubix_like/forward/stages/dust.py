"""Stage `dust`: a uniform screen of dust, one factor per bin."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters, screen_a_v
from rubix_like.forward.stages.base import AbstractCubeStage, PaintedCube, StageReport, refuse_noisy, refuse_options
from rubix_like.physics.dust_curves import CURVES
from rubix_like.runtime.mesh.bin_split import per_bin


class Dust(AbstractCubeStage):
    """A uniform dust screen dims the flux by a_v A(lambda) / A(V) magnitudes; identity when the run has no dust.

    `relative` is A(lambda) / A(V) at the centres of the bins, in vacuum: at the rest wavelengths of the galaxy's
    redshift or at the observed ones. It is the same for all spaxels, so it commutes with any PSF. The moments (mean
    velocities) keep the light before the screen as their weight.
    """

    relative: Float[Array | ndarray, " wave"] | None = eqx.field(metadata=per_bin())
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Dust":
        """The run's curve on the detector's bins; no options. Raises ConfigError where the curve is not defined."""
        refuse_options("dust", options)
        bins = setup.instrument.bins
        return cls(relative=relative_attenuation(setup, bins.to_vacuum(bins.wavelength)))

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube behind the screen; raises ConfigError after noise."""
        share = screen_transmission(self.relative, parameters)
        if share is None:
            return cube
        refuse_noisy("dust", cube, "it would dim the noise, too, and not its variance")
        return eqx.tree_at(lambda c: c.flux, cube, cube.flux * share[None, :])

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """It is not the same at all wavelengths."""
        return

    def report(self) -> StageReport:
        """Nothing: its settings are part of the run's."""
        return StageReport()


def screen_transmission(
    screen: Float[Array | ndarray, " wave"] | None, parameters: Parameters
) -> Float[Array, " wave"] | None:
    """The share of light that the run's screen lets through, 10^(-0.4 a_v A(lambda) / A(V)); `screen`: A(lambda) /
    A(V), None: no screen."""
    a_v = screen_a_v(parameters)
    if screen is None or a_v is None:
        return None
    return jnp.power(10.0, -0.4 * a_v * jnp.asarray(screen))


def relative_attenuation(setup: Setup, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"] | None:
    """A(lambda) / A(V) of the run's screen at observed vacuum wavelengths (Angstrom); None without one.

    Raises ConfigError where the curve is not defined.
    """
    dust = setup.config.screen
    if dust is None:
        return None
    stretch = 1.0 + setup.config.observation.redshift if dust.place == "galaxy" else 1.0
    return CURVES.find(dust.curve)(wavelength / stretch, dust.resolved_r_v, dust.slope)
