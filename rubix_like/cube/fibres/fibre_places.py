"""Where fibres lie on the sky of the field, one entry for each fibre in each exposure."""

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray


class FibrePlaces(eqx.Module):
    """Fibres in the order of their spectra: exposure after exposure, the same fibres in each (float64 on the host).

    | field | shape | |
    |---|---|---|
    | x, y | (fibre,) | arcsec East and North (along the field's axes) of the field's centre |
    | number | (fibre,) | of the fibre in its bundle, from 1 |
    | exposure | (fibre,) | number of the exposure, from 1 |
    | seeing | (fibre,) | FWHM of the PSF in its exposure, relative to `instrument.psf` |
    | transparency | (fibre,) | of the sky in its exposure |
    | radius | static | arcsec: of the core |
    | bundle | static | its name |
    """

    x: Float[ndarray, " fibre"]
    y: Float[ndarray, " fibre"]
    number: Int[ndarray, " fibre"]
    exposure: Int[ndarray, " fibre"]
    seeing: Float[ndarray, " fibre"]
    transparency: Float[ndarray, " fibre"]
    radius: float = eqx.field(static=True)
    bundle: str = eqx.field(static=True, default="")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def area(self) -> float:
        """arcsec^2 that one fibre sees."""
        return float(np.pi * self.radius**2)

    @property
    def n_exposure(self) -> int:
        """Number of exposures."""
        return int(self.exposure.max())

    def on_sky(self, field_angle: float) -> tuple[Float[ndarray, " fibre"], Float[ndarray, " fibre"]]:
        """(East, North) in arcsec on the sky, where the field's +y lies at `field_angle` (deg) from North to East."""
        sine, cosine = np.sin(np.deg2rad(field_angle)), np.cos(np.deg2rad(field_angle))
        return self.x * cosine + self.y * sine, self.y * cosine - self.x * sine
