"""Settings of a uniform dust screen."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import Mag, Number
from rubix_like.config.settings import AbstractSettings
from rubix_like.physics.dust_curves import CURVES


class DustSettings(AbstractSettings):
    """A screen of dust in front of all the light: flux x 10^(-0.4 a_v A(lambda) / A(V))."""

    a_v: Annotated[Mag, Field(ge=0), Parameter()]
    """Attenuation in V."""
    curve: str = "calzetti"
    """calzetti (starbursts), cardelli or gordon (Milky Way), smc, or the name of another curve that is installed."""
    r_v: Number | None = None
    """A(V) / E(B-V); null: the curve's own."""
    place: Literal["galaxy", "foreground"] = "galaxy"
    """galaxy: dust at the galaxy's redshift, k at lambda / (1 + z); foreground: dust of the Milky Way, k at lambda."""

    @field_validator("curve")
    @classmethod
    def _check_curve(cls, value: str) -> str:
        CURVES.find(value)
        return value

    @field_validator("r_v")
    @classmethod
    def _check_r_v(cls, value: float | None, info: Any) -> float | None:
        if value is not None and "curve" in info.data:
            CURVES.find(info.data["curve"]).check_r_v(value)
        return value

    @property
    def resolved_r_v(self) -> float:
        """`r_v`; where it is null, the curve's own."""
        return CURVES.find(self.curve).r_v if self.r_v is None else self.r_v
