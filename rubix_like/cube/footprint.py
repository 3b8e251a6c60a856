"""The part of the sky that is seen: the grid of spaxels of an instrument, of a cube and of its files."""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import numpy as np
from astropy.io import fits
from astropy.io.fits import Header
from jaxtyping import Shaped

from rubix_like.arguments import named_arguments
from rubix_like.config import InstrumentSettings
from rubix_like.cube.bins import AbstractBinned, Medium, Sampling, WavelengthBins
from rubix_like.errors import expect_count
from rubix_like.physics.units import expect_positive, plain_array
from rubix_like.runtime.places import found_at

if TYPE_CHECKING:
    from astropy.wcs import WCS

LARGEST_ANGLES: dict[str, float] = {"field_angle": np.inf, "ra": 360.0, "dec": 90.0}
"""Magnitude (deg) of the angles that say where on the sky a field lies."""


class Footprint(eqx.Module):
    """n_y x n_x square spaxels about the field's centre, `pixel_scale` arcsec (or a quantity) wide.

    Inside the model spectra are (element, wave): an element is a spaxel, row after row. `images` and `elements` turn
    them into images and back. `pixel_scale` is a number on the host, an array in the model: a new value
    does not recompile it. `fibres`: an element is the spectrum of a fibre in one exposure instead; they are one column,
    and no image.
    """

    n_y: int = eqx.field(static=True)
    n_x: int = eqx.field(static=True)
    pixel_scale: Any = eqx.field(converter=partial(plain_array, unit="arcsec", place="Footprint.pixel_scale"))
    fibres: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        expect_count(self.n_y, "Footprint.n_y")
        expect_count(self.n_x, "Footprint.n_x")
        if isinstance(self.pixel_scale, float | int | np.ndarray | None):
            expect_positive(self.pixel_scale, "Footprint.pixel_scale")

    @classmethod
    def build(cls, settings: InstrumentSettings) -> "Footprint":
        """The spaxels of an instrument's settings."""
        n_x, n_y = settings.n_spaxel_xy
        return cls(n_y, n_x, settings.pixel_scale)

    @classmethod
    @named_arguments
    def of(cls, shape: tuple[int, ...], pixel_scale: Any) -> "Footprint":
        """The spaxels of an array (y, x, ...)."""
        n_y, n_x = shape[:2]
        return cls(n_y, n_x, pixel_scale)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.n_y, self.n_x

    @property
    def n_element(self) -> int:
        """Number of spaxels."""
        return self.n_y * self.n_x

    @property
    def sides(self) -> tuple[Any, Any]:
        """Width and height in arcsec."""
        return self.n_x * self.pixel_scale, self.n_y * self.pixel_scale

    def centres(self, namespace: Any = np) -> tuple[Shaped[Any, " x"], Shaped[Any, " y"]]:
        """The columns' x and the rows' y in arcsec from the field's centre: on the host, or with `jax.numpy`."""
        dtype = namespace.result_type(self.pixel_scale)
        column, row = (namespace.arange(size, dtype=dtype) for size in (self.n_x, self.n_y))
        return ((self.n_x - 1) / 2 - column) * self.pixel_scale, (row - (self.n_y - 1) / 2) * self.pixel_scale

    def images(self, values: Shaped[Any, "element *rest"]) -> Shaped[Any, "y x *rest"]:
        """The values of all spaxels as images; raises ValueError for another number of spaxels, and for fibres."""
        if self.fibres:
            raise ValueError(
                f"images: expected spaxels, got {self.n_element} spectra of fibres, which are no image; work on "
                f"(element, wave): an element is a fibre in one exposure, and setup.instrument.fibres has their places"
            )
        return self.rows(values)

    def rows(self, values: Shaped[Any, "element *rest"]) -> Shaped[Any, "y x *rest"]:
        """The values row after row, also of fibres, each of which is a row; ValueError as from `images`."""
        if np.shape(values)[:1] != (self.n_element,):
            raise ValueError(f"values: expected {self.n_element} spaxels, got an array of shape {np.shape(values)}")
        return values.reshape(*self.shape, *values.shape[1:])

    def elements(self, images: Shaped[Any, "y x *rest"]) -> Shaped[Any, "element *rest"]:
        """The values of all spaxels, from images; raises ValueError for those of another footprint."""
        if np.shape(images)[:2] != self.shape:
            raise ValueError(f"images: expected shape (y, x) {self.shape}, got an array of shape {np.shape(images)}")
        return images.reshape(self.n_element, *images.shape[2:])

    @named_arguments
    def painted(self, margin: int, cells: int = 1) -> "Footprint":
        """The footprint with `margin` spaxels more on each side, every spaxel cut into `cells` x `cells`."""
        n_y, n_x = (cells * (size + 2 * margin) for size in self.shape)
        return Footprint(n_y, n_x, self.pixel_scale / cells, self.fibres)

    @named_arguments
    def within(self, margin: int, cells: int = 1) -> "Footprint":
        """The footprint of which `painted` makes this one."""
        n_y, n_x = (size // cells - 2 * margin for size in self.shape)
        return Footprint(n_y, n_x, self.pixel_scale * cells, self.fibres)


class AbstractGridded:
    """The spaxels of what has a `footprint`."""

    footprint: Footprint

    @property
    def n_y(self) -> int:
        """Rows of spaxels."""
        return self.footprint.n_y

    @property
    def n_x(self) -> int:
        """Columns of spaxels."""
        return self.footprint.n_x

    @property
    def pixel_scale(self) -> float:
        """Arcsec per side of the (square) spaxels."""
        return float(self.footprint.pixel_scale)


class AbstractCube(AbstractBinned, AbstractGridded):
    """The axes of what has `bins` and a `footprint`."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(y, x, wave) of the whole cube."""
        return *self.footprint.shape, self.bins.n_wave


Card = tuple[str, Any, str]
"""Keyword, value, comment."""

SPECTRAL_TYPE: dict[tuple[Medium, Sampling], str] = {
    ("vacuum", "linear"): "WAVE",
    ("air", "linear"): "AWAV",
    ("vacuum", "log"): "WAVE-LOG",
    ("air", "log"): "AWAV-LOG",
    ("vacuum", "table"): "WAVE-TAB",
    ("air", "table"): "AWAV-TAB",
}
"""(medium, sampling) -> CTYPE3 (Greisen et al. 2006, A&A 446, 747: 'FITS paper III')."""

TABLE_NAME: str = "WCS-TABLE"
"""The extension that holds the wavelengths of a table, as files of JWST's pipeline call it."""

_COORDINATES, _INDEX = "wavelength", "index"


def celestial_cards(footprint: Footprint, ra: float, dec: float, field_angle: float = 0.0) -> tuple[Card, ...]:
    """Cards of a tangent-plane sky: the field's centre (`ra`, `dec`, deg) in the middle of the array, East to the left.

    `field_angle` (deg) is the position angle of the rows' direction, +y, North through East:
    CD = step ((-cos, sin), (sin, cos)) (Calabretta & Greisen 2002, A&A 395, 1077). CDELT keeps the pixel scale, which
    readers of CD ignore. CRPIX counts from 1, at the centre of the first spaxel.
    """
    step = footprint.pixel_scale / 3600.0
    cos, sin = step * math.cos(math.radians(field_angle)), step * math.sin(math.radians(field_angle))
    return (
        ("WCSAXES", 3, "number of world axes"),
        ("CTYPE1", "RA---TAN", "right ascension, gnomonic projection"),
        ("CTYPE2", "DEC--TAN", "declination, gnomonic projection"),
        ("CUNIT1", "deg", ""),
        ("CUNIT2", "deg", ""),
        ("CRPIX1", (footprint.n_x + 1) / 2, "centre of the field"),
        ("CRPIX2", (footprint.n_y + 1) / 2, "centre of the field"),
        ("CRVAL1", float(ra), "[deg] right ascension of the centre"),
        ("CRVAL2", float(dec), "[deg] declination of the centre"),
        ("CD1_1", -cos, "[deg] East is left where it is < 0"),
        ("CD1_2", sin, ""),
        ("CD2_1", sin, ""),
        ("CD2_2", cos, "[deg] North is up where it is > 0"),
        ("CDELT1", -step, "[deg] side of a spaxel"),
        ("CDELT2", step, "[deg] side of a spaxel"),
        ("RADESYS", "ICRS", ""),
        ("EQUINOX", 2000.0, ""),
    )


def spectral_cards(bins: WavelengthBins) -> tuple[Card, ...]:
    """Cards of the wavelength axis in Angstrom: CRVAL3 is the centre of the first bin.

    Linear: lambda = CRVAL3 + k CD3_3. Log (FITS paper III, eq. 5): lambda = CRVAL3 exp(k CD3_3 / CRVAL3), so that
    CD3_3 = CRVAL3 dln(lambda). Table (section 6): lambda is read at the number of the pixel in `table_columns`.
    """
    is_log, is_table = bins.sampling == "log", bins.sampling == "table"
    step, step_words = bins.step, "[Angstrom] step"
    if is_log:
        step, step_words = bins.first * bins.step * math.log(10.0), "[Angstrom] CRVAL3 times step in ln"
    table: tuple[Card, ...] = (
        ("PS3_0", TABLE_NAME, "extension with the table"),
        ("PS3_1", _COORDINATES, "column of its wavelengths"),
        ("PS3_2", _INDEX, "column of the numbers at which they are"),
        ("PV3_1", 1.0, "version of the extension"),
        ("PV3_2", 1.0, "level of the extension"),
        ("PV3_3", 1.0, "axis of the table"),
    )
    return (
        (
            "CTYPE3",
            SPECTRAL_TYPE[bins.medium, bins.sampling],
            f"wavelength in {bins.medium}{', by a table' if is_table else ''}",
        ),
        ("CUNIT3", "Angstrom", "of the table" if is_table else ""),
        ("CRPIX3", 1.0, "first bin"),
        ("CRVAL3", 1.0, "its number") if is_table else ("CRVAL3", bins.first, "[Angstrom] centre of the first bin"),
        *((card, 0.0, "") for card in ("CD1_3", "CD2_3", "CD3_1", "CD3_2")),
        ("CD3_3", 1.0, "bins") if is_table else ("CD3_3", step, step_words),
        ("CDELT3", 1.0 if is_table else step, "same as CD3_3"),
        *(table if is_table else ()),
        ("SPECSYS", "BARYCENT", "frame of the wavelengths"),
    )


def table_hdu(bins: WavelengthBins) -> fits.BinTableHDU:
    """The extension that a wavelength axis by a table refers to: one row with the wavelengths of the edges and centres
    of all bins in turn, (1, M), and their pixels from 0.5 on; between them wavelengths are linear (FITS paper III,
    section 6.1)."""
    nodes = np.array(bins.nodes)
    number = len(nodes)
    pixels = 0.5 + 0.5 * np.arange(number)
    columns = [
        fits.Column(_COORDINATES, f"{number}D", "Angstrom", dim=f"(1,{number})", array=nodes.reshape(1, number, 1)),
        fits.Column(_INDEX, f"{number}D", array=pixels[None, :]),
    ]
    table = fits.BinTableHDU.from_columns(columns, name=TABLE_NAME)
    table.header["EXTVER"], table.header["EXTLEVEL"] = 1, 1
    return table


def sky_cards(footprint: Footprint, meta: Mapping[str, Any]) -> tuple[Card, ...]:
    """Cards of the sky of a cube or of maps, their place taken from `meta`."""
    return celestial_cards(footprint, *(float(meta.get(key) or 0.0) for key in ("ra", "dec", "field_angle")))


def cube_cards(footprint: Footprint, bins: WavelengthBins, meta: Mapping[str, Any]) -> tuple[Card, ...]:
    """Cards of the sky and the wavelength axis of a cube, its place taken from `meta`."""
    return (*sky_cards(footprint, meta), *spectral_cards(bins))


def header_of(cards: Iterable[Card]) -> Header:
    """A FITS header of `cards`, in their order; a comment is cut where the value leaves less room than it takes."""
    header = Header()
    for keyword, value, comment in cards:
        quoted = len(value.replace("'", "''")) + 2 if isinstance(value, str) else 0
        room = 67 - max(quoted, 20)  # of 80 letters 10 are for the keyword, 20 or more for the value, 3 between
        header[keyword] = (value, comment[: max(room, 0)])
    return header


def world_coordinates(cards: Iterable[Card], bins: WavelengthBins, **options: Any) -> "WCS":
    """The astropy WCS (RA, Dec, wavelength in m) that a reader of a file with these cards of a cube gets."""
    header = header_of(cards)
    if bins.sampling == "table":
        options = options | {"fobj": fits.HDUList([fits.PrimaryHDU(), table_hdu(bins)])}
    return found_at("astropy.wcs:WCS")(header, **options)
