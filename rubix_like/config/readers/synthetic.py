"""The settings of a synthetic galaxy: its parameters with units, and how many particles sample it."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, ValidationError

from rubix_like.config.messages import explain_value
from rubix_like.config.parameters import Parameter
from rubix_like.config.plug_ins import READING
from rubix_like.config.quantities import Integer, InUnit, Kms, Kpc, Msun, Number, as_yaml_values
from rubix_like.config.settings import AbstractSettings
from rubix_like.galaxy.limits import LARGEST_LOG_AGE
from rubix_like.galaxy.synthetic_defaults import DEFAULTS, SMALLEST_LOG_AGE, Draws
from rubix_like.runtime.places import found_at

if TYPE_CHECKING:
    from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
    from rubix_like.galaxy.synthetic import SyntheticGalaxy

PositiveKpc = Annotated[Kpc, Field(gt=0)]
Size = Annotated[PositiveKpc, Parameter(moves=True)]
Dispersion = Annotated[Kms, Field(ge=0)]
LogAge = Annotated[Number, Field(ge=SMALLEST_LOG_AGE, le=LARGEST_LOG_AGE)]
Age = Annotated[LogAge, Parameter(axis="age")]
Abundance = Annotated[Number, Field(gt=0, le=0.1)]
Metallicity = Annotated[Abundance, Parameter(axis="metallicity")]
NotNegativeDex = Annotated[float, InUnit("dex"), Field(ge=0)]
Scatter = Annotated[NotNegativeDex, Parameter()]
Slope = Annotated[float, InUnit("dex / kpc")]
Gradient = Annotated[Slope, Parameter()]
Rate = Annotated[float, InUnit("Msun / yr"), Field(ge=0), Parameter()]


class SyntheticReader(AbstractSettings):
    """A disc galaxy with bulge and gas made on the spot (`rubix_like.galaxy.synthetic.SyntheticGalaxy`), seeded."""

    reader: Literal["synthetic"] = "synthetic"
    n_stars: Annotated[Integer, Field(ge=1)] = 50000
    """Star particles; a fifth of them samples the bulge."""
    n_gas: Annotated[Integer, Field(ge=0)] = 0
    """Gas cells; 0: no gas."""
    seed: Annotated[Integer, Field(ge=0)] = 1
    """Another seed gives other particles."""
    draws: Draws = "random"
    """`sobol`: evenly spread base draws, whose particle noise is lower; `random`: independent ones."""
    stellar_mass: Annotated[Msun, Field(gt=0), Parameter(role="mass")] = DEFAULTS["stellar_mass"]
    """Mass at birth, disc and bulge together."""
    bulge_fraction: Annotated[Number, Field(ge=0, le=1), Parameter()] = DEFAULTS["bulge_fraction"]
    """Share of `stellar_mass` in the bulge."""
    disc_scale_length: Annotated[PositiveKpc, Parameter(moves=True, role="scale_length")] = DEFAULTS[
        "disc_scale_length"
    ]
    """Scale length of the exponential disc."""
    disc_scale_height: Size = DEFAULTS["disc_scale_height"]
    """Height h of sech^2(z / h)."""
    bulge_effective_radius: Size = DEFAULTS["bulge_effective_radius"]
    """Projected half-mass radius."""
    rotation_velocity: Annotated[Kms, Parameter(role="rotation")] = DEFAULTS["rotation_velocity"]
    """V of V (2 / pi) arctan(R / `turnover_radius`)."""
    turnover_radius: Annotated[PositiveKpc, Parameter()] = DEFAULTS["turnover_radius"]
    """Where the rotation has reached half of V."""
    disc_dispersion: Annotated[Dispersion, Parameter()] = DEFAULTS["disc_dispersion"]
    """Dispersion of velocities along each axis."""
    bulge_dispersion: Annotated[Dispersion, Parameter()] = DEFAULTS["bulge_dispersion"]
    """Dispersion of velocities along each axis."""
    disc_log_age: Age = DEFAULTS["disc_log_age"]
    """log10(age / yr) at the centre of the disc, e.g. 9.5 for 3.2 Gyr."""
    disc_log_age_gradient: Gradient = DEFAULTS["disc_log_age_gradient"]
    """Slope of log10(age / yr) along the radius."""
    bulge_log_age: Age = DEFAULTS["bulge_log_age"]
    """log10(age / yr) of the bulge, e.g. 9.5 for 3.2 Gyr."""
    log_age_scatter: Scatter = DEFAULTS["log_age_scatter"]
    """Scatter of log10(age / yr) about these means."""
    oldest_log_age: Annotated[LogAge, Parameter()] = DEFAULTS["oldest_log_age"]
    """Upper limit of log10(age / yr), to be set below the Universe's age at the galaxy's redshift."""
    disc_metallicity: Metallicity = DEFAULTS["disc_metallicity"]
    """Metal mass fraction Z at the centre of the disc, e.g. 0.02."""
    disc_metallicity_gradient: Gradient = DEFAULTS["disc_metallicity_gradient"]
    """Slope of log10 Z along the radius."""
    bulge_metallicity: Metallicity = DEFAULTS["bulge_metallicity"]
    """Metal mass fraction Z of the bulge, e.g. 0.02."""
    metallicity_scatter: Scatter = DEFAULTS["metallicity_scatter"]
    """Scatter of log10 Z."""
    gas_fraction: Annotated[Number, Field(ge=0), Parameter()] = DEFAULTS["gas_fraction"]
    """Mass of the gas over `stellar_mass`."""
    gas_scale_length: Size = DEFAULTS["gas_scale_length"]
    """Scale length of the exponential disc of gas."""
    gas_scale_height: Size = DEFAULTS["gas_scale_height"]
    """Height h of sech^2(z / h) of the gas."""
    gas_rotation_velocity: Annotated[Kms | None, Parameter()] = DEFAULTS["gas_rotation_velocity"]
    """V of the gas, below 0 against the stars; null: that of the stars' disc."""
    gas_turnover_radius: Annotated[PositiveKpc | None, Parameter()] = DEFAULTS["gas_turnover_radius"]
    """Where the rotation of the gas has reached half of V; null: as in the stars' disc."""
    gas_dispersion: Annotated[Dispersion, Parameter()] = DEFAULTS["gas_dispersion"]
    """Dispersion of the cells' velocities along each axis."""
    gas_metallicity: Annotated[Abundance | None, Parameter()] = DEFAULTS["gas_metallicity"]
    """Metal mass fraction Z of the gas at the centre, e.g. 0.014; null: as in the stars' disc."""
    gas_metallicity_gradient: Annotated[Slope | None, Parameter()] = DEFAULTS["gas_metallicity_gradient"]
    """Slope of log10 Z of the gas along the radius; null: as in the stars' disc."""
    gas_metallicity_scatter: Annotated[NotNegativeDex | None, Parameter()] = DEFAULTS["gas_metallicity_scatter"]
    """Scatter of log10 Z of the gas; null: `metallicity_scatter`."""
    gas_temperature: Annotated[float, InUnit("K"), Field(gt=0)] = DEFAULTS["gas_temperature"]
    """Temperature of all gas."""
    star_formation_rate: Rate = DEFAULTS["star_formation_rate"]
    """Sum over all gas, spread over it by mass."""

    @classmethod
    def checked(cls, name: str, value: object) -> float | None:
        """A parameter's value in its unit; raises ValueError for another physical type and beyond its limits."""
        place = f"SyntheticGalaxy.{name}"
        try:
            return getattr(cls.model_validate({name: as_yaml_values(value, place)}), name)
        except ValidationError as error:
            raise ValueError(f"{place}: {explain_value(error)}") from error

    def build(self) -> "SyntheticGalaxy":
        """The galaxy's parameters as array leaves."""
        return found_at(READING["build_synthetic"])(**{name: getattr(self, name) for name in DEFAULTS})

    def load(self) -> "tuple[Galaxy, GalaxyInfo]":
        """Sample the galaxy; the same settings give the same particles."""
        return found_at(READING["load_synthetic"])(self)
