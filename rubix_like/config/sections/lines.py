"""Settings of the source `lines`, which needs no table of nebulae."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import Angstrom, Kms, Number, as_tuple, parse_quantity
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


Line = Annotated[Annotated[Angstrom, Field(gt=0)] | str, BeforeValidator(_parse_line)]


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
