"""The mock observation: a cube of spectra with its variance, mask, wavelength axis and world coordinates."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from rubix_like.wcs import Card, cube_cards, world_coordinates

if TYPE_CHECKING:
    from astropy.wcs import WCS
    from specutils import Spectrum  # pyright: ignore[reportMissingImports]

    from rubix_like.products.maps import Maps

OUTSIDE_SSP: int = 1
"""Mask bit: the bin lies (partly) outside the wavelengths of the SSP library."""

OUTSIDE_APERTURE: int = 2
"""Mask bit: the spaxel lies outside the instrument's aperture."""

SPREAD_FROM_BEYOND: int = 4
"""Mask bit: after `degrade_lsf` the bin holds light that is taken to be beyond the detector's end as it is at it."""

NOT_FITTED: int = 8
"""Mask bit: of the residuals of a fit, the voxel was left out of it."""

MetaValue = str | int | float | bool | None
Scalar = Num[Array | np.ndarray, ""]
Voxels = Float[Array | np.ndarray, "y x wave"]
MaskBits = Int[Array | np.ndarray, "y x wave"]
Bins = Float[Array | np.ndarray, " wave"]
Edges = Float[Array | np.ndarray, " edge"]
Map = Float[Array | np.ndarray, "y x"]


class Meta(Mapping[str, MetaValue]):
    """What a run was made of, as an immutable and hashable mapping, so that it can be a static part of a pytree.

    Values are strings, numbers, booleans or None; anything else raises TypeError. `1`, `1.0` and `True` are different.
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Any] | None = None) -> None:
        self._items: tuple[tuple[str, MetaValue], ...] = tuple((k, _plain(k, v)) for k, v in (items or {}).items())

    def __getitem__(self, key: str) -> MetaValue:
        return dict(self._items)[key]

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._typed())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Meta) and self._typed() == other._typed()

    def __repr__(self) -> str:
        return f"Meta({dict(self._items)!r})"

    def replace(self, **changes: MetaValue) -> "Meta":
        """A copy with some values changed or added."""
        return Meta({**self, **changes})

    def _typed(self) -> frozenset[tuple[str, type, MetaValue]]:
        return frozenset((key, type(value), value) for key, value in self._items)


def _plain(key: str, value: Any) -> MetaValue:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"meta '{key}': expected a string, number, boolean or None, got {type(value).__name__}")


class Counters(eqx.Module):
    """How many stars, and how much birth mass (Msun), a run could not treat in full (scalar arrays).

    `n_outside`: outside the field. `n_clamped_age`, `n_clamped_metallicity`: beyond the SSP library, taken at its
    limit. `n_beyond_velocity`: beyond the planned velocity range. `n_overflow`: fast stars that method `basis` had
    no room for. `n_not_finite`: with a value that is not finite.
    """

    n_particles: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_outside: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_clamped_age: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_clamped_metallicity: Scalar = eqx.field(default=0, converter=jnp.asarray)
    mass_outside: Scalar = eqx.field(default=0.0, converter=jnp.asarray)
    mass_clamped_age: Scalar = eqx.field(default=0.0, converter=jnp.asarray)
    mass_clamped_metallicity: Scalar = eqx.field(default=0.0, converter=jnp.asarray)
    mass_total: Scalar = eqx.field(default=0.0, converter=jnp.asarray)
    n_beyond_velocity: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_overflow: Scalar = eqx.field(default=0, converter=jnp.asarray)
    n_not_finite: Scalar = eqx.field(default=0, converter=jnp.asarray)


@runtime_checkable
class Described(Protocol):
    """A cube, or what else holds the description of a run."""

    @property
    def meta(self) -> Meta:
        """What the run was made of."""
        ...

    @property
    def counters(self) -> Counters | None:
        """Of its particles."""
        ...

    @property
    def pixel_scale(self) -> float:
        """arcsec per spaxel side."""
        ...


class Cube(eqx.Module):
    """A mock IFU observation; a pytree whose leaves are arrays, everything else static.

    | field | shape | unit |
    |---|---|---|
    | flux | (y, x, wave) | 1e-20 erg/s/cm2 per Angstrom of the cube's own medium, per spaxel |
    | mask | (y, x, wave) | bits: 0 good, else `OUTSIDE_SSP`, `OUTSIDE_APERTURE`, `SPREAD_FROM_BEYOND`, `NOT_FITTED` |
    | wavelength, wave_edges | (wave,), (wave + 1,) | Angstrom: bin centres and edges in `medium` |
    | pixel_scale | static | arcsec per spaxel side |
    | variance | (y, x, wave) or None | square of the flux unit; None without a noise model |
    | truth | (y, x, wave) or None | flux without its noise, where `noise.keep_truth` is true; not kept in FITS files |
    | lsf_fwhm | (wave,) or None | Angstrom: effective LSF, library's and instrument's together |
    | mean_v_los | (y, x) or None | km/s, light-weighted, + receding; NaN where no light; not kept in FITS files |
    | counters | Counters or None | |
    | maps | Maps or None | what `products` asks for; kept in a file of its own |
    | medium, sampling | static | "air" or "vacuum"; "linear" or "log" |
    | meta | static | `ra`, `dec` (deg, of the field's centre), `field_angle` (deg, of +y, North through East), and |
    | | | what `rubix_like.fits.META_CARDS` lists |

    Row y = 0 is South, column x = 0 is East, where the field is not turned. The constructor checks
    shapes only: flux may be a tracer.
    """

    flux: Voxels
    mask: MaskBits
    wavelength: Bins
    wave_edges: Edges
    pixel_scale: float = eqx.field(static=True)
    variance: Voxels | None = None
    lsf_fwhm: Bins | None = None
    mean_v_los: Map | None = None
    counters: Counters | None = None
    truth: Voxels | None = None
    maps: "Maps | None" = None
    medium: Literal["air", "vacuum"] = eqx.field(static=True, default="vacuum")
    sampling: Literal["linear", "log"] = eqx.field(static=True, default="linear")
    meta: Meta = eqx.field(static=True, default=Meta())

    def __check_init__(self) -> None:
        shape = np.shape(self.flux)
        if len(shape) != 3:
            raise ValueError(f"Cube.flux: expected shape (y, x, wave), got {shape}")
        expected = {
            "mask": shape,
            "variance": shape,
            "truth": shape,
            "wavelength": shape[2:],
            "wave_edges": (shape[2] + 1,),
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
        n_y, n_x, n_wave = np.shape(self.flux)
        return cube_cards(
            (n_y, n_x, n_wave),
            self.pixel_scale,
            self.meta,
            wavelength=np.asarray(self.wavelength),
            wave_edges=np.asarray(self.wave_edges),
            medium=self.medium,
            sampling=self.sampling,
        )

    @property
    def wcs(self) -> "WCS":
        """astropy WCS in FITS order (x, y, wave) -> (RA deg, Dec deg, wavelength m)."""
        return world_coordinates(self.wcs_cards)

    def write(self, path: str | Path, layout: Literal["default", "manga", "hsim"] = "default") -> Path:
        """Write the cube to a FITS file (HDF5 where the name ends in .h5 or .hdf5) and return its path (`cube_files`).

        `layout`: "default" for most programs, "manga" like a MaNGA LOGCUBE, "hsim" a scene for HSIM.
        """
        from rubix_like.cube_files import write_cube  # noqa: PLC0415 (its readers build cubes)

        return write_cube(self, path, layout)

    @classmethod
    def read(cls, path: str | Path) -> "Cube":
        """Read a cube written by `write` in the layout "default" (`rubix_like.cube_files.read_cube`)."""
        from rubix_like.cube_files import read_cube  # noqa: PLC0415 (its readers build cubes)

        return read_cube(path)

    def to_specutils(self) -> "Spectrum":
        """The cube as a `specutils.Spectrum` with axes (wave, y, x) (`rubix_like.specutils_spectrum.to_specutils`)."""
        from rubix_like.specutils_spectrum import to_specutils  # noqa: PLC0415 (it takes cubes)

        return to_specutils(self)


def white_light(cube: Cube) -> Float[np.ndarray, "y x"]:
    """Flux of every spaxel over its good bins, sum of F_lambda d(lambda) in float64: (y, x), 1e-20 erg/s/cm2."""
    from rubix_like.cube_sums import sums_of  # noqa: PLC0415 (it takes cubes)

    return sums_of(cube).light
