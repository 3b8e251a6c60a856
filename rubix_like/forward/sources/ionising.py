"""How many ionising photons stars, and the stars that gas makes, shine into the gas around them."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.forward.sources.stars import LOWEST_METALLICITY, star_coordinates
from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.nebular import NebularTable
from rubix_like.nebular.photon_templates import PHOTONS
from rubix_like.physics.templates import TemplateAxes, weighted_rows
from rubix_like.ssp import SSPLibrary
from rubix_like.ssp.ionising_photons import ionising_photons, photons_of_constant_rate

YEARS_PER_MYR: float = 1e6

_N_AGE = 500
"""Steps of the age over which a table is averaged."""


class StarPhotons(eqx.Module):
    """Photons of young stars, from the spectra of the run's SSP library.

    They are interpolated as the spectra are: straight in log10 metallicity and log10 age. The integral over a spectrum
    is linear in it, so that the photons are those of the very spectrum that the star shines with. Stars younger than
    `mean` says, if it is not None, have the mean photons of stars up to that age.
    """

    axes: TemplateAxes
    per_mass: Float[Array | ndarray, "template 1"]
    log_oldest: Float[Array | ndarray, ""]
    mean: "MeanPhotons | None"

    @classmethod
    def build(cls, library: SSPLibrary, oldest: float, mean_up_to: float | None = None) -> "StarPhotons":
        """Tables for stars up to the age `oldest` (Myr); ConfigError for a library without ionising light."""
        photons = ionising_photons(library) / PHOTONS
        return cls(
            axes=library.templates().axes,
            per_mass=photons.reshape(-1, 1),
            log_oldest=np.asarray(np.log10(oldest * YEARS_PER_MYR)),
            mean=None if mean_up_to is None else MeanPhotons.build(library, mean_up_to),
        )

    def are_young(self, stars: Stars) -> Bool[Array, " particle"]:
        """Whether each star is young enough to have photons."""
        return jnp.asarray(stars.log_age) <= self.log_oldest

    def of(self, stars: Stars) -> Float[Array, " particle"]:
        """1e49 photons per second of each star; none of older ones."""
        place = star_coordinates(stars)
        corners = self.axes.corners(tuple(place[name] for name in self.axes.names))
        per_mass = weighted_rows(jnp.asarray(self.per_mass), corners)[:, 0]
        if self.mean is not None:
            per_mass = jnp.where(place["age"] < self.mean.log_age, self.mean.per_mass(place["metallicity"]), per_mass)
        photons = jnp.asarray(stars.initial_mass) * per_mass
        return jnp.where(self.are_young(stars), photons, jnp.zeros_like(photons))


class MeanPhotons(eqx.Module):
    """Photons of all stars up to an age (log10 yr), by metallicity, where 1 Msun/yr was formed all that time."""

    axes: TemplateAxes
    per_rate: Float[Array | ndarray, "template 1"]
    log_age: Float[Array | ndarray, ""]

    @classmethod
    def build(cls, library: SSPLibrary, oldest: float) -> "MeanPhotons":
        """Tables for stars up to the age `oldest` (Myr); ConfigError for a library without ionising light."""
        log_age, years = np.asarray(library.log_age), oldest * YEARS_PER_MYR
        photons = photons_of_constant_rate(log_age, ionising_photons(library), years) / PHOTONS
        axes = TemplateAxes((np.log10(np.asarray(library.metallicity)),), ("metallicity",))
        return cls(axes=axes, per_rate=photons.reshape(-1, 1), log_age=np.asarray(np.log10(years)))

    def of_rate(self, metallicity: Float[Array, " particle"]) -> Float[Array, " particle"]:
        """1e49 photons per second for each Msun/yr, by log10 metallicity."""
        return weighted_rows(jnp.asarray(self.per_rate), self.axes.corners((metallicity,)))[:, 0]

    def per_mass(self, metallicity: Float[Array, " particle"]) -> Float[Array, " particle"]:
        """1e49 photons per second for each Msun of stars, in the mean over the age, by log10 metallicity."""
        return self.of_rate(metallicity) * 10.0 ** (-self.log_age)


class RatePhotons(eqx.Module):
    """Photons of the stars that gas makes: of a rate that was constant as long as its stars ionise."""

    mean: MeanPhotons

    @classmethod
    def build(cls, library: SSPLibrary, oldest: float) -> "RatePhotons":
        """Tables for stars up to the age `oldest` (Myr); ConfigError for a library without ionising light."""
        return cls(MeanPhotons.build(library, oldest))

    def are_forming(self, gas: Gas) -> Bool[Array, " particle"]:
        """Whether each gas particle forms stars, or has a rate that is no number."""
        return ~(_of_gas(gas, "star_formation_rate") <= 0)

    def of(self, gas: Gas) -> Float[Array, " particle"]:
        """1e49 photons per second of each gas particle: by its star formation rate and metallicity, and nothing else.

        Temperature and ionisation of star-forming gas are those of an equation of state, and never asked for.
        """
        metallicity = jnp.log10(jnp.maximum(_of_gas(gas, "metallicity"), LOWEST_METALLICITY))
        return _of_gas(gas, "star_formation_rate") * self.mean.of_rate(metallicity)


def _of_gas(gas: Gas, name: str) -> Float[Array, " particle"]:
    """A column that photons of gas need; raises ValueError where the gas has none."""
    return gas.required(name, "nebular.source star_forming_gas", "take source: stars, or a galaxy whose gas has it")


def of_constant_rate(table: NebularTable, library: SSPLibrary, oldest: float) -> NebularTable:
    """A table without its axis `log_age`: the mean over the photons of stars up to `oldest` (Myr) of a constant rate.

    The stars' metallicity at each O/H is that of the table's scale.
    """
    metals = table.axes["oxygen_abundance"] - table.solar_oxygen + np.log10(table.solar_metallicity)
    nodes, library_ages = table.axes["log_age"], np.asarray(library.log_age)
    last = np.log10(oldest * YEARS_PER_MYR)
    edges = np.linspace(min(nodes[0], library_ages[0], last), last, _N_AGE + 1)
    years, ages = np.diff(10.0**edges), 0.5 * (edges[1:] + edges[:-1])
    years[0] += 10.0 ** edges[0]
    at_metals = [np.interp(metals, np.log10(library.metallicity), own) for own in ionising_photons(library).T]
    photons = np.stack([np.interp(ages, library_ages, own) for own in np.stack(at_metals, axis=1)]) * years
    share = photons @ np.stack([np.interp(ages, nodes, unit) for unit in np.eye(len(nodes))], axis=1)
    share /= share.sum(axis=1, keepdims=True)
    oxygen, age = (list(table.axes).index(name) for name in ("oxygen_abundance", "log_age"))

    def mean(values: Float[ndarray, "*axes"]) -> Float[ndarray, "*others"]:
        found = np.einsum("oa,oa...->o...", share, np.moveaxis(values, (oxygen, age), (0, 1)))
        return np.moveaxis(found, 0, oxygen - (age < oxygen))

    axes = {name: own for name, own in table.axes.items() if name != "log_age"}
    return replace(table, axes=axes, per_photon=mean(table.per_photon), temperature=mean(table.temperature))
