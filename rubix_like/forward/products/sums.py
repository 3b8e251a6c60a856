"""Sums over particles that maps, velocity distributions and images are made of."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config import LOSVDSettings
from rubix_like.constants import SOLAR_LUMINOSITY_AT_1_MPC
from rubix_like.engine.histogram import Spaxels
from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.products.bands import Band, BandTables, BandWeight, check_covered, load_band
from rubix_like.forward.products.mass_now import MassNow
from rubix_like.galaxy.particles import Stars
from rubix_like.galaxy.scene import Scene
from rubix_like.physics.templates import TemplateAxes, weighted_rows
from rubix_like.runtime.mesh.accumulate import accumulate
from rubix_like.runtime.mesh.mesh import varying

SUMS: tuple[str, ...] = (
    "number",
    "birth_mass",
    "mass",
    "mass_velocity",
    "mass_velocity2",
    "mass_log_age",
    "mass_age",
    "mass_metallicity",
    "light",
    "light_velocity",
    "light_velocity2",
    "light_log_age",
    "light_age",
    "light_metallicity",
)
"""The columns that every run with products sums: Msun, 1e-20 erg/s/cm2, km/s from the reference, Gyr, mass fraction."""

_CHUNK_VALUES = 1 << 18
_ROOM = 1 << 28
"""Bytes for sums in 64 bits."""

_MOST_BINS = 20_000


class Sighting(eqx.Module):
    """A chunk of stars, and how the observer sees it: the scene, where between the templates, and on which spaxels."""

    stars: Stars
    scene: Scene
    coordinates: tuple[Float[Array, " particle"], ...]
    spaxel: Int[Array, "particle corner"]
    share: Float[Array, "particle corner"]


class ProductImages(eqx.Module):
    """Images of the sums, as `ProductTables.paint` orders them: as painted, and after the PSF.

    Velocities in the sums (not the bins of the distribution) are relative to `reference` (km/s).
    """

    before: Float[Array, "y x column"]
    after: Float[Array, "y x column"]
    reference: Float[Array, ""]


class VelocityBins(eqx.Module):
    """Bins of a velocity distribution, at whole multiples of `step` (km/s), symmetric about 0; `n_bin` is odd."""

    step: Float[Array | ndarray, ""]
    n_bin: int = eqx.field(static=True)

    @classmethod
    def build(cls, settings: LOSVDSettings, fastest: float) -> "VelocityBins":
        """Bins up to the settings' limit, or up to `fastest` (km/s); raises ConfigError for more than can be meant."""
        limit = fastest if settings.limit is None else settings.limit
        n_bin = 2 * max(1, int(np.ceil(limit / settings.step - 1e-9))) + 1
        if n_bin > _MOST_BINS:
            raise ConfigError(
                f"products.losvd.step: expected at most {_MOST_BINS} bins, got {n_bin} of {settings.step:g} km/s up to "
                f"{limit:g} km/s; make the step larger or products.losvd.limit smaller"
            )
        return cls(np.asarray(settings.step), n_bin)

    @property
    def velocity(self) -> Float[ndarray, " velocity"]:
        """Centres of the bins in km/s (on the host)."""
        return float(self.step) * (np.arange(self.n_bin) - self.n_bin // 2).astype(np.float64)

    def deposit(
        self, velocity: Float[Array, " particle"]
    ) -> tuple[Int[Array, "particle 2"], Float[Array, "particle 2"]]:
        """The two bins around each velocity, and their shares by linear weights; faster ones are in the last bin."""
        place = jnp.clip(velocity / self.step + self.n_bin // 2, 0, self.n_bin - 1)
        lower = jnp.clip(jnp.floor(place), 0, self.n_bin - 2)
        share = place - lower
        index = lower.astype(jnp.int32)
        return jnp.stack([index, index + 1], axis=1), jnp.stack([1 - share, share], axis=1)


class ProductTables(eqx.Module):
    """What the sums over stars need: their flux through bands, their mass now, velocity bins.

    Columns are `SUMS`, then one per filter (nJy), then one per velocity bin (1e-20 erg/s/cm2). The light of a star is
    that of its template at the galaxy's redshift: the shift of single stars, v/c, moves bands by less than 0.2 % of
    their wavelength, and is left out. `axes` are those of the source that the products are of; `screen` is A(lambda) /
    A(V) of the run's dust at the bands' parts.
    """

    axes: TemplateAxes
    bands: BandTables
    mass_now: MassNow
    flux_factor: Float[Array | ndarray, ""]
    losvd: VelocityBins | None
    filters: tuple[str, ...] = eqx.field(static=True)
    source: int = eqx.field(static=True)
    screen: Float[Array | ndarray, " part"] | None = None

    @classmethod
    def build(cls, setup: Setup, axes: TemplateAxes, source: int, fastest: float) -> "ProductTables":
        """Tables for the bands and the velocities (up to `fastest`, km/s) of a run; raises ConfigError."""
        products, library = setup.config.products, setup.library
        assert products is not None
        redshift = setup.config.observation.redshift
        light = _detector_band(setup) if products.band is None else load_band(products.band)
        images = [load_band(name) for name in products.filters]
        for band in images if products.band is None else (light, *images):
            check_covered(band, library, redshift)
        return cls(
            axes=axes,
            bands=BandTables.build(library, redshift, [BandWeight(light), *map(BandWeight.nanojansky, images)]),
            mass_now=MassNow.build(library),
            flux_factor=np.asarray(SOLAR_LUMINOSITY_AT_1_MPC / setup.luminosity_distance**2),
            losvd=None if products.losvd is None else VelocityBins.build(products.losvd, fastest),
            filters=tuple(band.name for band in images),
            source=source,
        )

    @property
    def n_column(self) -> int:
        """Sums per spaxel, without the velocity distribution."""
        return len(SUMS) + len(self.filters)

    def paint(
        self,
        look: Callable[[Any], Sighting],
        particles: Any,
        grid: SpaxelGrid,
        chunk: int,
        parameters: Parameters,
    ) -> Float[Array, "spaxel column"]:
        """The sums of all particles at hand, kept in 64 bits, as many spaxels at a time as there is room for, and
        returned in the tables' precision."""
        table = self.bands.through(self.transmission(parameters)) * self.flux_factor
        n_block = self._n_blocks(grid)
        size = -(-grid.n_spaxel // n_block)
        chunk = max(1, min(chunk, _CHUNK_VALUES // (grid.n_corner * self.n_column)))

        def block(first: Int[Array, ""] | int) -> Float[Array, "own column"]:
            return self._block(look, particles, (first, size), chunk, table, parameters)

        if n_block == 1:
            return block(0)
        blocks = lax.map(jax.checkpoint(block), size * jnp.arange(n_block, dtype=jnp.int32))
        return blocks.reshape(n_block * size, -1)[: grid.n_spaxel]

    def _n_blocks(self, grid: SpaxelGrid) -> int:
        """Blocks of spaxels such that the sums of one have room."""
        n_bin = 0 if self.losvd is None else self.losvd.n_bin
        return -(-8 * grid.n_spaxel * (self.n_column + n_bin) // _ROOM)

    def _block(
        self,
        look: Callable[[Any], Sighting],
        particles: Any,
        spaxels: Spaxels,
        chunk: int,
        table: Float[Array, "template band"],
        parameters: Parameters,
    ) -> Float[Array, "own column"]:
        """The sums on some of the spaxels."""
        (first, n_spaxel), dtype = spaxels, table.dtype
        reference = parameters.observation.velocity_offset

        def contribute(own: Any) -> tuple[Any, ...]:
            seen = look(own)
            columns = self.columns(seen, table, reference)
            rows = seen.share[:, :, None] * columns[:, None, :]
            inside = (seen.spaxel >= first) & (seen.spaxel < first + n_spaxel)
            row = jnp.where(inside, seen.spaxel - first, n_spaxel)
            return row, rows, self._velocities(seen, columns[:, SUMS.index("light")])

        def add(total: tuple[Array, Array | None], one: tuple[Any, ...]) -> tuple[Array, Array | None]:
            spaxel, rows, spread = one
            sums = total[0].at[spaxel].add(rows.astype(jnp.float64), mode="drop")
            if total[1] is None or spread is None:
                return sums, None
            index, amount = spread
            return sums, total[1].at[spaxel[:, :, None], index].add(amount.astype(jnp.float64), mode="drop")

        with jax.enable_x64(True):
            empty = jnp.zeros((n_spaxel, self.n_column), jnp.float64)
            bins = None if self.losvd is None else jnp.zeros((n_spaxel, self.losvd.n_bin), jnp.float64)
            start = varying((empty, bins), particles)
            sums = accumulate(contribute, add, start, particles, chunk, two_levels=False)
            return jnp.concatenate([own.astype(dtype) for own in sums if own is not None], axis=1)

    def transmission(self, parameters: Parameters) -> Float[Array, " part"] | None:
        """The share of the bands' light that the run's dust lets through, 10^(-0.4 a_v A(lambda) / A(V))."""
        if self.screen is None or parameters.dust is None:
            return None
        return jnp.power(10.0, -0.4 * parameters.dust.a_v * jnp.asarray(self.screen))

    def columns(
        self, seen: Sighting, table: Float[Array, "template band"], reference: Float[Array, ""]
    ) -> Float[Array, "particle column"]:
        """What each star adds to `SUMS` and the filters."""
        stars, scene, corners = seen.stars, seen.scene, self.axes.corners(seen.coordinates)
        flux = weighted_rows(table, corners) * scene.amount[:, None]
        log_age, metallicity = jnp.asarray(stars.log_age), jnp.asarray(stars.metallicity)
        mass = self.mass_now.of(stars, scene.amount, scene.coordinates) * scene.weight
        velocity = scene.v_los - reference
        age = jnp.power(10.0, log_age - 9.0).astype(log_age.dtype)
        factors = (velocity, velocity**2, log_age, age, metallicity)
        light = flux[:, 0]
        own = (
            scene.weight,
            scene.amount,
            mass,
            *(mass * x for x in factors),
            light,
            *(light * x for x in factors),
        )
        return jnp.concatenate([jnp.stack(own, axis=1), flux[:, 1:]], axis=1)

    def _velocities(
        self, seen: Sighting, light: Float[Array, " particle"]
    ) -> tuple[Int[Array, "particle 1 2"], Float[Array, "particle corner 2"]] | None:
        """Velocity bins of each star, and its light in each of them on each of its spaxels."""
        if self.losvd is None:
            return None
        index, share = self.losvd.deposit(seen.scene.v_los)
        return index[:, None, :], (seen.share * light[:, None])[:, :, None] * share[:, None, :]


def _detector_band(setup: Setup) -> Band:
    """The detector's whole range, all light counted."""
    bins = setup.instrument.bins
    return Band("detector", bins.to_vacuum(bins.edges[[0, -1]]), np.ones(2))
