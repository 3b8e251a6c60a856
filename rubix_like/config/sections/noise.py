"""Settings of the noise: a target signal to noise, or a physical exposure."""

from typing import Annotated

from pydantic import Field, StrictBool, field_validator, model_validator

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import Angstrom, Arcsec, Integer, Number, Second
from rubix_like.config.settings import AbstractSettings
from rubix_like.config.skies import find_sky


class ExposureSettings(AbstractSettings):
    """Exposures of one field under one sky; the instrument's `detector` section says what becomes of the light."""

    time: Annotated[Second, Field(gt=0), Parameter()]
    """Time of one exposure."""
    count: Annotated[Integer, Field(ge=1)] = 1
    """How many exposures of that time are added up."""
    sky: str = "dark"
    """dark, bright, infrared, none (no sky and no atmosphere), or the path of a table (.fits or .ecsv)."""

    @field_validator("sky")
    @classmethod
    def _check_sky(cls, value: str) -> str:
        find_sky(value)
        return value


class NoiseSettings(AbstractSettings):
    """Noise and its variance: exactly one of `signal_to_noise` and `exposure`."""

    signal_to_noise: Annotated[Annotated[Number, Field(ge=1e-4, le=1e6)] | None, Parameter()] = None
    """Target: flux per voxel / sigma per voxel where `wavelength` and `radius` say; the same sigma in all voxels. From
    1e-4 to 1e6: variances are kept in 32 bits."""
    wavelength: Annotated[Angstrom, Field(gt=0)] | None = None
    """Of the target: centre of the window in Angstrom of the cube's medium; null: median over all wavelengths."""
    width: Annotated[Angstrom, Field(gt=0)] = 100.0
    """Of the target: full width of the window about `wavelength` in Angstrom."""
    radius: Annotated[Arcsec, Field(ge=0)] | None = None
    """Of the target: distance from the galaxy's centre (`observation.offset`) in arcsec; null: the brightest spaxel."""
    exposure: ExposureSettings | None = None
    """Instead of a target: photons, sky, dark current and read noise of an exposure."""
    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 1
    """The same seed gives the same noise on any number of devices."""
    keep_truth: StrictBool = False
    """Whether the noiseless flux is kept, as `Cube.truth` and in a second file."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> "NoiseSettings":
        given = [name for name in ("signal_to_noise", "exposure") if getattr(self, name) is not None]
        if len(given) != 1:
            remedy = "set the other to null" if given else "give e.g. signal_to_noise: 50, or exposure: {time: 1800 s}"
            raise ValueError(
                f"expected exactly one of signal_to_noise and exposure, got {' and '.join(given) or 'none'}; {remedy}"
            )
        if self.exposure is not None:
            meaningless = [name for name in ("wavelength", "radius") if getattr(self, name) is not None]
            if meaningless:
                raise ValueError(
                    f"{meaningless[0]}: expected null with an exposure, which needs no target; it goes with "
                    f"signal_to_noise"
                )
        return self
