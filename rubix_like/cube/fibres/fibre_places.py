"""Where fibres lie on the sky of the field, one entry for each fibre in each exposure."""

import dataclasses

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
    | moved | (exposure, wave, 2) or None | arcsec (x, y) by which refraction moves the light of each bin; None: not |
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
    moved: Float[ndarray, "exposure wave 2"] | None = None

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
        return _turned(self.x, self.y, field_angle)

    def on_sky_at(
        self, field_angle: float, n_wave: int
    ) -> tuple[Float[ndarray, "fibre wave"], Float[ndarray, "fibre wave"]]:
        """(East, North) on the sky of what the fibres see in each of `n_wave` bins: light that refraction moves by
        d into a fibre at p comes from p - d."""
        x, y = (np.broadcast_to(own[:, None], (len(self), n_wave)) for own in (self.x, self.y))
        if self.moved is not None:
            moved = self.moved[self.exposure - 1]
            x, y = x - moved[..., 0], y - moved[..., 1]
        return _turned(x, y, field_angle)

    def part(self, bins: slice) -> "FibrePlaces":
        """The same with the displacement in some of the bins."""
        return self if self.moved is None else dataclasses.replace(self, moved=self.moved[:, bins])


def _turned(
    x: Float[ndarray, "*fibre"], y: Float[ndarray, "*fibre"], angle: float
) -> tuple[Float[ndarray, "*fibre"], Float[ndarray, "*fibre"]]:
    sine, cosine = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
    return x * cosine + y * sine, y * cosine - x * sine
