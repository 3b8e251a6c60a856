"""Settings of the maps, velocity distributions and broad-band images that are made beside the cube."""

from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool

from rubix_like.config.quantities import Integer, Kms, as_tuple
from rubix_like.config.sections.lines import Line
from rubix_like.config.settings import AbstractSettings


class LOSVDSettings(AbstractSettings):
    """The velocity bins of the line-of-sight velocity distribution."""

    step: Annotated[Kms, Field(gt=0)] = 25.0
    """Distance between the bins in km/s; a bin lies at 0."""
    limit: Annotated[Kms, Field(gt=0)] | None = None
    """Largest velocity of a bin in km/s, rounded up to whole steps; faster stars go into the outermost bins. null: that
    of the fastest star."""
    fit_particles: Annotated[Integer, Field(ge=1)] = 30
    """Least number of stars in a spaxel for the Gauss-Hermite fit (V, sigma, h3, h4); NaN below it."""


def _as_lines(value: object) -> object:
    """A switch, or names: one, or several."""
    return value if isinstance(value, bool) else as_tuple(value)


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
    lines: Annotated[StrictBool | Annotated[tuple[Line, ...], Field(min_length=1)], BeforeValidator(_as_lines)] = False
    """Maps of emission lines that the pipeline paints: their names (Ha); true: strong lines on the detector."""
