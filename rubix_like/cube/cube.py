"""The mock observation: a cube of spectra with its variance, mask, wavelength axis and world coordinates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from astropy import units
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.config.file_layouts import Packing
from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.footprint import LARGEST_ANGLES, AbstractCube, Card, Footprint, cube_cards, world_coordinates
from rubix_like.cube.meta import Counters, Meta, SourceCounters
from rubix_like.galaxy.limits import require
from rubix_like.physics.units import check_angle, plain_array
from rubix_like.runtime.places import found_at

if TYPE_CHECKING:
    from astropy.units import Quantity
    from astropy.wcs import WCS
    from matplotlib.figure import Figure
    from specutils import Spectrum  # pyright: ignore[reportMissingImports]
    from xarray import Dataset

    from rubix_like.cube.fibres.covariance import AbstractCovariance, SpaxelCorrelations
    from rubix_like.cube.maps import Maps
    from rubix_like.cube.mosaic_noise import MosaicNoise


_UNITS: Mapping[str, units.UnitBase] = {
    "flux": CUBE_FLUX_DENSITY,
    "variance": CUBE_FLUX_DENSITY**2,
    "truth": CUBE_FLUX_DENSITY,
    "lsf_fwhm": units.Angstrom,
    "mean_v_los": units.km / units.s,
    "mask": units.dimensionless_unscaled,
}
"""Units of the arrays of a cube."""

Voxels = Float[Array | np.ndarray, "y x wave"]
MaskBits = Int[Array | np.ndarray, "y x wave"]
Bins = Float[Array | np.ndarray, " wave"]
Map = Float[Array | np.ndarray, "y x"]


def n_unusable(values: Voxels, mask: MaskBits) -> int:
    """How many values are no finite numbers of 32 bits where the mask is 0."""
    values, largest = np.asarray(values), np.finfo(np.float32).max
    if -largest <= values.min(initial=0) and values.max(initial=0) <= largest:  # not where any is NaN
        return 0
    return int(np.count_nonzero((np.asarray(mask) == 0) & ~(np.abs(values) <= largest)))


class ExtractedSpectrum(NamedTuple):
    """A spectrum as astropy quantities: `wavelength` in Angstrom (in the cube's medium), `flux` and its 1-sigma `error`
    in 1e-20 erg/s/cm2/Angstrom (None without a noise model); NaN where every voxel is masked."""

    wavelength: "Quantity"
    flux: "Quantity"
    error: "Quantity | None"


class Cube(AbstractCube, eqx.Module):
    """A mock IFU observation; a pytree whose leaves are arrays, everything else static.

    | field | shape | unit |
    |---|---|---|
    | flux | (y, x, wave) | 1e-20 erg/s/cm2 per Angstrom of the cube's own medium, per spaxel |
    | mask | (y, x, wave) | bits: 0 good, else `OUTSIDE_SSP`, `OUTSIDE_APERTURE`, `SPREAD_FROM_BEYOND`, `NOT_FITTED`, |
    | | | `SATURATED`, `COSMIC_RAY`, `NO_DATA`, `DETECTOR_GAP` (`rubix_like.cube.meta`) |
    | bins | static | the wavelength bins: `wavelength`, `wave_edges`, `medium` and `sampling` of the cube |
    | footprint | static | the grid of spaxels: `pixel_scale` (arcsec per spaxel side) of the cube |
    | variance | (y, x, wave) or None | square of the flux unit; None without a noise model |
    | truth | (y, x, wave) or None | flux without noise and systematic errors, where `noise.keep_truth` is true; not |
    | | | kept in FITS files |
    | contributions | (y, x, wave) by name | what each systematic error adds to the truth, where |
    | | | `systematics.keep_contributions` is true; not kept in the cube's file |
    | lsf_fwhm | (wave,) or None | Angstrom: effective LSF, library's and instrument's together |
    | mean_v_los | (y, x) or None | km/s, light-weighted, + receding; NaN where no light; not kept in FITS files |
    | counters | Counters or None | of the stars |
    | source_counters | SourceCounters by name | of the sources beside the stars |
    | maps | Maps or None | what `products` asks for; kept in a separate file |
    | fibres | FibreSpectra or None | spectra that it was made of, if any; kept in HDF5, or in a separate file |
    | noise_sources | MosaicNoise or None | of a mosaic: the noise of its pointings, for `covariance` |
    | correlations | SpaxelCorrelations or None | of a cube of fibres that was read: those that its file keeps |
    | meta | static | `ra`, `dec` (deg, of the field's centre), `field_angle` (deg, of +y, North through East), and |
    | | | what `rubix_like.cube.files.default.META_CARDS` lists |

    Row y = 0 is South, column x = 0 is East, where the field is not turned. The constructor converts quantities to
    these units and refuses masked values, which are to be set in `mask`; of arrays of the host, too, negative values of
    variance and mask, and bits that no file holds; else it checks shapes only: flux may be a tracer. `write` refuses
    values that are not finite in good voxels, and larger ones than 32 bits hold.
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
    fibres: FibreSpectra | None = None
    contributions: Mapping[str, Voxels] = eqx.field(default_factory=dict)
    noise_sources: "MosaicNoise | None" = None
    correlations: "SpaxelCorrelations | None" = None

    def __post_init__(self) -> None:
        for name, unit in _UNITS.items():
            vars(self)[name] = plain_array(getattr(self, name), unit, f"Cube.{name}")

    def __check_init__(self) -> None:
        expect_fields(self)
        shape = np.shape(self.flux)
        if len(shape) != 3:
            raise ValueError(f"Cube.flux: expected shape (y, x, wave), got {shape}")
        if self.shape != shape:
            raise ValueError(f"Cube: expected footprint and bins of shape {shape} to go with flux, got {self.shape}")
        arrays = {
            "mask": (self.mask, shape),
            "variance": (self.variance, shape),
            "truth": (self.truth, shape),
            "lsf_fwhm": (self.lsf_fwhm, shape[2:]),
            "mean_v_los": (self.mean_v_los, shape[:2]),
        }
        known = {name: (values, wanted) for name, (values, wanted) in arrays.items() if values is not None}
        known |= {f"contributions['{name}']": (values, shape) for name, values in self.contributions.items()}
        for name, (values, wanted) in known.items():
            if np.shape(values) != wanted:
                raise ValueError(
                    f"Cube.{name}: expected shape {wanted} to go with flux {shape}, got {np.shape(values)}"
                )
        for name, most in LARGEST_ANGLES.items():
            check_angle(self.meta.get(name), f"Cube.meta['{name}']", most)
        self._check_values()

    def _check_values(self) -> None:
        if self.mask.dtype.kind not in "biu":
            raise ValueError(
                f"Cube.mask: expected whole numbers, the bits of each voxel (0 is good), got {self.mask.dtype}"
            )
        for name, remedy in (
            ("mask", "0 is good"),
            ("lsf_fwhm", "a width in Angstrom"),
            ("variance", "set voxels without one in mask, with a variance of 0"),
        ):
            values = getattr(self, name)
            if isinstance(values, np.ndarray) and np.fmin.reduce(values, axis=None, initial=0) < 0:
                require(~(values < 0), values, f"Cube.{name}", "values >= 0", remedy)
        largest = np.iinfo(np.int32).max
        is_wide = self.mask.dtype.kind in "iu" and np.iinfo(self.mask.dtype).max > largest
        if is_wide and not isinstance(self.mask, Tracer):
            mask = np.asarray(self.mask)
            require(mask <= largest, mask, "Cube.mask", "bits from 0 to 30, which files hold", "renumber them")

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
        return world_coordinates(self.wcs_cards, self.bins)

    @named_arguments
    def write(
        self,
        path: str | Path,
        layout: str = "default",
        compression: str = "none",
        quantize: int | float | None = None,
        *,
        overwrite: bool = False,
    ) -> Path:
        """Write the cube to a FITS file and return its path.

        A name that ends in .h5 or .hdf5 makes HDF5, .zarr Zarr.

        `layout`: "default" for most programs, "manga" like a MaNGA LOGCUBE, "sami" like a cube of SAMI (of fibres
        alone), "hsim" or "scopesim" a scene for these, or that of a plug-in. `compression`, `quantize`: as in the
        section `output`. An earlier cube of rubix_like is replaced; any other file only with `overwrite`.
        Raises as `write_cube`.
        """
        return found_at("rubix_like.cube.files.cube_files:write_cube")(
            self, path, layout, packing=Packing(compression, quantize), overwrite=overwrite
        )

    @classmethod
    @named_arguments
    def read(cls, path: str | Path) -> "Cube":
        """Read a cube written by `write` in the layout "default", "manga" or "sami"; raises as `load_cube`."""
        return found_at("rubix_like.cube.files.cube_files:load_cube")(path)

    def to_specutils(self) -> "Spectrum":
        """The cube as a `specutils.Spectrum` with axes (wave, y, x), its spectral axis in Angstrom."""
        return found_at("rubix_like.cube.views.other_packages:to_specutils")(self)

    def to_xarray(self) -> "Dataset":
        """The cube as an xarray `Dataset` with axes (y, x, wave), as xarray opens it from Zarr; coordinates `wave`
        (Angstrom), `x`, `y` (arcsec), `ra`, `dec` (deg). Raises ConfigError without the package xarray."""
        return found_at("rubix_like.cube.views.other_packages:to_xarray")(self)

    @named_arguments
    def spectrum(
        self, x: int | None = None, y: int | None = None, *, at: Any = None, offset: Any = None, radius: Any = None
    ) -> ExtractedSpectrum:
        """Wavelength, flux and error as astropy quantities: of the whole field, a spaxel (`x`, `y`, from 0) or a place.

        `at`: (RA, Dec) with units or in deg, a SkyCoord or its text; `offset`: (East, North) of the field's centre,
        with units or in arcsec. `radius` (arcsec): the sum within a circle about either, or about the field's centre,
        in which spaxels on the edge count by their area inside. Masked voxels are left out; bins without a good one
        are NaN. `error` is None without a noise model. Raises ValueError for a place outside the field.
        """
        return found_at("rubix_like.cube.views.cutting:extract_spectrum")(
            self, x, y, at=at, offset=offset, radius=radius
        )

    @named_arguments
    def image(self, band: "str | Sequence[Any] | None" = None) -> "Quantity":
        """An image (y, x) as an astropy quantity; NaN where every voxel is masked.

        None: white light, the integral over the good bins (1e-20 erg/s/cm2). (lowest, highest), with units or in
        Angstrom: the mean flux density of the bins between (1e-20 erg/s/cm2/Angstrom). A filter of speclite such as
        "sdss2010-r", or an .ecsv file: the mean flux density per Hz (nJy). Raises ValueError for a band without a bin,
        ConfigError for a filter that is unknown or reaches beyond the cube.
        """
        return found_at("rubix_like.cube.views.imaging:image_of")(self, band)

    @named_arguments
    def map(self, name: str, *, before_psf: bool = False) -> "Quantity":
        """A map (y, x) of the run's particles as an astropy quantity; NaN without light and outside the aperture.

        "velocity", "dispersion", "age", "metallicity" (weighted by light), "mass", "light", or any other field of
        `MapSet`, such as "v_mass", and of lines "flux_Ha". A cube without maps has "velocity" alone, and only if it was
        not read from FITS. `before_psf`: the truth. Raises ValueError for a map that is not there.
        """
        return found_at("rubix_like.cube.views.imaging:map_of")(self, name, before_psf=before_psf)

    @named_arguments
    def covariance(self, wavelength: Any) -> "AbstractCovariance":
        """The covariance of the spaxels' noise in the bin at a `wavelength` (Angstrom, or with units).

        Of a cube of fibres, or a mosaic, it is that of the map that made it. Of a cube of fibres that was read from the
        layout "manga" or "sami" it is that of the file's correlations, linear between their wavelengths, with the
        cube's variances: `matrix`, `correlation`, `draw` and errors of binned spectra, without chi^2. Of any other run
        with a noise section spaxels have independent noise: a diagonal of variances, without systematic errors.

        Raises ValueError for a cube without noise, a wavelength outside, and a cube of which it is not known (a mosaic,
        or a cube of fibres, read from other files; one that no run made).
        """
        return found_at("rubix_like.cube.views.covariance:cube_covariance")(self, wavelength)

    @named_arguments
    def cut(
        self, wavelength: "Sequence[Any] | None" = None, *, at: Any = None, offset: Any = None, size: Any = None
    ) -> "Cube":
        """The part of the cube with the bins from lowest to highest `wavelength`, and the spaxels in a box on the sky.

        `wavelength`: with units, or in Angstrom of the cube's medium; `size`: width or (width, height) of the box in
        arcsec, along columns and rows; `at`, `offset`: its centre, as for `spectrum` (default: the field's). A bin or
        spaxel is kept where its centre is inside. Raises ValueError where none is.
        """
        return found_at("rubix_like.cube.views.cutting:cut_cube")(self, wavelength, at=at, offset=offset, size=size)

    @named_arguments
    def plot(self, spaxels: "Sequence[tuple[int, int]]" = (), band: "Sequence[Any] | None" = None) -> "Figure":
        """White light, maps and spectra of some `spaxels` (x, y), by default the field's and the brightest one's, as a
        matplotlib figure, which a notebook shows; `band` (lowest, highest in Angstrom, or with units): also an
        image of it.

        Raises ConfigError without matplotlib, or for a spaxel or band outside the cube.
        """
        return found_at("rubix_like.plots.figure:make_figure")(self, tuple(spaxels), band)

    def __repr__(self) -> str:
        return found_at("rubix_like.cube.views.cube_summary:cube_words")(self)

    def _repr_html_(self) -> str:
        return found_at("rubix_like.cube.views.cube_summary:cube_html")(self)
