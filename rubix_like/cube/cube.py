"""The mock observation: a cube of spectra with its variance, mask, wavelength axis and world coordinates."""

from pathlib import Path
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rubix_like.config.file_layouts import Packing
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.footprint import AbstractCube, Footprint
from rubix_like.cube.meta import Counters, Meta, SourceCounters
from rubix_like.cube.wcs import Card, cube_cards, world_coordinates
from rubix_like.runtime.places import found_at

if TYPE_CHECKING:
    from astropy.wcs import WCS
    from specutils import Spectrum  # pyright: ignore[reportMissingImports]

    from rubix_like.cube.maps import Maps


_OUTPUTS: dict[str, str] = {
    "write": "rubix_like.cube.files.cube_files:write_cube",
    "read": "rubix_like.cube.files.cube_files:read_cube",
    "to_specutils": "rubix_like.cube.files.specutils_spectrum:to_specutils",
}
"""What turns cubes into something else, which this module cannot import: it takes cubes itself."""

Voxels = Float[Array | np.ndarray, "y x wave"]
MaskBits = Int[Array | np.ndarray, "y x wave"]
Bins = Float[Array | np.ndarray, " wave"]
Map = Float[Array | np.ndarray, "y x"]


class Cube(AbstractCube, eqx.Module):
    """A mock IFU observation; a pytree whose leaves are arrays, everything else static.

    | field | shape | unit |
    |---|---|---|
    | flux | (y, x, wave) | 1e-20 erg/s/cm2 per Angstrom of the cube's own medium, per spaxel |
    | mask | (y, x, wave) | bits: 0 good, else `OUTSIDE_SSP`, `OUTSIDE_APERTURE`, `SPREAD_FROM_BEYOND`, `NOT_FITTED` |
    | bins | static | the wavelength bins: `wavelength`, `wave_edges`, `medium` and `sampling` of the cube |
    | footprint | static | the grid of spaxels: `pixel_scale` (arcsec per spaxel side) of the cube |
    | variance | (y, x, wave) or None | square of the flux unit; None without a noise model |
    | truth | (y, x, wave) or None | flux without its noise, where `noise.keep_truth` is true; not kept in FITS files |
    | lsf_fwhm | (wave,) or None | Angstrom: effective LSF, library's and instrument's together |
    | mean_v_los | (y, x) or None | km/s, light-weighted, + receding; NaN where no light; not kept in FITS files |
    | counters | Counters or None | of the stars |
    | source_counters | SourceCounters by name | of the sources beside the stars |
    | maps | Maps or None | what `products` asks for; kept in a file of its own |
    | meta | static | `ra`, `dec` (deg, of the field's centre), `field_angle` (deg, of +y, North through East), and |
    | | | what `rubix_like.cube.files.default.META_CARDS` lists |

    Row y = 0 is South, column x = 0 is East, where the field is not turned. The constructor checks
    shapes only: flux may be a tracer.
    """

    flux: Voxels
    mask: MaskBits
    bins: WavelengthBins = eqx.field(static=True)
    footprint: Footprint = eqx.field(static=True)
    variance: Voxels | None = None
    lsf_fwhm: Bins | None = None
    mean_v_los: Map | None = None
    counters: Counters | None = None
    truth: Voxels | None = None
    maps: "Maps | None" = None
    meta: Meta = eqx.field(static=True, default=Meta())
    source_counters: dict[str, SourceCounters] = eqx.field(default_factory=dict)

    def __check_init__(self) -> None:
        shape = np.shape(self.flux)
        if len(shape) != 3:
            raise ValueError(f"Cube.flux: expected shape (y, x, wave), got {shape}")
        if self.shape != shape:
            raise ValueError(f"Cube: expected footprint and bins of shape {shape} to go with flux, got {self.shape}")
        expected = {
            "mask": shape,
            "variance": shape,
            "truth": shape,
            "lsf_fwhm": shape[2:],
            "mean_v_los": shape[:2],
        }
        for name, wanted in expected.items():
            value = getattr(self, name)
            if value is not None and np.shape(value) != wanted:
                raise ValueError(f"Cube.{name}: expected shape {wanted} to go with flux {shape}, got {np.shape(value)}")

    @property
    def ivar(self) -> Voxels | None:
        """Inverse variance: 0 where masked or where the variance is 0; None without a noise model."""
        if self.variance is None:
            return None
        variance = jnp.asarray(self.variance)
        good = (jnp.asarray(self.mask) == 0) & (variance > 0)
        return jnp.where(good, 1 / jnp.where(good, variance, 1), 0)

    @property
    def wcs_cards(self) -> tuple[Card, ...]:
        """The FITS cards (keyword, value, comment) of the world coordinates, as written to files."""
        return cube_cards(self.footprint, self.bins, self.meta)

    @property
    def wcs(self) -> "WCS":
        """astropy WCS in FITS order (x, y, wave) -> (RA deg, Dec deg, wavelength m)."""
        return world_coordinates(self.wcs_cards)

    def write(
        self, path: str | Path, layout: str = "default", compression: str = "none", quantize: int | float | None = None
    ) -> Path:
        """Write the cube to a FITS file and return its path.

        A name that ends in .h5 or .hdf5 makes HDF5, .zarr Zarr, .parquet a table with a row per spaxel.

        `layout`: "default" for most programs, "manga" like a MaNGA LOGCUBE, "hsim" a scene for HSIM, or that of a
        plug-in. `compression`, `quantize`: as in the section `output`. Raises as `write_cube`.
        """
        return found_at(_OUTPUTS["write"])(self, path, layout, packing=Packing(compression, quantize))

    @classmethod
    def read(cls, path: str | Path) -> "Cube":
        """Read a cube written by `write` in the layout "default"; raises as `read_cube`."""
        return found_at(_OUTPUTS["read"])(path)

    def to_specutils(self) -> "Spectrum":
        """The cube as a `specutils.Spectrum` with axes (wave, y, x)."""
        return found_at(_OUTPUTS["to_specutils"])(self)
