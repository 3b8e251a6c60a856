"""Maps of a field: mass, light, motions and ages of its particles, before and after the PSF."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.constants import AB_ZERO_POINT
from rubix_like.cube.footprint import AbstractGridded, Card, Footprint, sky_cards
from rubix_like.cube.meta import Counters, Meta
from rubix_like.physics.dust_curves import V_BAND
from rubix_like.physics.gauss_hermite import fit_gauss_hermite
from rubix_like.runtime.places import found_at

Image = Float[Array | np.ndarray, "y x"]

BALMER_LINES: tuple[str, str] = ("Ha", "Hb")
"""The lines of the Balmer decrement."""


class LineMaps(eqx.Module):
    """Maps of one emission line, (y, x); means are NaN in spaxels without light.

    | field | unit | |
    |---|---|---|
    | flux | 1e-20 erg/s/cm2 | as it is seen |
    | intrinsic_flux or None | 1e-20 erg/s/cm2 | before all dust; None where the run has none |
    | v, sigma | km/s | first moment, root of the second about it, without the instrument's line spread |
    | continuum or None | 1e-20 erg/s/cm2/Angstrom | flux density beside the line; None where nothing shines there |
    | equivalent_width or None | Angstrom | at rest, positive for emission |
    """

    flux: Image
    intrinsic_flux: Image | None
    v: Image
    sigma: Image
    continuum: Image | None
    equivalent_width: Image | None


class MapSet(eqx.Module):
    """Images of one field, (y, x); means are NaN in spaxels without light (or mass).

    | field | unit | |
    |---|---|---|
    | number | | stars |
    | birth_mass, mass | Msun | at birth; now |
    | light | 1e-20 erg/s/cm2 | in the band that weights |
    | v_light, sigma_light, v_mass, sigma_mass | km/s | first moment, root of the second about it |
    | log_age_light, log_age_mass | | mean of log10(age / yr) |
    | age_light, age_mass | Gyr | mean |
    | metallicity_light, metallicity_mass | | mean metal mass fraction |
    | flux (y, x, filter) | nJy | mean flux density per Hz through each filter |
    | losvd (y, x, velocity) or None | 1e-20 erg/s/cm2 per km/s | light per velocity; its integral is `light` |
    | v_fit, sigma_fit, h3, h4 or None | km/s | Gauss-Hermite fit to the losvd; None until `Maps.fitted` |
    | gas_mass or None | Msun | None, as the other maps of gas, without `products.gas` |
    | v_gas, sigma_gas or None | km/s | first moment, root of the second about it, weighted by the mass of gas |
    | metallicity_gas or None | | mean metal mass fraction of gas; None, as the next three, where the gas states none |
    | star_formation_rate or None | Msun/yr | |
    | hi_mass, h2_mass or None | Msun | neutral hydrogen (HI where the gas states H2 apart), molecular hydrogen |
    | intrinsic_light or None | 1e-20 erg/s/cm2 | `light` before all dust; None, as the next, without `products.dust` |
    | intrinsic_flux (y, x, filter) or None | nJy | `flux` before all dust |
    | a_v_light, a_v_mass or None | mag | mean A(V) of the dust in front of stars, by `intrinsic_light`, `mass` |
    | balmer_decrement or None | | Ha / Hb; None, as the next one, without maps of both lines |
    | a_v_balmer or None | mag | A(V) by Ha / Hb and that before dust |
    | lines | by name | `LineMaps` of the lines of `products.lines` |
    | ionising_photons or None | 1e49 per second | that gas absorbs (Q_H); None without maps of lines of nebulae |
    | fields | by name | maps of the pipeline's fields and of plug-ins; `Maps.fields` has their units |
    """

    number: Image
    birth_mass: Image
    mass: Image
    light: Image
    v_light: Image
    sigma_light: Image
    v_mass: Image
    sigma_mass: Image
    log_age_light: Image
    log_age_mass: Image
    age_light: Image
    age_mass: Image
    metallicity_light: Image
    metallicity_mass: Image
    flux: Float[Array | np.ndarray, "y x filter"]
    losvd: Float[Array | np.ndarray, "y x velocity"] | None = None
    v_fit: Image | None = None
    sigma_fit: Image | None = None
    h3: Image | None = None
    h4: Image | None = None
    gas_mass: Image | None = None
    v_gas: Image | None = None
    sigma_gas: Image | None = None
    metallicity_gas: Image | None = None
    star_formation_rate: Image | None = None
    hi_mass: Image | None = None
    h2_mass: Image | None = None
    intrinsic_light: Image | None = None
    intrinsic_flux: Float[Array | np.ndarray, "y x filter"] | None = None
    a_v_light: Image | None = None
    a_v_mass: Image | None = None
    balmer_decrement: Image | None = None
    a_v_balmer: Image | None = None
    lines: Mapping[str, LineMaps] = eqx.field(default_factory=dict)
    ionising_photons: Image | None = None
    fields: Mapping[str, Image] = eqx.field(default_factory=dict)

    @property
    def magnitude(self) -> Float[Array, "y x filter"]:
        """AB magnitude per spaxel in each filter, -2.5 log10(flux / 3631 Jy); NaN without light."""
        return _magnitude(jnp.asarray(self.flux))


@jax.jit
def _magnitude(flux: Float[Array, "y x filter"]) -> Float[Array, "y x filter"]:
    lit = flux > 0
    return jnp.where(lit, -2.5 * jnp.log10(jnp.where(lit, flux, 1) / AB_ZERO_POINT), jnp.nan)


NO_ATTENUATION: float = 1e-4
"""Magnitudes below which an attenuation is that of rounding."""


class AttenuationCurve(eqx.Module):
    """How dust dims the light of all stars in the field together, before the PSF: A = -2.5 log10(attenuated /
    intrinsic).

    `wavelength` (wave,) is in vacuum Angstrom at rest, the means of parts of 1 %; `intrinsic` and `attenuated` are mean
    flux densities in these parts, before all dust and behind it (1e-20 erg/s/cm2/Angstrom). Where dust of the gas lets
    less than a thousandth of the mean through, `attenuated` is NaN: it is not known there.
    """

    wavelength: Float[np.ndarray, " wave"]
    intrinsic: Float[Array | np.ndarray, " wave"]
    attenuated: Float[Array | np.ndarray, " wave"]

    @property
    def a_lambda(self) -> Float[Array, " wave"]:
        """A(lambda) in mag; NaN where there is no light, or none that is known."""
        intrinsic, attenuated = jnp.asarray(self.intrinsic), jnp.asarray(self.attenuated)
        lit = (intrinsic > 0) & (attenuated > 0)
        ones = jnp.ones_like(intrinsic)
        share = jnp.where(lit, attenuated, ones) / jnp.where(lit, intrinsic, ones)
        return jnp.where(lit, -2.5 * jnp.log10(share), jnp.nan)

    @property
    def a_v(self) -> Float[Array, ""]:
        """A(5500 Angstrom) in mag, between the nearest wavelengths; NaN where the curve does not reach there."""
        a_lambda = self.a_lambda
        return jnp.interp(
            jnp.asarray(V_BAND, a_lambda.dtype),
            jnp.asarray(self.wavelength, a_lambda.dtype),
            a_lambda,
            left=jnp.nan,
            right=jnp.nan,
        )

    @property
    def relative(self) -> Float[Array, " wave"]:
        """A(lambda) / A(V); NaN where V is dimmed by less than 1e-4 mag."""
        a_v = self.a_v
        dims = a_v > NO_ATTENUATION
        return jnp.where(dims, self.a_lambda / jnp.where(dims, a_v, jnp.ones_like(a_v)), jnp.nan)


class MapLabel(NamedTuple):
    """A map's name, its unit as FITS files spell it ("" for none), and a few words on what it is."""

    name: str
    unit: str
    text: str


