"""Settings of a source of lines that needs no table."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import Angstrom, Kms, Number, as_tuple, parse_quantity
from rubix_like.config.settings import AbstractSettings
from rubix_like.physics.templates import LARGEST_DISPERSION

LINE_SOURCE: str = "lines"
"""The name in a pipeline of the source that this section is for."""


def _parse_line(value: object) -> object:
    """A wavelength in Angstrom, where it is one; else the name of a line."""
    try:
        return parse_quantity(value, "Angstrom")
    except ValueError:
        return value


Line = Annotated[Annotated[Angstrom, Field(gt=0)] | str, BeforeValidator(_parse_line)]


class LinesSettings(AbstractSettings):
    """Emission lines of gas, or of stars as tracers, for kinematics."""

    wavelengths: Annotated[tuple[Line, ...], BeforeValidator(as_tuple), Field(min_length=1)]
    """Names from `rubix-like list lines` (Ha), or wavelengths at rest, in vacuum."""
    ratios: Annotated[tuple[Annotated[Number, Field(ge=0)], ...], BeforeValidator(as_tuple)] | None = None
    """Luminosity of each of them, in units of `luminosity`; null: all 1."""
    particles: Literal["gas", "stars"] = "gas"
    """What shines."""
    weight: Literal["mass", "star_formation_rate"] = "mass"
    """What a particle shines in proportion to: its mass (stars: at birth), or its star formation rate."""
    luminosity: Annotated[Number, Field(ge=0), Parameter()] = 1.0
    """Lsun per Msun, or per Msun/yr, in a line of ratio 1."""
    velocity_dispersion: Annotated[Kms, Field(ge=0, le=LARGEST_DISPERSION), Parameter()] = 0.0
    """Sigma of the lines of a particle, beside the instrument's line spread."""

    @model_validator(mode="after")
    def _check_together(self) -> "LinesSettings":
        if self.ratios is not None and len(self.ratios) != len(self.wavelengths):
            raise ValueError(
                f"expected as many ratios as wavelengths, got {len(self.ratios)} and {len(self.wavelengths)}"
            )
        if self.particles == "stars" and self.weight == "star_formation_rate":
            raise ValueError("expected weight 'mass' for stars (only gas has a star_formation_rate)")
        return self
