"""Sums over stars for the attenuation curve of a galaxy: how much of which template shines, through how much dust."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.dust import ParticleDustSettings
from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC
from rubix_like.cube.footprint import Footprint
from rubix_like.engine.kernels.deposits import sum_deposits
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, Factors, build_kernel
from rubix_like.engine.setup import Setup
from rubix_like.engine.spectra.attenuation import DustFactors, factored_dust
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.products.bands import Band, BandTables, BandWeight
from rubix_like.forward.products.sums import Sighting
from rubix_like.forward.stages.dust import relative_attenuation, screen_transmission
from rubix_like.physics.dust_curves import CURVES
from rubix_like.physics.templates import TemplateAxes, Templates, layers_of

_ERROR = 1e-6
"""Largest rms error of the dimming over the wavelengths, relative to its mean."""

_LEAST = 1e-3
"""Share of the light that must come through, in units of its mean, for it to be known: to about 0.01 mag."""

_STEP = 0.01
"""Step of ln lambda with which curves are looked at for where they hold."""


class AttenuationTables(eqx.Module):
    """Tables for the light of all stars in the field, before dust and behind it, in parts of 1 % of the wavelength.

    | field | shape | |
    |---|---|---|
    | axes | | of the templates |
    | wavelength | (part,) | vacuum Angstrom at rest |
    | spectra | (template, part) | flux density per amount, 1e-20 erg/s/cm2/Angstrom |
    | dust, parts | (factor, part) | the stars' own dust as in `FactoredDust`; None without any |
    | screen | (part,) | A(lambda) / A(V) of the run's screen; None without one |
    """

    axes: TemplateAxes
    wavelength: Float[Array | ndarray, " part"]
    spectra: Float[Array | ndarray, "template part"]
    dust: DustFactors | None
    parts: Float[Array | ndarray, "factor part"] | None
    screen: Float[Array | ndarray, " part"] | None
    kernel: AbstractDepositKernel

    @classmethod
    def build(cls, setup: Setup, templates: Templates, *, has_screen: bool) -> "AttenuationTables":
        """Those of the SSP library's `templates` as stars are seen, wherever the library and all curves hold."""
        stretch = 1.0 + setup.config.observation.redshift
        ends = _ends(setup, templates, has_screen) * stretch
        bands = BandTables.build(setup.library, stretch - 1.0, [BandWeight(Band("all", ends, np.ones(2)))])
        observed = np.asarray(bands.wavelength)
        widths = np.diff(np.geomspace(ends[0], ends[1], len(observed) + 1))
        factor = SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2
        layers, largest = layers_of(templates), templates.axes.largest_a_v
        own = None
        if layers is not None and largest is not None:
            own = factored_dust(layers(observed / stretch), float(np.asarray(largest)), _ERROR)
        return cls(
            axes=templates.axes,
            wavelength=observed / stretch,
            spectra=factor * np.asarray(bands.flux) / widths,
            dust=None if own is None else own.factors,
            parts=None if own is None else own.parts,
            screen=relative_attenuation(setup, observed) if has_screen else None,
            kernel=build_kernel(setup.config.engine.kernel),
        )

    def paint(
        self, look: Callable[[Any], Sighting], particles: Any, field: Footprint, chunk: int
    ) -> Float[Array, "template own"]:
        """Amounts of the templates that the stars in the field shine as, and these times each function of their A(V).

        Stars are in the field by their position.
        """
        n_column = 1 if self.parts is None else 1 + len(self.parts)

        def contribute(own: Any) -> tuple[tuple[Factors], tuple[()]]:
            seen = look(own)
            corners = self.axes.corners(seen.coordinates)
            beyond = [jnp.abs(seen.scene.position[:, axis]) > 0.5 * side for axis, side in enumerate(field.sides)]
            amount = jnp.where(beyond[0] | beyond[1], jnp.zeros_like(seen.scene.amount), seen.scene.amount)[:, None]
            one = jnp.ones_like(amount)
            a_v = self.axes.a_v(seen.coordinates)
            behind = [] if self.dust is None or a_v is None else [self.dust(a_v)]
            columns = jnp.concatenate([one, *behind], axis=1)
            return (Factors(corners.index, corners.weight, one, amount * columns),), ()

        shape, dtype = (self.axes.n_template, n_column), self.spectra.dtype
        (sums,), _ = sum_deposits(contribute, particles, self.kernel, (shape,), (), chunk, dtype)
        return sums

    def light(self, sums: Float[Array, "template own"], parameters: Parameters) -> Float[Array, "2 part"]:
        """Flux densities of all stars together (1e-20 erg/s/cm2/Angstrom): before all dust, and behind it; NaN where so
        little comes through that the functions of A(V) do not tell how much."""
        own = jnp.matmul(sums.T, jnp.asarray(self.spectra), precision=lax.Precision.HIGHEST)
        dimmed = own[0]
        if self.parts is not None:
            dimmed = jnp.sum(own[1:] * jnp.asarray(self.parts), axis=0)
            mean = jnp.mean(dimmed / jnp.where(own[0] > 0, own[0], jnp.ones_like(own[0])))
            dimmed = jnp.where(dimmed < _LEAST * mean * own[0], jnp.nan, dimmed)
        share = screen_transmission(self.screen, parameters)
        return jnp.stack([own[0], dimmed if share is None else dimmed * share])


def _ends(setup: Setup, templates: Templates, has_screen: bool) -> Float[ndarray, " 2"]:
    """The first and last vacuum wavelength at rest (Angstrom) at which the library and the run's curves hold.

    Half a step is left out at the end, so that rounding does not change the number of parts.
    """
    config, nodes = setup.config, templates.rest_wavelength
    wavelength = np.exp(np.arange(np.log(nodes[0]), np.log(nodes[-1]), _STEP))
    found = np.ones(len(wavelength), bool)
    shift = 1.0 + config.observation.redshift
    screen = config.screen if has_screen else None
    own = config.dust if templates.attenuation is not None else None
    for dust, stretch in ((own, 1.0), (screen, shift if screen is not None and screen.place == "foreground" else 1.0)):
        if dust is not None:
            found &= CURVES.find(dust.curve).holds(wavelength * stretch, dust.resolved_r_v, dust.slope)
    if isinstance(own, ParticleDustSettings) and own.has_birth_clouds:
        birth = CURVES.find(own.resolved_birth_curve)
        found &= birth.holds(wavelength, own.resolved_birth_r_v, own.birth_slope)
    return wavelength[found][[0, -1]] * np.exp([0.0, -0.5 * _STEP])