class LineLabel(NamedTuple):
    """An emission line: its name, wavelengths (Angstrom) at rest, in vacuum, and on the detector, in its medium;
    `has_continuum`: whether all that is beside it is known."""

    name: str
    wavelength: float
    observed: float
    has_continuum: bool = True


class Maps(AbstractGridded, eqx.Module):
    """Maps of a cube's particles, `before` the PSF (the truth) and `after` it, on the cube's spaxels.

    `mask` (y, x) has the cube's bits per spaxel (2: outside the aperture, where the maps go on); `velocity` are the
    bins of the distribution in km/s, relative to the galaxy's redshift; `filters` name the last axis of `flux`; `band`
    is the curve whose light weights ("detector": its whole range); `fit_particles`: see `products.losvd`; `fields` are
    the labels of the maps of the pipeline's fields, `lines` those of emission lines; `attenuation` is that of all stars
    in the field (None without `products.dust`).
    """

    before: MapSet
    after: MapSet
    mask: Int[Array | np.ndarray, "y x"]
    velocity: Float[np.ndarray, " velocity"] | None
    counters: Counters | None
    filters: tuple[str, ...] = eqx.field(static=True)
    band: str = eqx.field(static=True)
    fit_particles: int = eqx.field(static=True)
    footprint: Footprint = eqx.field(static=True)
    meta: Meta = eqx.field(static=True, default=Meta())
    fields: tuple[MapLabel, ...] = eqx.field(static=True, default=())
    lines: tuple[LineLabel, ...] = eqx.field(static=True, default=())
    attenuation: AttenuationCurve | None = None

    def __check_init__(self) -> None:
        expect_fields(self)

    @property
    def wcs_cards(self) -> tuple[Card, ...]:
        """World coordinates of the images as FITS cards: those of the cube."""
        return sky_cards(self.footprint, self.meta)

    def fitted(self) -> "Maps":
        """The maps with V, sigma, h3 and h4 of Gauss-Hermite fits (on the host, float64), where there are stars enough.

        Unchanged without a velocity distribution. A distribution of few stars is a row of spikes: below `fit_particles`
        stars in a spaxel (after the PSF: of the stars that are seen there) there is no fit.
        """
        if self.velocity is None:
            return self
        return dataclasses.replace(self, before=self._fit(self.before), after=self._fit(self.after))

    def _fit(self, maps: MapSet) -> MapSet:
        shape, velocity = np.shape(maps.number), np.asarray(self.velocity)
        enough = np.asarray(maps.number) >= self.fit_particles * (1 - 1e-6)
        fit = fit_gauss_hermite(velocity, np.asarray(maps.losvd)[enough])
        images = [np.full(shape, np.nan) for _ in fit]
        for image, values in zip(images, fit, strict=True):
            image[enough] = values
        v, sigma, h3, h4 = images
        return dataclasses.replace(maps, v_fit=v, sigma_fit=sigma, h3=h3, h4=h4)

    @named_arguments
    def write(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the maps to a FITS file (`rubix_like.cube.files.maps_file.write_maps`) and return its path.

        Earlier maps of rubix_like are replaced; any other file only with `overwrite`."""
        return found_at("rubix_like.cube.files.maps_file:write_maps")(self, path, overwrite=overwrite)

    @classmethod
    @named_arguments
    def read(cls, path: str | Path) -> "Maps":
        """Read maps written by `write` (`rubix_like.cube.files.maps_file.read_maps`)."""
        return found_at("rubix_like.cube.files.maps_file:read_maps")(path)


@dataclass(frozen=True)
class LineAxes:
    """The lines that have maps, at the redshift of the galaxy.

    `has_continuum`: whether something shines beside lines; `has_photons`: whether photons that gas absorbs are counted;
    `has_dust`: whether each particle has a separate A(V).
    """

    lines: tuple[LineLabel, ...]
    redshift: float
    has_continuum: bool
    has_photons: bool
    has_dust: bool = False

    @property
    def blocks(self) -> dict[str, int]:
        """The blocks of columns that maps are made of, and their widths.

        `moments`: of all lines the flux, then that times v, then that times v^2 and the width of its particles squared;
        `intrinsic`: the flux before the particles' dust.
        """
        n_line = len(self.lines)
        found = {"moments": 3 * n_line, "intrinsic": n_line * self.has_dust}
        found |= {"continuum": n_line * self.has_continuum, "photons": int(self.has_photons)}
        return {name: width for name, width in found.items() if width}


@dataclass(frozen=True, eq=False)
class DustAxes:
    """The parameters of maps of dust: the `wavelength` of the attenuation curve (vacuum Angstrom at rest), and by how
    many mag more than Ha Hb is dimmed per mag in V (`balmer_excess`, None without maps of both lines)."""

    wavelength: Float[np.ndarray, " wave"]
    balmer_excess: float | None


@dataclass(frozen=True, eq=False)
class ProductAxes:
    """The axes of maps: filters of images, the band whose light is the weight, velocity bins (km/s), fields; `has_gas`:
    whether there are maps of gas; `lines`: of emission lines, if any; `dust`: of what dims the light, if any."""

    filters: tuple[str, ...]
    band: str
    velocity: Float[np.ndarray, " velocity"] | None
    fit_particles: int
    fields: tuple[MapLabel, ...]
    has_gas: bool = False
    lines: LineAxes | None = None
    dust: DustAxes | None = None

    @property
    def velocity_step(self) -> float:
        """Distance between the bins of velocity in km/s; 0 where there are none."""
        return 0.0 if self.velocity is None else float(self.velocity[1] - self.velocity[0])
