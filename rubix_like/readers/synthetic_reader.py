"""The settings of a synthetic galaxy: its parameters with units, and how many particles sample it."""

from typing import Annotated, Literal

import jax
from pydantic import Field

from rubix_like.config.quantities import Integer, InUnit, Kms, Kpc, Msun, Number
from rubix_like.config.settings import AbstractSettings
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.synthetic import BULGE_SHARE, DEFAULTS, SMALLEST_LOG_AGE, Draws, SyntheticGalaxy, draw_base
from rubix_like.galaxy.validation import LARGEST_LOG_AGE

PositiveKpc = Annotated[Kpc, Field(gt=0)]
Dispersion = Annotated[Kms, Field(ge=0)]
LogAge = Annotated[Number, Field(ge=SMALLEST_LOG_AGE, le=LARGEST_LOG_AGE)]
Metallicity = Annotated[Number, Field(gt=0, le=0.1)]
Scatter = Annotated[float, InUnit("dex"), Field(ge=0)]
Gradient = Annotated[float, InUnit("dex / kpc")]


class SyntheticReader(AbstractSettings):
    """A disc galaxy with bulge and gas made on the spot (`rubix_like.galaxy.synthetic.SyntheticGalaxy`), seeded."""

    reader: Literal["synthetic"] = "synthetic"
    n_stars: Annotated[Integer, Field(ge=1)] = 50000
    """Star particles; a fifth of them samples the bulge."""
    n_gas: Annotated[Integer, Field(ge=0)] = 0
    seed: Annotated[Integer, Field(ge=0)] = 1
    draws: Draws = "random"
    """`sobol`: evenly spread base draws, whose particle noise is lower; `random`: independent ones."""
    stellar_mass: Annotated[Msun, Field(gt=0)] = DEFAULTS["stellar_mass"]
    """Msun at birth, disc and bulge together."""
    bulge_fraction: Annotated[Number, Field(ge=0, le=1)] = DEFAULTS["bulge_fraction"]
    disc_scale_length: PositiveKpc = DEFAULTS["disc_scale_length"]
    disc_scale_height: PositiveKpc = DEFAULTS["disc_scale_height"]
    bulge_effective_radius: PositiveKpc = DEFAULTS["bulge_effective_radius"]
    rotation_velocity: Kms = DEFAULTS["rotation_velocity"]
    turnover_radius: PositiveKpc = DEFAULTS["turnover_radius"]
    disc_dispersion: Dispersion = DEFAULTS["disc_dispersion"]
    bulge_dispersion: Dispersion = DEFAULTS["bulge_dispersion"]
    disc_log_age: LogAge = DEFAULTS["disc_log_age"]
    """log10(age / yr) at the centre of the disc."""
    disc_log_age_gradient: Gradient = DEFAULTS["disc_log_age_gradient"]
    bulge_log_age: LogAge = DEFAULTS["bulge_log_age"]
    log_age_scatter: Scatter = DEFAULTS["log_age_scatter"]
    oldest_log_age: LogAge = DEFAULTS["oldest_log_age"]
    """Upper limit of log10(age / yr), to be set below the Universe's age at the galaxy's redshift."""
    disc_metallicity: Metallicity = DEFAULTS["disc_metallicity"]
    """Metal mass fraction at the centre of the disc."""
    disc_metallicity_gradient: Gradient = DEFAULTS["disc_metallicity_gradient"]
    bulge_metallicity: Metallicity = DEFAULTS["bulge_metallicity"]
    metallicity_scatter: Scatter = DEFAULTS["metallicity_scatter"]
    gas_fraction: Annotated[Number, Field(ge=0)] = DEFAULTS["gas_fraction"]
    """Gas mass over stellar mass."""
    gas_scale_length: PositiveKpc = DEFAULTS["gas_scale_length"]
    gas_scale_height: PositiveKpc = DEFAULTS["gas_scale_height"]
    gas_dispersion: Dispersion = DEFAULTS["gas_dispersion"]
    gas_temperature: Annotated[float, InUnit("K"), Field(gt=0)] = DEFAULTS["gas_temperature"]
    star_formation_rate: Annotated[float, InUnit("Msun / yr"), Field(ge=0)] = DEFAULTS["star_formation_rate"]

    def build(self) -> SyntheticGalaxy:
        """The galaxy's parameters as array leaves."""
        return SyntheticGalaxy(**{name: getattr(self, name) for name in DEFAULTS})

    def load(self) -> tuple[Galaxy, GalaxyInfo]:
        """Sample the galaxy; the same settings give the same particles."""
        draws = draw_base(self.n_stars, self.n_gas, self.seed, self.draws)
        galaxy = jax.jit(SyntheticGalaxy.sample)(self.build(), draws)
        notes = ()
        if round(BULGE_SHARE * self.n_stars) == 0 and self.bulge_fraction > 0:
            notes = ("too few stars to sample the bulge: its mass is in the disc",)
        info = GalaxyInfo(
            name="synthetic",
            reader=self.reader,
            source=f"rubix_like.synthetic, {self.draws} draws, seed {self.seed}",
            simulation="synthetic",
            n_stars=self.n_stars,
            n_gas=self.n_gas,
            initial_mass="drawn: stellar_mass is the mass at birth",
            ages="synthetic",
            metallicities="synthetic",
            velocities="synthetic",
            notes=notes,
        )
        return galaxy, info
