"""Settings of the maps, velocity distributions and broad-band images that are made beside the cube."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool, field_validator, model_validator

from rubix_like.config.parameters import Parameter
from rubix_like.config.plug_ins import PRODUCTS
from rubix_like.config.quantities import Integer, Kms, Number, PositiveAngstrom, as_tuple, parse_quantity
from rubix_like.config.sections.pipeline import Stages
from rubix_like.config.settings import AbstractSettings

LARGEST_DISPERSION: float = 500.0
"""Largest velocity_dispersion (km/s) that lines are painted with."""

LINE_SOURCE: str = "lines"
"""The name in a pipeline of the source that this section is for."""


def _parse_line(value: object) -> object:
    """A wavelength in Angstrom, or the value unchanged: the name of a line."""
    try:
        return parse_quantity(value, "Angstrom")
    except ValueError:
        return value


Line = Annotated[PositiveAngstrom | str, BeforeValidator(_parse_line)]


class LinesSettings(AbstractSettings):
    """Emission lines of gas, or of stars as tracers, for kinematics."""

    wavelengths: Annotated[tuple[Line, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    """Names from `rubix-like list lines` (Ha), or wavelengths at rest, in vacuum."""
    ratios: Annotated[tuple[Annotated[Number, Field(ge=0)], ...], BeforeValidator(as_tuple)] | None = None
    """Luminosity of each line in units of `luminosity`; null: all 1."""
    particles: Literal["gas", "stars"] = "gas"
    """Kind of particles that shine."""
    weight: Literal["mass", "star_formation_rate"] = "mass"
    """Quantity that a particle's light is proportional to: its mass (of stars: at birth) or star formation rate."""
    luminosity: Annotated[Number, Field(ge=0), Parameter()] = 1.0
    """Luminosity of a line of ratio 1: Lsun per Msun, or per Msun/yr of star formation."""
    velocity_dispersion: Annotated[Kms, Field(ge=0, le=LARGEST_DISPERSION), Parameter()] = 0.0
    """Sigma of each particle's lines, added in quadrature to the instrument's line spread."""

    @model_validator(mode="after")
    def _check_together(self) -> "LinesSettings":
        if self.ratios is not None and len(self.ratios) != len(self.wavelengths):
            raise ValueError(
                f"expected as many ratios as wavelengths, got {len(self.ratios)} and {len(self.wavelengths)}"
            )
        if self.particles == "stars" and self.weight == "star_formation_rate":
            raise ValueError("expected weight 'mass' for stars (only gas has a star_formation_rate)")
        return self


class LOSVDSettings(AbstractSettings):
    """The velocity bins of the line-of-sight velocity distribution."""

    step: Annotated[Kms, Field(gt=0)] = 25.0
    """Distance between the bins in km/s; a bin lies at 0."""
    limit: Annotated[Kms, Field(gt=0)] | None = None
    """Largest velocity of a bin in km/s, rounded up to whole steps; faster stars go into the outermost bins. null: that
    of the fastest star."""
    fit_particles: Annotated[Integer, Field(ge=1)] = 30
    """Least number of stars in a spaxel for the Gauss-Hermite fit (V, sigma, h3, h4); NaN below it."""


class ProductsSettings(AbstractSettings):
    """Maps of what the particles are and do, in a file of their own, before and after the PSF."""

    losvd: LOSVDSettings | None = LOSVDSettings()
    """Velocity distribution in every spaxel; null: none, and no Gauss-Hermite fit."""
    filters: tuple[str, ...] = ()
    """Broad-band images: names of speclite's curves (sdss2010-r, bessell-V, ...) or .ecsv files in its format."""
    band: str | None = None
    """The curve whose light is the weight of light-weighted maps; null: the detector's whole wavelength range."""
    gas: bool = False
    """Maps of the gas, whether or not the pipeline paints it; a galaxy without gas is then refused."""
    dust: bool = False
    """Maps of A(V) and of the light before dust, and the attenuation curve of the galaxy; a run without dust is then
    refused."""
    lines: Annotated[
        StrictBool | Annotated[tuple[Line, ...], Field(min_length=1)],
        BeforeValidator(lambda value: value if isinstance(value, bool) else as_tuple(value)),
    ] = False
    """Maps of emission lines that the pipeline paints: their names (Ha); true: strong lines on the detector."""
    extra: Stages = ()
    """Maps of plug-ins: their names, or names with options (name: {key: value})."""

    @field_validator("extra")
    @classmethod
    def _check_names(cls, value: Stages) -> Stages:
        for product in value:
            PRODUCTS.check(product.name)
        return value
